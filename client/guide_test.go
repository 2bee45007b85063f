package client_test

import (
	"context"
	"fmt"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/internal/scripted"
)

// deleteOrStop deletes a key after the state, and then stops.
func deleteOrStop(c *client.Client, u client.Update, key string, stop func()) (err error) {
	if u.Kind == client.KindState {
		_, _, err = c.Delete(context.Background(), client.Key(key))
	} else {
		stop()
	}
	return err
}

// A program that used clientv3's Watch after a Get, and lists again when the revision is
// compacted, is this loop. Nothing is listed again: a unit has what a list would find.
func ExampleClient_Watch() {
	c, end := scripted.Example("/demo/a=1")
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
