package keys

import (
	"context"
	"fmt"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/follow"
)

// resumeFile keeps the position of a watch of one range.
type resumeFile struct {
	path  string
	start client.Position // of the file; zero: none
	saver *follow.Saver
}

// openResume reads a resume file for a range. A missing file has no position.
func openResume(ctx context.Context, path string, rng client.Range) (*resumeFile, error) {
	saver, start, err := follow.NewSaver(ctx, follow.File(path), rng)
	if err != nil {
		return nil, fmt.Errorf("--resume-file: %w", err)
	}
	return &resumeFile{path: path, start: start, saver: saver}, nil
}

// belongs fails if the file's position belongs to another cluster.
func (r *resumeFile) belongs(cluster string) error {
	if r.start.Cluster == "" || r.start.Cluster == cluster {
		return nil
	}
	return fmt.Errorf("--resume-file %s: its position is of cluster %s, the nodes are of cluster %s: "+
		"name other nodes with --endpoints, or delete the file to start over", r.path, r.start.Cluster, cluster)
}

// passed records an update that was printed or handled. It saves the position, unless it may
// delay this. more means that further updates are queued.
func (r *resumeFile) passed(u *client.Update, more bool) error {
	return r.named(r.saver.Passed(context.Background(), u, more)) // even if the watch has ended
}

// save writes the file, unless it has the position already.
func (r *resumeFile) save() error { return r.named(r.saver.Flush(context.Background())) }

// named adds the flag to an error.
func (r *resumeFile) named(err error) error {
	if err != nil {
		return fmt.Errorf("--resume-file: %w", err)
	}
	return nil
}
