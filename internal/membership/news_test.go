package membership

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Every node learns of a new map from one node that has it: most within some rounds of
// gossip, the others by a full exchange. A node that joins later learns of it at once.
func TestMapNewsReachEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t, net: NewNetwork(1)}
		var nodes []*running
		for i := range 8 {
			nodes = append(nodes, b.start(i+1, nil))
		}
		defer func() { stopAll(nodes) }()
		nodes[0].SetClusterID(uuidA)
		time.Sleep(5 * time.Second)
		for version, from := range []int{1, 3, 3, 7} {
			want := MapNews{Node: nodes[from].Self().Name, Version: uint64(version + 7)}
			nodes[from].SetMapVersion(want.Version)
			heard := func() bool {
				return !slices.ContainsFunc(nodes, func(n *running) bool { got, _ := n.MapNews(); return got != want })
			}
			for deadline := time.Now().Add(10 * time.Minute); !heard(); time.Sleep(time.Second) {
				if time.Now().After(deadline) {
					t.Fatalf("some node has not received %+v within ten minutes", want)
				}
			}
		}
		nodes[2].SetMapVersion(9) // older: no news
		nodes[4].SetVoter(true)
		late := b.start(9, nil)
		nodes = append(nodes, late)
		time.Sleep(time.Minute)
		if got, _ := late.MapNews(); got.Version != 10 {
			t.Errorf("a node that joins has %+v", got)
		}
		if members := late.Members(); !slices.ContainsFunc(members, func(m shard.Member) bool { return m.Name == "n05" && m.Voter }) {
			t.Errorf("a node that joins does not see who votes: %+v", members)
		}
	})
}

func FuzzDecodeNews(f *testing.F) {
	f.Add(encodeNews(uuidA, MapNews{Node: "n1", Version: 7}))
	f.Add([]byte{newsVersion, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		cluster, n, ok := decodeNews(b)
		if !ok {
			return
		}
		again, same, ok := decodeNews(encodeNews(cluster, n))
		if len(encodeNews(cluster, n)) <= maxNews && (!ok || again != cluster || same != n) {
			t.Errorf("%q, %+v became %q, %+v", cluster, n, again, same)
		}
	})
}
