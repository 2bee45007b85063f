package client

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/tree"
)

// What a mirror has applied when it ends is told before its end.
func TestTheLastChangeComesBeforeTheEnd(t *testing.T) {
	for range 50 { // both are ready: select takes either
		m := &Mirror{done: make(chan struct{}), ready: make(chan struct{}), changed: make(chan struct{})}
		kvs := func(revision int64, keys ...string) View {
			u := Update{Kind: KindResync, Revision: revision}
			for _, k := range keys {
				u.KVs = append(u.KVs, KeyValue{Key: []byte(k), ModRevision: revision})
			}
			return apply(m.hash, View{}, &u)
		}
		m.hash = tree.NewHasher()
		m.set(kvs(2, "a"))
		var told []int
		var last error
		for ch, err := range m.Changes(context.Background()) {
			if last = err; err != nil {
				break
			}
			if told = append(told, len(ch.Events)); len(told) == 1 {
				m.set(kvs(3, "b", "c"))
				m.end(outcome.ErrEnded)
			}
		}
		if !slices.Equal(told, []int{1, 3}) || !errors.Is(last, outcome.ErrEnded) {
			t.Fatalf("told changes of %v events, then %v", told, last)
		}
	}
}
