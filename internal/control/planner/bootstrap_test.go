package planner

import (
	"fmt"
	"math/bits"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

func TestDecideStart(t *testing.T) {
	now := time.Unix(1000, 0)
	old := now.Add(-time.Hour)
	a, b, c, d := member("a", shard.Alive, old), member("b", shard.Alive, old), member("c", shard.Alive, old), member("d", shard.Alive, old)
	edit := func(m shard.Member, f func(*shard.Member)) shard.Member { f(&m); return m }
	for _, tc := range []struct {
		name    string
		self    shard.NodeID
		members []shard.Member
		wait    string // "": bootstraps
	}{
		{"three", "b", []shard.Member{c, a, b}, ""},
		{"two", "b", []shard.Member{a, b}, "2 of the 3 voters"},
		{"one is suspect", "b", []shard.Member{a, b, edit(c, func(m *shard.Member) { m.State = shard.Suspect })}, "2 of the 3"},
		{"one never votes", "b", []shard.Member{a, b, edit(c, func(m *shard.Member) { m.BootstrapExpect = 0 })}, "2 of the 3"},
		{"one came just now", "b", []shard.Member{a, b, edit(c, func(m *shard.Member) { m.Since = now })}, "waiting briefly"},
		{"one expects five", "b", []shard.Member{a, b, edit(c, func(m *shard.Member) { m.BootstrapExpect = 5 })}, "--bootstrap-expect is 3 here and 5 on c"},
		{"a cluster exists", "b", []shard.Member{a, b, edit(c, func(m *shard.Member) { m.ClusterID = "x" })}, "cluster x exists"},
		{"four, among the first", "c", []shard.Member{d, c, b, a}, ""},
		{"four, not among the first", "d", []shard.Member{d, c, b, a}, "other nodes bootstrap"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := (&Bootstrap{Self: NewVoterID(tc.self, "u-"+string(tc.self)), Expect: 3, Settle: time.Second, Members: tc.members}).Decide(now)
			if tc.wait != "" {
				if s.Servers != nil || !strings.Contains(s.Wait, tc.wait) {
					t.Errorf("%+v, want to wait: %s", s, tc.wait)
				}
				return
			}
			want := "[{a/u-a a:1 true} {b/u-b b:1 true} {c/u-c c:1 true}]"
			if got := fmt.Sprint(s.Servers); got != want {
				t.Errorf("bootstraps with %s, want %s (%s)", got, want, s.Wait)
			}
		})
	}
}

// Two halves of six candidates, each with the three that --bootstrap-expect
// requires, never both bootstrap.
func TestTwoHalvesDoNotBootstrapTwoClusters(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tc := range []struct {
		name   string
		format string
		join   []string
		either bool // one half of some cut may bootstrap
	}{
		{name: "a StatefulSet", format: "cache-%d", join: []string{"cache-headless:7401"}, either: true},
		{name: "a StatefulSet counted from 7", format: "cache-%d", join: []string{"cache-headless:7401"}},
		{name: "named in --join", format: "m%dx", join: []string{"m0x:1", "m1x.example:1", "m2x:1", "m3x:1", "m4x:1", "m5x:1"}},
		{name: "three of six named", format: "m%dx", join: []string{"m0x:1", "m1x:1", "m2x:1"}, either: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from := 0
			if strings.Contains(tc.name, "from 7") {
				from = 7
			}
			bootstraps := func(half int) bool {
				var members []shard.Member
				for i := range 6 {
					state := shard.Alive
					if half&(1<<i) == 0 {
						state = shard.Dead
					}
					members = append(members, member(shard.NodeID(fmt.Sprintf(tc.format, from+i)), state, now.Add(-time.Hour)))
				}
				return slices.ContainsFunc(members, func(m shard.Member) bool {
					return m.State == shard.Alive && (&Bootstrap{Self: NewVoterID(m.Name, m.UUID), Expect: 3, Join: tc.join, Settle: time.Second, Members: members}).Decide(now).Servers != nil
				})
			}
			if from == 0 && !bootstraps(1<<6-1) {
				t.Error("all six candidates together do not bootstrap")
			}
			some := false
			for half := range 1 << 6 {
				one, other := bootstraps(half), bootstraps((1<<6-1)&^half)
				if one && other {
					t.Fatalf("candidates %06b and the other candidates both bootstrap", half)
				}
				if n := bits.OnesCount(uint(half)); n == 3 {
					some = some || one
				}
			}
			if some != tc.either {
				t.Errorf("some half of three candidates bootstraps: %v, want %v", some, tc.either)
			}
		})
	}
}

