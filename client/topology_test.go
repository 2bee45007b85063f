package client

import (
	"errors"
	"slices"
	"testing"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

func shardMessage(id uint64, key, end string, replicas ...string) *pb.Shard {
	return &pb.Shard{Id: id, Key: []byte(key), RangeEnd: []byte(end), Epoch: 1, Replicas: replicas}
}

func names(members []member) (out []string) {
	for _, m := range members {
		out = append(out, m.name)
	}
	return out
}

// A client takes changes of map and members, passes older maps over, and asks a node
// for what it does not have.
func TestATopologyTakesChanges(t *testing.T) {
	var top *topology
	take := func(addr string, r *pb.WatchShardMapResponse) {
		t.Helper()
		next, err := top.with(addr, interest{all: true}, r)
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
	if got := names(top.members); !slices.Equal(got, []string{"n1", "n2"}) || len(top.shards.shards) != 2 {
		t.Errorf("members %v, %d shards", got, len(top.shards.shards))
	}
	take("a", &pb.WatchShardMapResponse{
		Map: &pb.ShardMap{ClusterId: "c", Version: 7, Shards: []*pb.Shard{shardMessage(4, "f", "m", "n2"), shardMessage(3, "\x00", "f", "n1")}}, FromVersion: 5, RemovedShards: []uint64{1, 77},
	})
	var ids []uint64
	for _, s := range top.shards.shards {
		ids = append(ids, s.id)
	}
	if !slices.Equal(ids, []uint64{3, 4, 2}) || top.shards.version != 7 {
		t.Errorf("shards %v of version %d", ids, top.shards.version)
	}
	take("b", &pb.WatchShardMapResponse{Map: &pb.ShardMap{ClusterId: "c", Version: 6}}) // it was asleep
	if len(top.shards.shards) != 3 || len(top.members) != 2 {
		t.Errorf("an older map is taken: %+v", top)
	}
	if r := top.request("a", interest{all: true}); r.GetKnownVersion() != 7 || r.GetClusterId() != "c" || r.GetKnownMembers() != 101 {
		t.Errorf("asks the same node for %v", r)
	}
	if r := top.request("b", interest{all: true}); r.GetKnownVersion() != 7 || r.GetKnownMembers() != 0 {
		t.Errorf("asks another node for %v", r)
	}
	for what, r := range map[string]*pb.WatchShardMapResponse{
		"another version's change": {Map: &pb.ShardMap{ClusterId: "c", Version: 9}, FromVersion: 8},
		"another cluster's change": {Map: &pb.ShardMap{ClusterId: "d", Version: 9}, FromVersion: 7},
		"another node's members":   {Members: []*pb.Member{{Name: "n9"}}},
	} {
		if r.GetMembers() == nil {
			if _, err := top.with("a", interest{all: true}, r); !errors.Is(err, errProtocol) {
				t.Errorf("%s: %v", what, err)
			}
		} else if _, err := top.with("b", interest{all: true}, r); !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
