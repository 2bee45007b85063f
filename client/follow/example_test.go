package follow_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/follow"
	"github.com/shardwatch/shardwatch/client/internal/scripted"
)

// A worker handles each update of a range at least once, in order, also across restarts of
// the program. The copy here is a map; apply is the same with a database.
func ExampleRun() {
	c, end := scripted.Example("/jobs/a=1", "/jobs/b=2")
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, _ := os.MkdirTemp("", "worker")
	defer os.RemoveAll(dir)

	jobs := map[string]string{}
	put := func(kv client.KeyValue) error { jobs[string(kv.Key)] = string(kv.Value); return nil }
	remove := func(key []byte) error { delete(jobs, string(key)); return nil }
	reset := func() error { clear(jobs); return nil }
	store := follow.File(filepath.Join(dir, "jobs.position"))
	err := follow.Run(ctx, c, client.Prefix("/jobs/"), store, func(_ context.Context, u client.Update) error {
		if err := u.Apply(put, remove, reset); err != nil {
			return err
		}
		fmt.Println(u.Kind, u.Revision, jobs)
		if u.Kind == client.KindState {
			_, _, err := c.Delete(ctx, client.Key("/jobs/a"))
			return err
		}
		stop()
		return nil
	})
	fmt.Println(err)
	// Output:
	// state 3 map[/jobs/a:1 /jobs/b:2]
	// batch 4 map[/jobs/b:2]
	// follow ["/jobs/", "/jobs0"): context canceled
}
