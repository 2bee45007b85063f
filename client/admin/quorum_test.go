package admin_test

import (
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/client/admin"
)

// Two of three voters lost their disks and return under their names: gossip sees all three,
// but only one can vote.
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
	s.Members[0].Status = nil // does not answer: gossip decides
	if q := s.Quorum(); q.Spare() != 0 {
		t.Errorf("with a member that does not answer: %+v", q)
	}
}
