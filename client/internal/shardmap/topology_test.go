package shardmap

import (
	"errors"
	"slices"
	"testing"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

func shardMessage(id uint64, key, end string, replicas ...string) *pb.Shard {
	return &pb.Shard{Id: id, Key: []byte(key), RangeEnd: []byte(end), Epoch: 1, Replicas: replicas}
}

func names(members []Member) (out []string) {
	for _, m := range members {
		out = append(out, m.Name)
	}
	return out
}

// A client applies changes of the map and the members, ignores older maps, and requests the
// missing changes from a node.
func TestATopologyTakesChanges(t *testing.T) {
	var top *Topology
	take := func(addr string, r *pb.WatchShardMapResponse) {
		t.Helper()
		next, err := top.With(addr, Interest{All: true}, r)
		if err != nil {
			t.Fatal(err)
		}
		top = next
	}
	take("a", &pb.WatchShardMapResponse{
		Map:     &pb.ShardMap{ClusterId: "c", Version: 5, Shards: []*pb.Shard{shardMessage(1, "\x00", "m", "n1"), shardMessage(2, "m", "\x00", "n2")}},
		Members: []*pb.Member{{Name: "n1"}, {Name: "n3"}}, AllMembers: true, MembersVersion: 100,
	})
	take("a", &pb.WatchShardMapResponse{Members: []*pb.Member{{Name: "n2"}}, RemovedMembers: []string{"n3"}, MembersVersion: 101})
	if got := names(top.Members); !slices.Equal(got, []string{"n1", "n2"}) || len(top.Shards) != 2 {
		t.Errorf("members %v, %d shards", got, len(top.Shards))
	}
	take("a", &pb.WatchShardMapResponse{
		Map: &pb.ShardMap{ClusterId: "c", Version: 7, Shards: []*pb.Shard{shardMessage(4, "f", "m", "n2"), shardMessage(3, "\x00", "f", "n1")}}, FromVersion: 5, RemovedShards: []uint64{1, 77},
	})
	var ids []uint64
	for _, s := range top.Shards {
		ids = append(ids, s.ID)
	}
	if !slices.Equal(ids, []uint64{3, 4, 2}) || top.Version != 7 {
		t.Errorf("shards %v of version %d", ids, top.Version)
	}
	take("b", &pb.WatchShardMapResponse{Map: &pb.ShardMap{ClusterId: "c", Version: 6}}) // from a node that was suspended
	if len(top.Shards) != 3 || len(top.Members) != 2 {
		t.Errorf("an older map is accepted: %+v", top)
	}
	if r := top.Request("a", Interest{All: true}); r.GetKnownVersion() != 7 || r.GetClusterId() != "c" || r.GetKnownMembers() != 101 {
		t.Errorf("asks the same node for %v", r)
	}
	if r := top.Request("b", Interest{All: true}); r.GetKnownVersion() != 7 || r.GetKnownMembers() != 0 {
		t.Errorf("asks another node for %v", r)
	}
	for what, r := range map[string]*pb.WatchShardMapResponse{
		"another version's change": {Map: &pb.ShardMap{ClusterId: "c", Version: 9}, FromVersion: 8},
		"another cluster's change": {Map: &pb.ShardMap{ClusterId: "d", Version: 9}, FromVersion: 7},
		"another node's members":   {Members: []*pb.Member{{Name: "n9"}}},
	} {
		if r.GetMembers() == nil {
			if _, err := top.With("a", Interest{All: true}, r); !errors.Is(err, outcome.ErrProtocol) {
				t.Errorf("%s: %v", what, err)
			}
		} else if _, err := top.With("b", Interest{All: true}, r); !errors.Is(err, outcome.ErrProtocol) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Versions of the shard map are compared only within a cluster: the map of a rebuilt
// cluster begins at a low version and is accepted.
func TestTheMapOfARebuiltClusterIsTaken(t *testing.T) {
	top := &Topology{ClusterID: "old", Version: 9}
	next, err := top.With("a", Interest{All: true}, &pb.WatchShardMapResponse{Map: &pb.ShardMap{ClusterId: "new", Version: 2}, AllShards: true})
	if err != nil || next.ClusterID != "new" || next.Version != 2 || !next.all {
		t.Errorf("%+v, %v", next, err)
	}
}

// A member has all fields that its node reports.
func TestMembersAreLearned(t *testing.T) {
	r := &pb.WatchShardMapResponse{AllMembers: true, Members: []*pb.Member{{
		Name: "n1", ClientAddress: "n1:1", Zone: "z1", State: pb.MemberState_MEMBER_STATE_SUSPECT, Draining: true,
	}}}
	top, err := new(Topology).With("a", Interest{All: true}, r)
	want := Member{Name: "n1", Address: "n1:1", Zone: "z1", State: pb.MemberState_MEMBER_STATE_SUSPECT, Draining: true}
	if err != nil || !slices.Equal(top.Members, []Member{want}) {
		t.Errorf("%+v, %v", top, err)
	}
}
