package tier

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
)

func pods(i int) source.Resource {
	return source.Resource{Version: "v1", Name: fmt.Sprintf("pods%d", i), Encoding: object.Protobuf}
}

// All nodes compute the same order. The death of a node moves only its resources, and each node owns its share of
// the resources.
func TestTheDeathOfANodeMovesOnlyItsResources(t *testing.T) {
	nodes := []shard.NodeID{"a", "b", "c"}
	owned := map[shard.NodeID]int{}
	moved := 0
	for i := range 300 {
		r := pods(i)
		order := rank(nodes, r)
		if again := rank([]shard.NodeID{"c", "a", "b"}, r); !slices.Equal(again, order) {
			t.Fatalf("orders %v and %v for the same nodes", order, again)
		}
		owned[order[0]]++
		left := slices.DeleteFunc(slices.Clone(order), func(n shard.NodeID) bool { return n == "b" })
		if got := rank([]shard.NodeID{"a", "c"}, r); !slices.Equal(got, left) {
			t.Errorf("order without b: %v, want %v", got, left)
		}
		r.Encoding = object.JSON
		if rank(nodes, r)[0] != order[0] {
			moved++
		}
	}
	for _, n := range nodes {
		if owned[n] < 60 {
			t.Errorf("%s owns %d of 300 resources", n, owned[n])
		}
	}
	if moved == 0 {
		t.Error("both encodings of every resource have the same owner, want a spread")
	}
}

func TestNodesThatMayOwnResources(t *testing.T) {
	here := func(name shard.NodeID, change func(*shard.Member)) shard.Member {
		m := shard.Member{Name: name, PeerAddress: "127.0.0.1:1", ClusterID: "ours", State: shard.Alive}
		if change != nil {
			change(&m)
		}
		return m
	}
	members := []shard.Member{
		here("alive", nil),
		here("suspect", func(m *shard.Member) { m.State = shard.Suspect }),
		here("dead", func(m *shard.Member) { m.State = shard.Dead }),
		here("left", func(m *shard.Member) { m.State = shard.Left }),
		here("draining", func(m *shard.Member) { m.Draining = true }),
		here("other", func(m *shard.Member) { m.ClusterID = "theirs" }),
		here("new", func(m *shard.Member) { m.ClusterID = "" }),
		here("closed", func(m *shard.Member) { m.PeerAddress = "" }),
	}
	if got, want := live(members, "ours"), []shard.NodeID{"alive", "suspect"}; !slices.Equal(got, want) {
		t.Errorf("live nodes %v, want %v", got, want)
	}
	if got := othersCluster(members[2:], "other"); got != "ours" {
		t.Errorf("the cluster of the other nodes is %q, want ours", got)
	}
	if got := othersCluster(members[:1], "alive"); got != "" {
		t.Errorf("a node without others reports the cluster %q, want none", got)
	}
	if got := othersCluster(members[2:4], "x"); got != "" {
		t.Errorf("the cluster of dead or left nodes is adopted: %q", got)
	}
}

// A node prefers the nodes before it in the order, then an apiserver, then the nodes after it. A draining node
// uses an apiserver last.
func TestCandidatesInTheOrderOfTheNodes(t *testing.T) {
	nodes, r := []shard.NodeID{"a", "b", "c"}, pods(1)
	order := rank(nodes, r)
	direct := replica.Candidate{Name: Apiserver, Direct: true}
	peer := func(node shard.NodeID, direct bool) (replica.Candidate, bool) {
		if !direct {
			t.Errorf("%s is a candidate without the requirement that it follows an apiserver directly", node)
		}
		return replica.Candidate{Name: string(node)}, true
	}
	names := func(self shard.NodeID) (out []string) {
		for _, c := range candidates(nodes, self, r, direct, peer) {
			out = append(out, c.Name)
		}
		return out
	}
	first, second, third := string(order[0]), string(order[1]), string(order[2])
	for self, want := range map[shard.NodeID][]string{
		order[0]: {Apiserver, second, third},
		order[1]: {first, Apiserver, third},
		order[2]: {first, second, Apiserver},
		"drains": {first, second, third, Apiserver},
	} {
		if got := names(self); !slices.Equal(got, want) {
			t.Errorf("candidates of %s in the order %v: %v, want %v", self, order, got, want)
		}
	}
	gone := func(shard.NodeID, bool) (replica.Candidate, bool) { return replica.Candidate{}, false }
	if got := candidates(nodes, order[2], r, direct, gone); len(got) != 1 || !got[0].Direct {
		t.Errorf("candidates of a node without others: %v, want only an apiserver", got)
	}
}
