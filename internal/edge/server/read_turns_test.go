package server_test

import (
	"fmt"
	"runtime"
	"testing"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// A list of keys without values is copied in chunks, each in a turn of the client.
func TestListsOfKeysTakeTurns(t *testing.T) {
	h, turns := cachetest.New(), fair.NewTurns()
	var ops []cachetest.Op
	for i := range 3000 {
		ops = append(ops, cachetest.Put(fmt.Sprintf("/keys/%06d", i), "v"))
	}
	h.Commit(ops...)
	r := start(t, h, options{server: func(c *server.Config) { c.Turns = turns }})
	var held []func()
	for range max(1, runtime.GOMAXPROCS(0)-1) {
		leave, err := turns.Take(t.Context(), "another")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, leave)
	}
	done := make(chan listed)
	go func() {
		got, err := list(t, r.conn, &pb.ListRequest{Key: []byte("/keys/"), RangeEnd: []byte("/keys0"), KeysOnly: true})
		if err != nil {
			t.Error(err)
		}
		done <- got
	}()
	testkit.Eventually(t, "the list waits for its turn", func() bool { _, waiting := turns.Figures(); return waiting == 1 })
	for _, leave := range held {
		leave()
	}
	if got := <-done; len(got.keys) != 3000 {
		t.Errorf("got %d keys, want 3000", len(got.keys))
	}
	testkit.Eventually(t, "all turns are released", func() bool { running, waiting := turns.Figures(); return running == 0 && waiting == 0 })
}
