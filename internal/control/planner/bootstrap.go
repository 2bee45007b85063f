package planner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Bootstrap is the state from which a voter without a log decides whether it begins a
// raft group.
type Bootstrap struct {
	Self   VoterID
	Expect int
	// Join are the addresses of --join.
	Join    []string
	Settle  time.Duration
	Members []shard.Member
}

// BootstrapDecision is the decision of a voter without a log.
type BootstrapDecision struct {
	// Servers is the configuration to bootstrap with; nil: not now.
	Servers []Server
	// Wait is the reason not to bootstrap, for logs and errors.
	Wait string
	// Again is when to decide again even if nothing changes; zero: no need.
	Again time.Time
}

// Decide decides whether a voter without a log bootstraps. All voters must decide
// alike: the first expect candidates by ordinal bootstrap, when they see each other.
// Once a member belongs to a cluster, no node bootstraps: the leader adds the
// missing voters.
//
// Two parts of a partitioned network must not bootstrap two clusters, though each
// may have expect candidates. At most one part has the first ordinals, and at most
// one has a majority of the nodes in --join: see otherHalf.
func (f *Bootstrap) Decide(now time.Time) BootstrapDecision {
	var voters []shard.Member
	for _, m := range f.Members {
		switch {
		case m.ClusterID != "":
			return BootstrapDecision{Wait: fmt.Sprintf("cluster %s exists (%s belongs to it); its raft leader will add this node when a voter is missing", m.ClusterID, m.Name)}
		case m.State != shard.Alive || m.BootstrapExpect == 0:
			continue
		case m.BootstrapExpect != f.Expect:
			return BootstrapDecision{Wait: fmt.Sprintf("--bootstrap-expect is %d here and %d on %s: set the same number on all voters, and restart them", f.Expect, m.BootstrapExpect, m.Name)}
		case m.UUID == "" || m.RaftAddress == "":
			continue
		}
		voters = append(voters, m)
	}
	if len(voters) < f.Expect {
		return BootstrapDecision{Wait: fmt.Sprintf("%d of the %d voters that --bootstrap-expect names are present", len(voters), f.Expect)}
	}
	slices.SortFunc(voters, func(a, b shard.Member) int { return compareNames(a.Name, b.Name) })
	if why := f.otherHalf(voters); why != "" {
		return BootstrapDecision{Wait: why}
	}
	var servers []Server
	mine := false
	for _, v := range voters[:f.Expect] {
		id := NewVoterID(v.Name, v.UUID)
		servers = append(servers, Server{ID: id, Address: v.RaftAddress, Votes: true})
		mine = mine || id == f.Self
	}
	for _, v := range voters {
		if at := v.Since.Add(f.Settle); now.Before(at) {
			return BootstrapDecision{Wait: "all voters are present; waiting briefly for more nodes", Again: at}
		}
	}
	if !mine {
		return BootstrapDecision{Wait: "other nodes bootstrap the cluster: enough nodes precede this one by name"}
	}
	return BootstrapDecision{Servers: servers}
}

// otherHalf returns the reason why another part of the network may bootstrap a
// second cluster; "" when it cannot, and when names and --join do not allow a
// conclusion. With one founder, the operator has chosen the node.
func (f *Bootstrap) otherHalf(voters []shard.Member) string {
	named, known := 0, 0
	for _, addr := range f.Join {
		if slices.ContainsFunc(voters, func(m shard.Member) bool { return names(addr, &m) }) {
			named++
		}
		if slices.ContainsFunc(f.Members, func(m shard.Member) bool { return names(addr, &m) }) {
			known++
		}
	}
	listed := len(f.Join) >= f.Expect
	switch {
	case f.Expect == 1, listed && 2*named > len(f.Join):
		return ""
	case numbered(voters):
		if firstOrdinals(voters, f.Expect) {
			return ""
		}
		return fmt.Sprintf("the candidates here, %s to %s, are neither the first %d by number nor a majority of the nodes that --join names: another part of the network may found a cluster. Start the first %d nodes, or name all nodes in --join by name or IP",
			voters[0].Name, voters[len(voters)-1].Name, f.Expect, f.Expect)
	case listed && known > 0:
		return fmt.Sprintf("%d of the %d nodes that --join names are present; a majority is needed, because another part of the network may found a cluster: start more of them", named, len(f.Join))
	}
	return ""
}

// names reports whether a join address names the member: by the node's name, or by
// the host of one of its addresses.
func names(addr string, m *shard.Member) bool {
	host := hostOf(addr)
	label, _, _ := strings.Cut(host, ".")
	return host == string(m.Name) || label == string(m.Name) ||
		addr == m.GossipAddress || (host == hostOf(m.GossipAddress) && !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host))
}

// hostOf returns the host of an address host:port, or the address if it has no port.
func hostOf(addr string) string {
	i := strings.LastIndexByte(addr, ':')
	if i < 0 {
		return addr
	}
	host := addr[:i]
	if inner, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(inner, "]") {
		host = strings.TrimSuffix(inner, "]")
	} else if strings.Contains(host, ":") { // IPv6 without a port
		return addr
	}
	if strings.ContainsAny(host, "[]") {
		return addr
	}
	return host
}

// Foreign returns the cluster of most other members if it is not ours and
// outnumbers it. In this case this node has joined the wrong cluster.
func Foreign(ours string, self shard.NodeID, members []shard.Member) (theirs string, member shard.NodeID) {
	count := map[string]int{ours: 1}
	for _, m := range members {
		if m.Name == self || m.ClusterID == "" || m.State != shard.Alive {
			continue
		}
		count[m.ClusterID]++
		if m.ClusterID != ours && count[m.ClusterID] > count[theirs] {
			theirs, member = m.ClusterID, m.Name
		}
	}
	if theirs != "" && count[theirs] > count[ours] {
		return theirs, member
	}
	return "", ""
}

// Ours returns the members without those that belong to another cluster.
func Ours(cluster string, members []shard.Member) []shard.Member {
	return slices.DeleteFunc(slices.Clone(members), func(m shard.Member) bool {
		return cluster != "" && m.ClusterID != "" && m.ClusterID != cluster
	})
}

// Founders returns the members that a cluster is founded with: all live members,
// once each has been there for settle. Until then it returns when to call it again.
func Founders(members []shard.Member, settle time.Duration, now time.Time) (alive []shard.Member, again time.Time) {
	for _, m := range members {
		if m.State != shard.Alive {
			continue
		}
		alive = append(alive, m)
		if at := m.Since.Add(settle); now.Before(at) && at.After(again) {
			again = at
		}
	}
	return alive, again
}

// KnowsLeader returns the nodes that may know the leader, beginning with the
// voters that gossip announces.
func KnowsLeader(members []shard.Member, self shard.NodeID) []shard.NodeID {
	var voters, others []shard.NodeID // ordered by name, like the members
	for _, m := range members {
		switch {
		case m.Name == self || m.State != shard.Alive && m.State != shard.Suspect:
		case m.Voter:
			voters = append(voters, m.Name)
		case m.BootstrapExpect > 0:
			others = append(others, m.Name)
		}
	}
	return append(voters, others...)
}
