package mapfollow

import (
	"maps"
	"slices"
	"testing"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

// noted are watches that record the calls.
type noted struct{ regrouped []string }

func (*noted) Ranges() []keyrange.Range  { return nil }
func (*noted) Open()                     {}
func (*noted) Mapped(*shardmap.Topology) {}
func (n *noted) Regroup(cluster string)  { n.regrouped = append(n.regrouped, cluster) }

// A map of another cluster moves the watches; a newer map of the same cluster moves none.
func TestAMapOfAnotherClusterMovesWatches(t *testing.T) {
	var watches noted
	f := New(Config{Pool: nodes.New(nodes.Config{}), Watches: &watches})
	for _, c := range []struct {
		cluster string
		version uint64
	}{{"old", 1}, {"old", 2}, {"new", 1}} {
		r := &pb.WatchShardMapResponse{Map: &pb.ShardMap{ClusterId: c.cluster, Version: c.version}, AllShards: true}
		if err := f.learn("a:1", shardmap.Interest{}, r); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(watches.regrouped, []string{"old", "new"}) {
		t.Errorf("watches are moved to %v", watches.regrouped)
	}
}

// Doubt ends the stream of the map only for the map that was compared with the node.
func TestOnlyTheComparedMapEndsItsStream(t *testing.T) {
	f := New(Config{})
	top := &shardmap.Topology{ClusterID: "new"}
	f.Topology.Store(top)
	f.Doubt(top) // no stream
	doubted := 0
	f.Following(func() { doubted++ })
	f.Doubt(new(shardmap.Topology))
	if f.Doubt(top); doubted != 1 {
		t.Errorf("doubted %d times, want once", doubted)
	}
}

// Connections may stay open to the endpoints and to members that serve.
func TestMembersAndEndpointsAreKnown(t *testing.T) {
	f := New(Config{Endpoints: []string{"a:1"}})
	got := slices.Sorted(maps.Keys(f.known(&shardmap.Topology{Members: []shardmap.Member{
		{Address: "live:1", State: pb.MemberState_MEMBER_STATE_ALIVE}, {Address: "dead:1", State: pb.MemberState_MEMBER_STATE_DEAD}, {Address: "left:1", State: pb.MemberState_MEMBER_STATE_LEFT},
	}})))
	if !slices.Equal(got, []string{"a:1", "live:1"}) {
		t.Errorf("known: %v", got)
	}
}
