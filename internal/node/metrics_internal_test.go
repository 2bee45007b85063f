package node

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// A shard is short of the replicas that the planner would give it, not of those that all nodes could hold.
func TestShortOf(t *testing.T) {
	alive := func(names ...shard.NodeID) (out []shard.Member) {
		for _, n := range names {
			out = append(out, shard.Member{Name: n, State: shard.Alive})
		}
		return out
	}
	drains := alive("a", "b", "c")
	drains[2].Draining = true
	for name, c := range map[string]struct {
		home        shard.Home
		drained     []shard.NodeID
		replicas    []shard.NodeID
		members     []shard.Member
		short, lost int64
	}{
		"all are there":               {shard.Home{}, nil, []shard.NodeID{"a", "b", "c"}, alive("a", "b", "c"), 0, 0},
		"one is missing":              {shard.Home{}, nil, []shard.NodeID{"a", "b"}, alive("a", "b", "c"), 1, 0},
		"there are no more nodes":     {shard.Home{}, nil, []shard.NodeID{"a", "b"}, alive("a", "b"), 0, 0},
		"a drained node holds none":   {shard.Home{}, []shard.NodeID{"c"}, []shard.NodeID{"a", "b"}, alive("a", "b", "c"), 0, 0},
		"nor does one that drains":    {shard.Home{}, nil, []shard.NodeID{"a", "b"}, drains, 0, 0},
		"unless all are drained":      {shard.Home{}, []shard.NodeID{"a", "b"}, []shard.NodeID{"a"}, alive("a", "b"), 1, 0},
		"an operator asked for fewer": {shard.Home{Replicas: 2}, nil, []shard.NodeID{"a", "b"}, alive("a", "b", "c"), 0, 0},
		"an operator asked for more":  {shard.Home{Replicas: 4}, nil, []shard.NodeID{"a", "b", "c"}, alive("a", "b", "c", "d"), 1, 0},
		"no replica lives":            {shard.Home{}, nil, []shard.NodeID{"x", "y", "z"}, alive("a", "b", "c"), 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := &shard.Map{Spec: shard.Spec{Replicas: 3}, Drained: c.drained, Shards: []shard.Shard{{Replicas: c.replicas, Home: c.home}}}
			if short, lost := shortOf(m, c.members); short != c.short || lost != c.lost {
				t.Errorf("short %d, lost %d; want %d and %d", short, lost, c.short, c.lost)
			}
		})
	}
}
