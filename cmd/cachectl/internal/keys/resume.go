package keys

import (
	"context"
	"fmt"
	"time"

	"github.com/shardwatch/shardwatch/client"
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
	store client.PositionStore
	rng   client.Range
	at    client.Position // behind the last update that was dealt with
	disk  client.Position // what the file has; zero: nothing
	saved time.Time
}

// openResume reads a resume file for a range. One that does not exist has no position.
func openResume(ctx context.Context, path string, rng client.Range) (*resumeFile, error) {
	r := &resumeFile{path: path, store: client.PositionFile(path), rng: rng}
	at, err := r.store.Load(ctx, rng)
	if err != nil {
		return nil, fmt.Errorf("--resume-file: %w", err)
	}
	r.disk, r.at = at, at
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
	if err := r.store.Save(context.Background(), r.rng, r.at); err != nil { // also when the watch was ended
		return fmt.Errorf("--resume-file: %w", err)
	}
	r.disk, r.saved = r.at, time.Now()
	return nil
}
