package router_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// large runs f with a node that lacks shard 2, whose three keys have 1 MiB each, and with
// 1 MiB for keys of other nodes.
func large(t *testing.T, f func(t *testing.T, r *router.Router, b *budget.Budget, e *elsewhere, h *cachetest.Script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		for _, key := range []string{"a", "d", "e", "f", "x"} {
			h.Commit(cachetest.Put(key, strings.Repeat("v", 1<<20)))
		}
		m := cachetest.Map(1, []string{"d", "h"}, "here")
		m.Shards[1].Replicas = []shard.NodeID{"there"}
		n := cachetest.NewNode("here", h, nil)
		defer n.Stop()
		e := &elsewhere{h: h, let: make(chan error)}
		n.Connect("there", e)
		n.Use(m)
		<-n.Replica(1).Ready()
		<-n.Replica(3).Ready()
		b := budget.New(16 << 20)
		f(t, router.New(router.Config{Shards: n, Clock: h, Self: "here", Budget: b}), b, e, h)
	})
}

// Lists of keys from other nodes take their bytes from the budget. A single list may exceed
// the share; others wait for it, and all are served.
func TestListsOfOtherNodesAreBounded(t *testing.T) {
	large(t, func(t *testing.T, r *router.Router, b *budget.Budget, e *elsewhere, h *cachetest.Script) {
		read, done := make(chan struct{}), make(chan error)
		all := func(ctx context.Context, at kv.Revision) {
			reading, err := r.Read(ctx, router.ReadRequest{Revision: at, Exists: true})
			if err == nil {
				_, err = reading.Scan(ctx, router.ScanOptions{}, func(item *kv.KeyValue) error {
					if string(item.Key()) == "d" {
						<-read
					}
					return nil
				})
			}
			done <- err
		}
		now := h.Now()
		for i := range kv.Revision(2) {
			go all(t.Context(), now+i)
			h.Commit(cachetest.Put("a", "x"))
			synctest.Wait()
		}
		e.let <- nil
		e.let <- nil
		synctest.Wait()
		// One list has all of its 3 MiB; the other has at most the share and waits.
		if held := b.Held(budget.Fetches); held < 3<<20 || held > 4<<20+1<<18 {
			t.Errorf("%d bytes are held", held)
		}
		close(read)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if held := b.Held(budget.Fetches); held != 0 {
			t.Errorf("%d bytes are held after all lists", held)
		}
	})
}

// A Body for a resync holds the keys from other nodes until it is released. It may exceed
// the share only if there are no other holders.
func TestStatesOfOtherNodesAreBounded(t *testing.T) {
	large(t, func(t *testing.T, r *router.Router, b *budget.Budget, e *elsewhere, h *cachetest.Script) {
		hold := func() (*router.Body, error) {
			reading, err := r.Read(t.Context(), router.ReadRequest{Revision: h.Now(), Exists: true})
			if err != nil {
				t.Fatal(err)
			}
			go func() { e.let <- nil }()
			return reading.Hold(t.Context())
		}
		first, err := hold()
		if err != nil || b.Held(budget.Fetches) < 3<<20 {
			t.Fatalf("%d bytes are held, %v", b.Held(budget.Fetches), err)
		}
		var limit *kv.LimitError
		if _, err := hold(); !errors.As(err, &limit) || limit.Limit != budget.Flag {
			t.Errorf("a second one: %v", err)
		}
		first.Release()
		first.Release()
		if held := b.Held(budget.Fetches); held != 0 {
			t.Errorf("%d bytes are held after the release", held)
		}
		second, err := hold()
		if err != nil {
			t.Errorf("after the release: %v", err)
		}
		second.Release()
	})
}
