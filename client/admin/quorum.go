package admin

import "slices"

// Quorum is how the nodes that vote on the shard map are doing.
type Quorum struct {
	// Voters are the voters, ordered by name; empty: no node that answered knows.
	Voters []string
	// Alive are those of them that gossip sees and that can vote: a voter that lost its
	// disk is back under its name without a vote.
	Alive []string
	// Leader is the voter that leads; "": none. Without a leader every shard is
	// served as it is, and none can be moved, also from a node that dies.
	Leader string
}

// Needed is how many voters must be alive for a majority.
func (q Quorum) Needed() int { return len(q.Voters)/2 + 1 }

// Spare is how many more voters may be lost; below 0 so many are missing.
func (q Quorum) Spare() int { return len(q.Alive) - q.Needed() }

// Quorum puts together what the nodes report of the voters. The node with the newest
// raft log knows who they are.
func (s ClusterStatus) Quorum() Quorum {
	var q Quorum
	alive := map[string]bool{}
	for _, m := range s.Members {
		alive[m.Member.Name] = (m.Member.State == MemberAlive || m.Member.State == MemberSuspect) &&
			(m.Status == nil || slices.Contains(m.Status.Voters, m.Member.Name))
	}
	newest := uint64(0)
	for _, m := range s.Members {
		st := m.Status
		if st == nil || len(st.Voters) == 0 {
			continue
		}
		if len(q.Voters) == 0 || st.RaftIndex > newest {
			q.Voters, newest = slices.Sorted(slices.Values(st.Voters)), st.RaftIndex
		}
		if alive[st.RaftLeader] {
			q.Leader = st.RaftLeader
		}
	}
	for _, v := range q.Voters {
		if alive[v] {
			q.Alive = append(q.Alive, v)
		}
	}
	return q
}
