package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/files/durable"
)

// File keeps the position of one range in a file, as cachectl watch --resume-file does.
// A missing file means no position. A position is saved atomically: after a crash of
// the machine the file has the new position or the previous one. Load fails if the file
// belongs to another range or is not a position file.
func File(path string) Store { return file(path) }

type file string

// positionJSON is the content of a position file.
type positionJSON struct {
	Range    string `json:"range"`
	Revision int64  `json:"revision"`
	Cluster  string `json:"cluster_id"`
	Lineage  uint64 `json:"lineage"`
}

// Load implements [Store].
func (f file) Load(_ context.Context, r client.Range) (client.Position, error) {
	text, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return client.Position{}, nil
	}
	if err != nil {
		return client.Position{}, err //nolint:wrapcheck // it names the operation and the file
	}
	var in positionJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	switch err := d.Decode(&in); {
	case err != nil:
		return client.Position{}, fmt.Errorf("%s: not a position file (%w); delete it to start over", string(f), err)
	case in.Revision <= 0 || in.Cluster == "" || in.Lineage == 0:
		return client.Position{}, fmt.Errorf("%s: it has no position; delete it to start over", string(f))
	case in.Range != r.String():
		return client.Position{}, fmt.Errorf("%s: its position is of %s, the watch of %v: use one file per range", string(f), in.Range, r)
	}
	return client.Position{Cluster: in.Cluster, Lineage: in.Lineage, Revision: in.Revision}, nil
}

// Save implements [Store].
func (f file) Save(_ context.Context, r client.Range, p client.Position) error {
	text, err := json.Marshal(positionJSON{r.String(), p.Revision, p.Cluster, p.Lineage})
	if err == nil {
		err = durable.WriteFile(string(f), append(text, '\n'))
	}
	return err //nolint:wrapcheck // it names the operation and the file
}
