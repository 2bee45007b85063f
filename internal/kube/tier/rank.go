package tier

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// rank returns the nodes in the order in which they own a resource. If a node is removed,
// the order of the others stays the same.
func rank(nodes []shard.NodeID, r source.Resource) []shard.NodeID {
	score := func(node shard.NodeID) uint64 {
		d := xxhash.New()
		_, _ = d.WriteString(string(node)) // never fails
		_, _ = d.WriteString("\x00" + r.Prefix() + "\x00" + r.Encoding.MediaType())
		return d.Sum64()
	}
	out := slices.Clone(nodes)
	slices.SortFunc(out, func(a, b shard.NodeID) int {
		return cmp.Or(cmp.Compare(score(b), score(a)), cmp.Compare(a, b))
	})
	return out
}

// live returns the nodes that may own resources: the live members of the cluster that are
// not draining.
func live(members []shard.Member, cluster string) (out []shard.NodeID) {
	for i := range members {
		m := &members[i]
		alive := m.State == shard.Alive || m.State == shard.Suspect
		if alive && !m.Draining && m.PeerAddress != "" && m.ClusterID == cluster {
			out = append(out, m.Name)
		}
	}
	return out
}
