package shardmap

import (
	"fmt"
	"slices"
	"testing"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
)

func TestCandidates(t *testing.T) {
	top := &Topology{
		Shards: []Shard{
			{ID: 1, Keys: between("", "m"), Replicas: []string{"a", "b"}},
			{ID: 2, Keys: between("m", ""), Replicas: []string{"b", "c"}},
		},
		Members: []Member{
			{Name: "a", Address: "a:1", State: pb.MemberState_MEMBER_STATE_ALIVE},
			{Name: "b", Address: "b:1", State: pb.MemberState_MEMBER_STATE_ALIVE},
			{Name: "c", Address: "c:1", State: pb.MemberState_MEMBER_STATE_ALIVE},
			{Name: "d", Address: "d:1", State: pb.MemberState_MEMBER_STATE_ALIVE},
			{Name: "e", Address: "e:1", State: pb.MemberState_MEMBER_STATE_DEAD},
			{Name: "f", Address: "f:1", State: pb.MemberState_MEMBER_STATE_ALIVE, Draining: true},
		},
	}
	first := map[string]int{}
	for i := range 300 {
		seed := fmt.Sprint(i)
		got := top.Candidates(key("a"), Preference{Seed: seed})
		first[got[0]]++
		if len(got) != 5 || got[4] != "f:1" || slices.Contains(got, "e:1") {
			t.Fatalf("candidates: %v", got)
		}
		if all := top.Candidates(keyrange.Range{}, Preference{Seed: seed}); all[0] != "b:1" {
			t.Fatalf("the node with most shards comes first: %v", all)
		}
	}
	if len(first) != 2 || first["a:1"] < 100 || first["b:1"] < 100 {
		t.Errorf("clients do not spread: %v", first)
	}
	var none *Topology
	if got := none.Candidates(keyrange.Range{}, Preference{Seed: "x"}); got != nil {
		t.Errorf("no map: %v", got)
	}
}

// Nodes of the client's zone come first if they serve and have keys of the range; the
// others follow in the same order as without a zone.
func TestCandidatesOfAZone(t *testing.T) {
	alive := func(name, zone string) Member {
		return Member{Name: name, Address: name, Zone: zone, State: pb.MemberState_MEMBER_STATE_ALIVE}
	}
	top := &Topology{
		Shards: []Shard{
			{ID: 1, Keys: between("", "m"), Replicas: []string{"a", "b", "c"}},
			{ID: 2, Keys: between("m", ""), Replicas: []string{"b", "c"}},
		},
		Members: []Member{alive("a", "z1"), alive("b", "z2"), alive("c", "z3"), alive("d", "z1"), {Name: "e", Address: "e", Zone: "z1", State: pb.MemberState_MEMBER_STATE_SUSPECT}},
	}
	for i := range 50 {
		seed := fmt.Sprint(i)
		for _, want := range []struct {
			r     keyrange.Range
			zone  string
			first string // "": not checked
			last  string
		}{
			{key("a"), "z1", "a", "e"},
			{keyrange.Range{}, "z1", "a", "e"}, // although b and c have more shards
			{key("n"), "z3", "c", "e"},
			{key("n"), "z1", "", "e"}, // a and d have none of its keys
			{key("n"), "", "", "e"},
		} {
			got := top.Candidates(want.r, Preference{want.zone, seed})
			if len(got) != 5 || want.first != "" && got[0] != want.first || got[4] != want.last {
				t.Fatalf("%v in zone %q: %v", want.r, want.zone, got)
			}
			if without := top.Candidates(want.r, Preference{Seed: seed}); want.first == "" && !slices.Equal(got, without) {
				t.Fatalf("%v in zone %q: %v, without a zone %v", want.r, want.zone, got, without)
			}
		}
	}
}

// A change of a member replaces its former data. A member that left is not asked, and a
// suspect member is asked last and is no preferred node.
func TestChangedMembersAreReplaced(t *testing.T) {
	member := func(name string, state pb.MemberState) *pb.Member {
		return &pb.Member{Name: name, ClientAddress: name + ":1", State: state}
	}
	top := new(Topology)
	take := func(r *pb.WatchShardMapResponse) {
		t.Helper()
		next, err := top.With("a", Interest{All: true}, r)
		if err != nil {
			t.Fatal(err)
		}
		top = next
	}
	take(&pb.WatchShardMapResponse{Members: []*pb.Member{member("n1", pb.MemberState_MEMBER_STATE_ALIVE), member("n2", pb.MemberState_MEMBER_STATE_ALIVE), member("n3", pb.MemberState_MEMBER_STATE_ALIVE)}, AllMembers: true})
	take(&pb.WatchShardMapResponse{Members: []*pb.Member{member("n3", pb.MemberState_MEMBER_STATE_LEFT), member("n1", pb.MemberState_MEMBER_STATE_SUSPECT)}})
	if got := names(top.Members); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("members %v", got)
	}
	for _, seed := range []string{"1", "2", "3", "4"} {
		if got := top.Candidates(keyrange.Range{}, Preference{Seed: seed}); !slices.Equal(got, []string{"n2:1", "n1:1"}) {
			t.Errorf("candidates %v", got)
		}
	}
	take(&pb.WatchShardMapResponse{RemovedMembers: []string{"n2"}})
	if home := top.Home(keyrange.Range{}, Preference{Seed: "1"}); home != "" || len(top.Members) != 2 {
		t.Errorf("the preferred node is %q", home)
	}
}
