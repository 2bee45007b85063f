package admin_test

import (
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/client/admin"
)

// Two of three voters lost their disks and are back under their names: gossip sees all
// three, and one can vote.
func TestVotersThatLostTheirDisksDoNotCount(t *testing.T) {
	var s admin.ClusterStatus
	for _, name := range []string{"n1", "n2", "n3"} {
		s.Members = append(s.Members, admin.MemberStatus{
			Member: admin.Member{Name: name, State: admin.MemberAlive}, Status: &admin.NodeStatus{},
		})
	}
	s.Members[2].Status.Voters, s.Members[2].Status.RaftIndex = []string{"n1", "n2", "n3"}, 9
	if q := s.Quorum(); q.Spare() != -1 || !slices.Equal(q.Alive, []string{"n3"}) || len(q.Voters) != 3 {
		t.Errorf("%+v", q)
	}
	s.Members[0].Status = nil // it gives no answer: gossip decides
	if q := s.Quorum(); q.Spare() != 0 {
		t.Errorf("with one that gives no answer: %+v", q)
	}
}
