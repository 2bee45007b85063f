package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/durable"
)

// How long a position may wait to be saved: while more updates wait, and when nothing
// has changed but the revision.
const (
	saveBusy = 100 * time.Millisecond
	saveIdle = time.Second
)

// resumeFile keeps the position of a watch of one range.
type resumeFile struct {
	path  string
	rng   string
	at    client.Position // behind the last update that was dealt with
	disk  client.Position // what the file has; zero: nothing
	saved time.Time
}

// resumeJSON is what the file has.
type resumeJSON struct {
	Range string `json:"range"`
	positionJSON
}

// openResume reads a resume file for a range. One that does not exist has no position.
func openResume(path string, rng client.Range) (*resumeFile, error) {
	r := &resumeFile{path: path, rng: rng.String()}
	text, err := os.ReadFile(path) //nolint:gosec // the user names it
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--resume-file: %w", err)
	}
	var in resumeJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	switch err := d.Decode(&in); {
	case err != nil:
		return nil, fmt.Errorf("--resume-file %s: not a file of watch (%w); delete it to start over", path, err)
	case in.Revision <= 0 || in.ClusterID == "" || in.Lineage == 0:
		return nil, fmt.Errorf("--resume-file %s: it has no position; delete it to start over", path)
	case in.Range != r.rng:
		return nil, fmt.Errorf("--resume-file %s: its position is of %s, the watch of %s: use one file per range", path, in.Range, r.rng)
	}
	r.disk = client.Position{Cluster: in.ClusterID, Lineage: in.Lineage, Revision: in.Revision}
	r.at = r.disk
	return r, nil
}

// belongs fails if the file's position is of another cluster than the nodes.
func (r *resumeFile) belongs(cluster string) error {
	if r.disk.Cluster == "" || r.disk.Cluster == cluster {
		return nil
	}
	return fmt.Errorf("--resume-file %s: its position is of cluster %s, the nodes are of cluster %s: "+
		"name other nodes with --endpoints, or delete the file to start over", r.path, r.disk.Cluster, cluster)
}

// passed says that an update was dealt with. It saves the position, unless that may wait:
// more says that other updates do.
func (r *resumeFile) passed(u *client.Update, more bool) error {
	r.at = u.Position()
	wait := time.Duration(0)
	switch {
	case r.disk == client.Position{}:
	case u.Kind == client.KindProgress:
		wait = saveIdle
	case more:
		wait = saveBusy
	}
	if time.Since(r.saved) < wait {
		return nil
	}
	return r.save()
}

// save replaces the file, if it does not have the position yet.
func (r *resumeFile) save() error {
	if r.at == r.disk {
		return nil
	}
	text, err := json.Marshal(resumeJSON{r.rng, positionOf(r.at)})
	if err == nil {
		err = durable.WriteFile(r.path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("--resume-file: %w", err)
	}
	r.disk, r.saved = r.at, time.Now()
	return nil
}
