package placement

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// serverID is a voter's identity in raft.
func serverID(name shard.NodeID, uuid string) raft.ServerID {
	return raft.ServerID(string(name) + "/" + uuid)
}

// nameOf returns the node that the identity is of.
func nameOf(id raft.ServerID) shard.NodeID {
	i := strings.LastIndexByte(string(id), '/')
	return shard.NodeID(id[:max(i, 0)])
}

// start is how a voter without a log begins.
type start struct {
	// servers is the configuration to bootstrap with; nil: not now.
	servers []raft.Server
	// why not, for people.
	wait string
	// again is when to look again though nothing changes; zero: no need.
	again time.Time
}

// founding is what a voter without a log decides on.
type founding struct {
	self   raft.ServerID
	expect int
	// join are the addresses that --join names.
	join    []string
	settle  time.Duration
	members []shard.Member
}

// decideStart decides whether a voter without a log bootstraps. All voters must
// decide alike: the first expect candidates by ordinal bootstrap, when they see each
// other. Once a member belongs to a cluster, no node bootstraps: the leader adds the
// missing voters.
//
// Two parts of a partitioned network must not bootstrap two clusters, though each
// may have expect candidates. At most one part has the first ordinals, and at most
// one has a majority of the nodes that --join names: see otherHalf.
func decideStart(f founding, now time.Time) start {
	var voters []shard.Member
	for _, m := range f.members {
		switch {
		case m.ClusterID != "":
			return start{wait: fmt.Sprintf("cluster %s exists (%s belongs to it); its raft leader will add this node when a voter is missing", m.ClusterID, m.Name)}
		case m.State != shard.Alive || m.BootstrapExpect == 0:
			continue
		case m.BootstrapExpect != f.expect:
			return start{wait: fmt.Sprintf("--bootstrap-expect is %d here and %d on %s: set the same number on all voters, and restart them", f.expect, m.BootstrapExpect, m.Name)}
		case m.UUID == "" || m.RaftAddress == "":
			continue
		}
		voters = append(voters, m)
	}
	if len(voters) < f.expect {
		return start{wait: fmt.Sprintf("%d of the %d voters that --bootstrap-expect names are here", len(voters), f.expect)}
	}
	slices.SortFunc(voters, func(a, b shard.Member) int { return compareNames(a.Name, b.Name) })
	if why := f.otherHalf(voters); why != "" {
		return start{wait: why}
	}
	var servers []raft.Server
	mine := false
	for _, v := range voters[:f.expect] {
		id := serverID(v.Name, v.UUID)
		servers = append(servers, raft.Server{ID: id, Address: raft.ServerAddress(v.RaftAddress)})
		mine = mine || id == f.self
	}
	for _, v := range voters {
		if at := v.Since.Add(f.settle); now.Before(at) {
			return start{wait: "the voters are here; a moment for others to come", again: at}
		}
	}
	if !mine {
		return start{wait: "others bootstrap the cluster: enough nodes come before this one by name"}
	}
	return start{servers: servers}
}

// otherHalf returns why another part of the network may bootstrap a cluster of its
// own; "" when it cannot, and when names and --join give nothing to judge by. With
// one founder the operator has said which node it is.
func (f *founding) otherHalf(voters []shard.Member) string {
	named, known := 0, 0
	for _, addr := range f.join {
		if slices.ContainsFunc(voters, func(m shard.Member) bool { return names(addr, &m) }) {
			named++
		}
		if slices.ContainsFunc(f.members, func(m shard.Member) bool { return names(addr, &m) }) {
			known++
		}
	}
	listed := len(f.join) >= f.expect
	switch {
	case f.expect == 1, listed && 2*named > len(f.join):
		return ""
	case numbered(voters):
		if firstOrdinals(voters, f.expect) {
			return ""
		}
		return fmt.Sprintf("the candidates here, %s to %s, are neither the first %d by number nor a majority of the nodes that --join names: another part of the network may found a cluster. Start the first %d nodes, or name all nodes in --join by name or IP",
			voters[0].Name, voters[len(voters)-1].Name, f.expect, f.expect)
	case listed && known > 0:
		return fmt.Sprintf("%d of the %d nodes that --join names are here; a majority is needed, because another part of the network may found a cluster: start more of them", named, len(f.join))
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

func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// clusterSpace makes cluster IDs names in a space of their own.
const clusterSpace = "6f1d3c4e-6a0e-5d52-9f3b-0a4a4de1c0b7"

// clusterIDOf returns the ID of the cluster that begins with these voters. It
// follows from their identities, so that each knows it from the start and can
// show it: from then on nobody else bootstraps.
func clusterIDOf(servers []raft.Server) string {
	var b strings.Builder
	for _, s := range servers {
		b.WriteString(string(s.ID) + "\n")
	}
	return uuid.NewSHA1(uuid.MustParse(clusterSpace), []byte(b.String())).String()
}

// toldCluster returns the cluster of a voter that has its log from others, before
// there is a map: what those who began it show, or else what they would.
func toldCluster(members []shard.Member, servers []raft.Server) string {
	for _, m := range members {
		if m.ClusterID != "" {
			return m.ClusterID
		}
	}
	return clusterIDOf(servers)
}

// foreign returns the cluster that most other members belong to, when it is
// not ours and outnumbers it. Then it is this node that joined the wrong one.
func foreign(ours string, self shard.NodeID, members []shard.Member) (theirs string, member shard.NodeID) {
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

// ours returns the members without those that belong to another cluster.
func oursOnly(cluster string, members []shard.Member) []shard.Member {
	return slices.DeleteFunc(slices.Clone(members), func(m shard.Member) bool {
		return cluster != "" && m.ClusterID != "" && m.ClusterID != cluster
	})
}
