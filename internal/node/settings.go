package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// overruled returns the flags of the node that differ from the settings of the
// cluster: flags only count when a cluster is founded.
func overruled(asked, inForce shard.Spec) []string {
	var flags []string
	if asked.Replicas != 0 && asked.Replicas != inForce.Replicas {
		flags = append(flags, fmt.Sprintf("--replicas %d", asked.Replicas))
	}
	if len(asked.Ranges) > 0 && !slices.Equal(asked.Ranges, inForce.Ranges) {
		for _, r := range asked.Ranges {
			flags = append(flags, fmt.Sprintf("--prefix %q", r.Start))
		}
	}
	return flags
}

// tellOverruled logs and returns the flags that are not in force. It logs only if
// they differ from told.
func (n *Node) tellOverruled(m *shard.Map, told string) string {
	flags := strings.Join(overruled(n.cfg.Asked, m.Spec), " ")
	if flags != told && flags != "" {
		n.log.Warn("flags differ from the settings of the cluster, which are in force: cachectl settings shows them, cachectl settings set changes them",
			"flags", flags, "replicas", m.Spec.Replicas, "served", served(m.Spec.Ranges))
	}
	return flags
}

// served formats the served ranges for logs.
func served(ranges []kv.Range) string {
	var out []string
	for _, r := range ranges {
		out = append(out, r.String())
	}
	return strings.Join(out, ", ")
}
