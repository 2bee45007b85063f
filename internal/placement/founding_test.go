package placement

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Which members a --join address names. A loopback host names every node of a
// machine, and so none of them.
func TestWhomAJoinAddressNames(t *testing.T) {
	m := shard.Member{Name: "node-1", GossipAddress: "10.0.0.1:7402"}
	local := shard.Member{Name: "node-2", GossipAddress: "127.0.0.1:7402"}
	for _, c := range []struct {
		addr string
		m    *shard.Member
		want bool
	}{
		{"node-1", &m, true},
		{"node-1:7402", &m, true},
		{"node-1.nodes.ns.svc:7402", &m, true},
		{"node-10:7402", &m, false},
		{"nodes.node-1:7402", &m, false},
		{"10.0.0.1:7402", &m, true},
		{"10.0.0.1:9", &m, true},
		{"10.0.0.1", &m, true},
		{"10.0.0.2:7402", &m, false},
		{"127.0.0.1:7402", &local, true},
		{"127.0.0.1:9", &local, false},
		{"localhost:9", &shard.Member{Name: "n", GossipAddress: "localhost:7402"}, false},
		{"[::1]:9", &shard.Member{Name: "n", GossipAddress: "[::1]:7402"}, false},
	} {
		if got := names(c.addr, c.m); got != c.want {
			t.Errorf("%s names %s: %v", c.addr, c.m.Name, got)
		}
	}
}

// A part of the network founds a cluster only if no other part can: it has a majority
// of the nodes that --join names, or the first ordinals.
func TestWhichPartFoundsACluster(t *testing.T) {
	now := time.Unix(1000, 0)
	of := func(names ...shard.NodeID) (out []shard.Member) {
		for _, n := range names {
			out = append(out, member(n, shard.Alive, now.Add(-time.Hour)))
		}
		return out
	}
	abc := of("a", "b", "c")
	for what, c := range map[string]struct {
		members []shard.Member
		join    []string
		founds  bool
	}{
		"the first ordinals":                   {of("n-0", "n-1", "n-2"), nil, true},
		"the others":                           {of("n-3", "n-4", "n-5"), nil, false},
		"the others, and a majority of --join": {of("n-3", "n-4", "n-5"), []string{"n-2", "n-3", "n-4", "n-5"}, true},
		"the others, and half of --join":       {of("n-3", "n-4", "n-5"), []string{"n-0", "n-1", "n-2", "n-3", "n-4", "n-5"}, false},
		"fewer named than are expected":        {of("n-3", "n-4", "n-5"), []string{"n-3", "n-4"}, false},
		"names without numbers":                {abc, nil, true},
		"a majority of --join":                 {abc, []string{"a", "b", "c", "d", "e"}, true},
		"half of --join":                       {abc, []string{"a", "b", "c", "d", "e", "f"}, false},
		"--join names others":                  {abc, []string{"x", "y", "z"}, true},
		"one name is known":                    {append(of("a", "b", "c"), shard.Member{Name: "x", State: shard.Dead}), []string{"x", "y", "z"}, false},
		"too few are named":                    {abc, []string{"a", "x"}, true},
	} {
		f := founding{self: serverID(c.members[0].Name, c.members[0].UUID), expect: 3, join: c.join, members: c.members}
		if d := decideStart(f, now); (d.servers != nil) != c.founds {
			t.Errorf("%s: %+v", what, d)
		}
	}
	// One without an identity or an address is no candidate, and one founder is named
	// by the operator.
	for what, lacks := range map[string]func(m *shard.Member){
		"UUID": func(m *shard.Member) { m.UUID = "" }, "address": func(m *shard.Member) { m.RaftAddress = "" },
		"candidacy": func(m *shard.Member) { m.BootstrapExpect = 0 }, "life": func(m *shard.Member) { m.State = shard.Suspect },
	} {
		members := of("a", "b", "c")
		lacks(&members[2])
		if d := decideStart(founding{self: serverID("a", "u-a"), expect: 3, members: members}, now); d.servers != nil || !strings.HasPrefix(d.wait, "2 of the 3") {
			t.Errorf("without %s: %+v", what, d)
		}
	}
	alone := of("n-7")
	alone[0].BootstrapExpect = 1
	if d := decideStart(founding{self: serverID("n-7", "u-n-7"), expect: 1, join: []string{"n-1", "n-2"}, members: alone}, now); d.servers == nil {
		t.Errorf("a single founder: %+v", d)
	}
}

// A node is in the wrong cluster when more live members belong to another one.
func TestWhenANodeIsInTheWrongCluster(t *testing.T) {
	of := func(name shard.NodeID, cluster string, state shard.State) shard.Member {
		return shard.Member{Name: name, ClusterID: cluster, State: state}
	}
	for what, c := range map[string]struct {
		members []shard.Member
		theirs  string
		member  shard.NodeID
	}{
		"others without a cluster": {[]shard.Member{of("b", "", shard.Alive), of("c", "", shard.Alive)}, "", ""},
		"dead ones":                {[]shard.Member{of("b", "y", shard.Dead), of("c", "y", shard.Dead)}, "", ""},
		"suspects":                 {[]shard.Member{of("b", "y", shard.Suspect), of("c", "y", shard.Alive)}, "", ""},
		"as many":                  {[]shard.Member{of("b", "x", shard.Alive), of("c", "y", shard.Alive), of("d", "y", shard.Alive)}, "", ""},
		"more":                     {[]shard.Member{of("c", "y", shard.Alive), of("d", "y", shard.Alive)}, "y", "c"},
		"two others":               {[]shard.Member{of("b", "z", shard.Alive), of("c", "y", shard.Alive), of("d", "y", shard.Alive)}, "y", "d"},
		"two others, one each":     {[]shard.Member{of("b", "z", shard.Alive), of("c", "y", shard.Alive)}, "", ""},
		"what we say of ourselves": {[]shard.Member{of("self", "y", shard.Alive), of("c", "y", shard.Alive)}, "", ""},
	} {
		theirs, member := foreign("x", "self", c.members)
		if theirs != c.theirs || (theirs != "" && c.theirs != "" && member == "") {
			t.Errorf("%s: %q by %s", what, theirs, member)
		}
		if c.member != "" && !slices.ContainsFunc(c.members, func(m shard.Member) bool { return m.Name == member && m.ClusterID == theirs }) {
			t.Errorf("%s: %s is none of %q", what, member, theirs)
		}
	}
	members := []shard.Member{of("a", "x", shard.Alive), of("b", "y", shard.Alive), of("c", "", shard.Alive)}
	for cluster, want := range map[string]int{"x": 2, "y": 2, "": 3} {
		if got := oursOnly(cluster, members); len(got) != want {
			t.Errorf("members of %q: %v", cluster, got)
		}
	}
	servers := []raft.Server{{ID: "a"}, {ID: "b"}}
	if got := toldCluster(members, servers); got != "x" {
		t.Errorf("the voters show %q", got)
	}
	if got := toldCluster(members[2:], servers); got != clusterIDOf(servers) || got == clusterIDOf(servers[:1]) {
		t.Errorf("the voters would show %q", got)
	}
}
