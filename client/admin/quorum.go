package admin

import "slices"

// Quorum is the state of the nodes that vote on the shard map.
type Quorum struct {
	// Voters has the voters, ordered by name; empty: no node that answered knows them.
	Voters []string
	// Alive has the voters that gossip sees and that can vote: a voter that lost its
	// disk rejoins under its name without a vote.
	Alive []string
	// Leader is the leader of the voters; "": none. Without a leader every shard is served
	// from its current replicas, and none can be moved, not even from a node that failed.
	Leader string
}

// Needed is how many voters must be alive for a majority.
func (q Quorum) Needed() int { return len(q.Voters)/2 + 1 }

// Spare is how many more voters may fail; negative: as many are missing for a majority.
func (q Quorum) Spare() int { return len(q.Alive) - q.Needed() }

// Quorum combines the nodes' reports of the voters. The node with the newest raft log
// has the current list.
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
