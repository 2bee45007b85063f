package verify

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// A copy counts as differing in the metrics if its last comparison found a difference, the map contains it, and
// this node compares it.
func TestCountOfDifferingCopies(t *testing.T) {
	m := &shard.Map{Shards: []shard.Shard{{ID: 1, Replicas: []shard.NodeID{"a", "b", "c"}}, {ID: 2, Replicas: []shard.NodeID{"b", "a"}}}}
	v := New(Config{Self: "a", Logger: slog.New(slog.DiscardHandler)})
	look := func(name string, want int64, ids ...shard.ID) {
		t.Helper()
		if got := v.differing(m, ids); got != want {
			t.Errorf("%s: %d copies differ, want %d", name, got, want)
		}
	}
	some := []keyDifference{{key: "k"}}
	look("at the start", 0, 1, 2)
	v.tell(m, &m.Shards[0], &finding{decided: true, differences: some, copies: []copied{{node: "a"}, {node: "b", wrong: true}, {node: "c"}}})
	look("one is wrong", 1, 1, 2)
	v.tell(m, &m.Shards[0], &finding{copies: []copied{{node: "a"}, {node: "b", err: errors.ErrUnsupported}, {node: "c"}}})
	look("it is being loaded", 1, 1, 2)
	look("others are compared elsewhere", 0, 2)
	v.tell(m, &m.Shards[0], &finding{copies: []copied{{node: "a"}, {node: "b"}, {node: "c"}}})
	look("it was loaded", 0, 1, 2)
	v.tell(m, &m.Shards[1], &finding{differences: some, copies: []copied{{node: "b"}, {node: "a"}}})
	look("nobody knows which", 2, 1, 2)
	m.Shards[1].Replicas = []shard.NodeID{"a", "c"}
	look("one has moved on", 1, 1, 2)
	if n := v.differences.Load(); n != 3 {
		t.Errorf("%d differences were counted, want 3", n)
	}
}