func TestForeign(t *testing.T) {
	of := func(name shard.NodeID, cluster string) shard.Member {
		return shard.Member{Name: name, ClusterID: cluster, State: shard.Alive}
	}
	for _, tc := range []struct {
		name    string
		members []shard.Member
		want    string
	}{
		{"alone", nil, ""},
		{"among ours", []shard.Member{of("self", "x"), of("b", "x"), of("c", "")}, ""},
		{"one foreign node", []shard.Member{of("b", "x"), of("c", "y")}, ""},
		{"one against one", []shard.Member{of("b", "y")}, ""},
		{"this node is the foreign one", []shard.Member{of("self", "x"), of("b", "y"), of("c", "y")}, "y"},
	} {
		if got, _ := Foreign("x", "self", tc.members); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// Names are ordered by their number, and only the first ordinals found a cluster.
func TestOrdinals(t *testing.T) {
	names := []shard.NodeID{"node-10", "other", "node-2", "a-1", "node-1", "10", "9"}
	slices.SortFunc(names, compareNames)
	if want := []shard.NodeID{"9", "10", "a-1", "node-1", "node-2", "node-10", "other"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	of := func(names ...shard.NodeID) (out []shard.Member) {
		for _, n := range names {
			out = append(out, shard.Member{Name: n})
		}
		return out
	}
	for _, c := range []struct {
		members []shard.Member
		count   int
		want    bool
	}{
		{of("n-0", "n-1", "n-2"), 3, true},
		{of("n-1", "n-2", "n-3"), 3, true},
		{of("n-2", "n-3", "n-4"), 3, false},
		{of("n-0", "n-1", "n-3"), 3, false},
		{of("n-0", "n-1", "n-3"), 2, true},
	} {
		if got := firstOrdinals(c.members, c.count); got != c.want {
			t.Errorf("the first %d of %v: %v", c.count, c.members, got)
		}
	}
	if !numbered(of("n-0", "n-7")) || numbered(of("n-0", "m-1")) || numbered(of("n-0", "n-")) || numbered(of("n")) {
		t.Error("names with and without ordinals are not told apart")
	}
}

// A --join address names members by host and port. A loopback host names every
// node of a machine, and therefore none of them.
func TestMemberOfAJoinAddress(t *testing.T) {
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
func TestOnlyOnePartFoundsACluster(t *testing.T) {
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
		f := Bootstrap{Self: NewVoterID(c.members[0].Name, c.members[0].UUID), Expect: 3, Join: c.join, Members: c.members}
		if d := f.Decide(now); (d.Servers != nil) != c.founds {
			t.Errorf("%s: %+v", what, d)
		}
	}
	// A node without an identity or an address is no candidate, and a single founder
	// is named by the operator.
	for what, lacks := range map[string]func(m *shard.Member){
		"UUID": func(m *shard.Member) { m.UUID = "" }, "address": func(m *shard.Member) { m.RaftAddress = "" },
		"candidacy": func(m *shard.Member) { m.BootstrapExpect = 0 }, "life": func(m *shard.Member) { m.State = shard.Suspect },
	} {
		members := of("a", "b", "c")
		lacks(&members[2])
		if d := (&Bootstrap{Self: NewVoterID("a", "u-a"), Expect: 3, Members: members}).Decide(now); d.Servers != nil || !strings.HasPrefix(d.Wait, "2 of the 3") {
			t.Errorf("member without %s is a candidate: %+v", what, d)
		}
	}
	alone := of("n-7")
	alone[0].BootstrapExpect = 1
	if d := (&Bootstrap{Self: NewVoterID("n-7", "u-n-7"), Expect: 1, Join: []string{"n-1", "n-2"}, Members: alone}).Decide(now); d.Servers == nil {
		t.Errorf("a single founder does not bootstrap alone: %+v", d)
	}
}

// A node is in the wrong cluster when more live members belong to another one.
func TestDetectionOfTheWrongCluster(t *testing.T) {
	of := func(name shard.NodeID, cluster string, state shard.State) shard.Member {
		return shard.Member{Name: name, ClusterID: cluster, State: state}
	}
	for what, c := range map[string]struct {
		members []shard.Member
		theirs  string
		member  shard.NodeID
	}{
		"others without a cluster":            {[]shard.Member{of("b", "", shard.Alive), of("c", "", shard.Alive)}, "", ""},
		"dead ones":                           {[]shard.Member{of("b", "y", shard.Dead), of("c", "y", shard.Dead)}, "", ""},
		"suspects":                            {[]shard.Member{of("b", "y", shard.Suspect), of("c", "y", shard.Alive)}, "", ""},
		"as many":                             {[]shard.Member{of("b", "x", shard.Alive), of("c", "y", shard.Alive), of("d", "y", shard.Alive)}, "", ""},
		"more":                                {[]shard.Member{of("c", "y", shard.Alive), of("d", "y", shard.Alive)}, "y", "c"},
		"two others":                          {[]shard.Member{of("b", "z", shard.Alive), of("c", "y", shard.Alive), of("d", "y", shard.Alive)}, "y", "d"},
		"two others, one each":                {[]shard.Member{of("b", "z", shard.Alive), of("c", "y", shard.Alive)}, "", ""},
		"the node's own entry does not count": {[]shard.Member{of("self", "y", shard.Alive), of("c", "y", shard.Alive)}, "", ""},
	} {
		theirs, member := Foreign("x", "self", c.members)
		if theirs != c.theirs || (theirs != "" && c.theirs != "" && member == "") {
			t.Errorf("%s: %q by %s", what, theirs, member)
		}
		if c.member != "" && !slices.ContainsFunc(c.members, func(m shard.Member) bool { return m.Name == member && m.ClusterID == theirs }) {
			t.Errorf("%s: member %s does not belong to cluster %q", what, member, theirs)
		}
	}
	members := []shard.Member{of("a", "x", shard.Alive), of("b", "y", shard.Alive), of("c", "", shard.Alive)}
	for cluster, want := range map[string]int{"x": 2, "y": 2, "": 3} {
		if got := Ours(cluster, members); len(got) != want {
			t.Errorf("members counted for cluster %q: %v", cluster, got)
		}
	}
}

// The host of an address is the one that package net finds.
func TestHostOfAddress(t *testing.T) {
	for _, addr := range []string{"", "a", "a:1", ":1", "a:", "10.0.0.1:7402", "10.0.0.1", "::1", "[::1]", "[::1]:9", "fe80::1%eth0", "[fe80::1%eth0]:9", "a:b:1", "[a]b:1", "a]:1", "[a:1", "[]:1", "a[1]:2", "host.example:x"} {
		want, _, err := net.SplitHostPort(addr)
		if err != nil {
			want = addr
		}
		if got := hostOf(addr); got != want {
			t.Errorf("%q: host %q, want %q", addr, got, want)
		}
	}
}

// A cluster is founded with the live members, once the youngest of them has been alive
// for the settle time.
func TestFounders(t *testing.T) {
	now := time.Unix(1000, 0)
	old, fresh := member("a", shard.Alive, now.Add(-time.Hour)), member("b", shard.Alive, now.Add(-time.Second))
	gone := member("c", shard.Dead, now)
	if alive, again := Founders([]shard.Member{old, gone}, 2*time.Second, now); !again.IsZero() || len(alive) != 1 || alive[0].Name != "a" {
		t.Errorf("one live member: founders %v, retry after %v", alive, again)
	}
	for settle, want := range map[time.Duration]time.Time{time.Second: {}, 2 * time.Second: now.Add(time.Second)} {
		if _, again := Founders([]shard.Member{old, fresh}, settle, now); !again.Equal(want) {
			t.Errorf("settle time %v: retry after %v, want %v", settle, again, want)
		}
	}
}

// Voters have the leader from raft. Nodes that never vote have no leader.
func TestKnowsLeader(t *testing.T) {
	var members []shard.Member
	for i, n := range []shard.NodeID{"candidate", "dead", "never", "self", "suspect", "voter"} {
		members = append(members, member(n, shard.Alive, time.Unix(0, 0)))
		members[i].Voter = n != "candidate" && n != "never"
	}
	members[1].State, members[4].State, members[2].BootstrapExpect = shard.Dead, shard.Suspect, 0
	if got, want := KnowsLeader(members, "self"), []shard.NodeID{"suspect", "voter", "candidate"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The number of shards of the specification counts until an operator or the load has
// split or merged one.
func TestLacksShards(t *testing.T) {
	m := maptest.Pair(t, "a") // two shards of two
	if LacksShards(m) {
		t.Error("shards are reported missing, but the map has all")
	}
	if m.Spec.Shards = 3; !LacksShards(m) {
		t.Error("a missing shard is not reported")
	}
	if m.Shards[1].Home.Seat = 1; LacksShards(m) {
		t.Error("a split shard counts as missing")
	}
}
