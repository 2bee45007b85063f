package cluster

import (
	"testing"

	"github.com/shardwatch/shardwatch/cmd/cachectl/internal/cli"
)

func TestLoadedPercentage(t *testing.T) {
	for name, c := range map[string]struct {
		loading cli.ReplicaJSON
		others  []cli.ReplicaJSON
		want    string
	}{
		"half":             {cli.ReplicaJSON{StateBytes: 40, WindowBytes: 5, TombstoneBytes: 5}, []cli.ReplicaJSON{{Ready: true, StateBytes: 100}}, ", 50 %"},
		"more than others": {cli.ReplicaJSON{StateBytes: 101}, []cli.ReplicaJSON{{Ready: true, StateBytes: 100}}, ", 99 %"},
		"nothing":          {cli.ReplicaJSON{}, []cli.ReplicaJSON{{Ready: true, StateBytes: 100}}, ""},
		"others load, too": {cli.ReplicaJSON{StateBytes: 40}, []cli.ReplicaJSON{{StateBytes: 100}}, ""},
		"an empty shard":   {cli.ReplicaJSON{StateBytes: 40}, []cli.ReplicaJSON{{Ready: true}}, ""},
		"no answer":        {cli.ReplicaJSON{}, nil, ""},
	} {
		if got := loaded((cli.ShardJSON{Replicas: append(c.others, c.loading)}), c.loading); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
