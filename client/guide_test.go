package client_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

// exampleClient returns a client of a cluster with some keys, each KEY=VALUE.
func exampleClient(keys ...string) (c *client.Client, end func()) {
	cluster, err := clienttest.Start(clienttest.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, pair := range keys {
		key, value, _ := strings.Cut(pair, "=")
		cluster.Put(key, value)
	}
	if c, err = client.New(client.Config{Endpoints: cluster.Endpoints()}); err != nil {
		log.Fatal(err)
	}
	return c, func() { _, _ = c.Close(), cluster.Close() }
}

// deleteOrStop deletes a key after the state, and stops after that.
func deleteOrStop(c *client.Client, u client.Update, key string, stop func()) (err error) {
	if u.Kind == client.KindState {
		_, _, err = c.Delete(context.Background(), client.Key(key))
	} else {
		stop()
	}
	return err
}

// A worker: each update of a range is dealt with at least once, in order, also over
// restarts of the program. The copy here is a map; apply is the same with a database.
func ExampleClient_Follow() {
	c, end := exampleClient("/jobs/a=1", "/jobs/b=2")
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, _ := os.MkdirTemp("", "worker")
	defer os.RemoveAll(dir)

	jobs := map[string]string{}
	put := func(kv client.KeyValue) error { jobs[string(kv.Key)] = string(kv.Value); return nil }
	remove := func(key []byte) error { delete(jobs, string(key)); return nil }
	reset := func() error { clear(jobs); return nil }
	store := client.PositionFile(filepath.Join(dir, "jobs.position"))
	err := c.Follow(ctx, client.Prefix("/jobs/"), store, func(_ context.Context, u client.Update) error {
		if err := u.Apply(put, remove, reset); err != nil {
			return err
		}
		fmt.Println(u.Kind, u.Revision, jobs)
		return deleteOrStop(c, u, "/jobs/a", stop)
	})
	fmt.Println(err)
	// Output:
	// state 3 map[/jobs/a:1 /jobs/b:2]
	// batch 4 map[/jobs/b:2]
	// follow ["/jobs/", "/jobs0"): context canceled
}

// A program that used clientv3's Watch after a Get, and lists again when the revision is
// compacted, is this loop. Nothing is listed again: a unit has what a list would find.
func ExampleClient_Watch() {
	c, end := exampleClient("/demo/a=1")
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	w := c.Watch(ctx, client.Prefix("/demo/"), client.WithState())
	for u, err := range w.Updates() {
		if err != nil {
			fmt.Println(err)
			break
		}
		_ = u.Apply( // instead of: for _, e := range response.Events { switch e.Type { … } }
			func(kv client.KeyValue) error { fmt.Printf("PUT %s %s\n", kv.Key, kv.Value); return nil },
			func(key []byte) error { fmt.Printf("DELETE %s\n", key); return nil },
			func() error { fmt.Println("all keys follow"); return nil })
		_ = deleteOrStop(c, u, "/demo/a", stop)
	}
	// Output:
	// all keys follow
	// PUT /demo/a 1
	// DELETE /demo/a
	// context canceled
}
