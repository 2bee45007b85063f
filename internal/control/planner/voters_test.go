package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

func TestDecideVoter(t *testing.T) {
	server := func(name shard.NodeID) Server {
		return Server{ID: NewVoterID(name, "u-"+string(name)), Address: string(name) + ":1", Votes: true}
	}
	full := []Server{server("a"), server("b"), server("c")}
	now := time.Unix(1000, 0)
	a, b, c, d := member("a", shard.Alive, now), member("b", shard.Alive, now), member("c", shard.Alive, now), member("d", shard.Alive, now)
	edit := func(m shard.Member, f func(*shard.Member)) shard.Member { f(&m); return m }
	newDisk := func(m *shard.Member) { m.UUID = "new" }
	dead := func(m *shard.Member) { m.State = shard.Dead }
	never := func(m *shard.Member) { m.BootstrapExpect = 0 }
	e := member("e", shard.Alive, now)
	learner := func(s Server) Server { s.Votes = false; return s }
	learning := append(slices.Clone(full), learner(server("d")))
	four := append(slices.Clone(full), server("d"))
	zoned := func(m shard.Member, z string) shard.Member { m.Zone = z; return m }
	left := func(m *shard.Member) { m.State, m.Draining = shard.Left, true }
	draining := func(m *shard.Member) { m.Draining = true }
	rested := func(m *shard.Member) { m.Since = now.Add(-time.Hour) }
	moved := []Server{server("a"), server("d"), server("e"), learner(server("b"))}
	back := []shard.Member{edit(a, rested), edit(b, rested), edit(c, rested), edit(d, rested), edit(e, rested)}
	for _, tc := range []struct {
		name                string
		servers             []Server
		members             []shard.Member
		lost, drained, slow shard.NodeID
		noReports           bool
		want                string
	}{
		{name: "as it should be", servers: full, members: []shard.Member{a, b, c}},
		{name: "one is dead", servers: full, members: []shard.Member{a, b, edit(c, dead)}},
		{name: "one is not seen", servers: full, members: []shard.Member{a, b}},
		{name: "a fourth", servers: full, members: []shard.Member{a, b, c, d}, noReports: true},
		{name: "one is missing", servers: full[:2], members: []shard.Member{a, b, d}, want: "learn d/u-d d:1"},
		{name: "one is missing, and no reports", servers: full[:2], members: []shard.Member{a, b, d}, noReports: true, want: "add d/u-d d:1"},
		{name: "the missing one never votes", servers: full[:2], members: []shard.Member{a, b, edit(d, never)}},
		{name: "back on an empty disk", servers: full, members: []shard.Member{a, b, edit(c, newDisk)}, want: "remove c/u-c"},
		{name: "and then", servers: full[:2], members: []shard.Member{a, b, edit(c, newDisk)}, want: "learn c/new c:1"},
		{name: "the leader at another address", servers: full, members: []shard.Member{edit(a, func(m *shard.Member) { m.RaftAddress = "x:9" }), b, c}, want: "add a/u-a x:9"},
		{name: "another at another address", servers: full, members: []shard.Member{a, b, edit(c, func(m *shard.Member) { m.RaftAddress = "x:9" })}},
		{name: "another node with our name", servers: full, members: []shard.Member{edit(a, newDisk), b, c}},

		{name: "one is lost, and no node to replace it", servers: full, members: []shard.Member{a, b, edit(c, dead)}, lost: "c"},
		{name: "but one that never votes", servers: full, members: []shard.Member{a, b, edit(c, dead), edit(d, never)}, lost: "c"},
		{name: "but one that shuts down", servers: full, members: []shard.Member{a, b, edit(c, dead), edit(d, draining)}, lost: "c", noReports: true},
		{name: "one is lost, another learns", servers: full, members: []shard.Member{a, b, edit(c, dead), d}, lost: "c", want: "learn d/u-d d:1"},
		{name: "the zone counts", servers: full, members: []shard.Member{zoned(a, "x"), zoned(b, "y"), zoned(edit(c, dead), "z"), zoned(d, "x"), zoned(e, "z")}, lost: "c", want: "learn e/u-e e:1"},
		{name: "it has learned", servers: learning, members: []shard.Member{a, b, d}, lost: "c", want: "remove c/u-c"},
		{name: "it has not learned all", servers: append(slices.Clone(full), learner(server("e"))), members: []shard.Member{a, b, e}, lost: "c", want: "await e/u-e e:1"},
		{name: "it never learns", servers: append(slices.Clone(full), learner(server("e"))), members: []shard.Member{a, b, e}, lost: "c", slow: "e"},
		{name: "no node reports whether it has", servers: learning, members: []shard.Member{a, b, d}, lost: "c", noReports: true},
		{name: "and votes", servers: append(slices.Clone(full[:2]), learner(server("d"))), members: []shard.Member{a, b, d, e}, want: "add d/u-d d:1"},
		{name: "its raft port is dead", servers: learning, members: []shard.Member{a, b, c, d}, lost: "c", want: "demote c/u-c"},
		{name: "one is drained", servers: learning, members: []shard.Member{a, b, c, d}, drained: "c", want: "add d/u-d d:1"},
		{name: "another node votes in its place", servers: four, members: []shard.Member{a, b, c, d}, drained: "c", want: "demote c/u-c"},
		{name: "the leader is drained", servers: four, members: []shard.Member{a, b, c, d}, drained: "a", want: "step_down a/u-a"},
		{name: "undrained during its replacement: four voters", servers: four, members: []shard.Member{a, b, c, d}, want: "demote d/u-d"},
		{name: "one that voted before is back", servers: full, members: []shard.Member{a, b, c, d}, want: "learn d/u-d d:1"},
		{name: "a learner is gone", servers: learning, members: []shard.Member{a, b, c}, lost: "d", want: "remove d/u-d"},
		{name: "a learner lives, and its log does not follow", servers: learning, members: []shard.Member{a, b, c, d}, lost: "d"},

		{name: "one shuts down", servers: full, members: []shard.Member{a, b, edit(c, draining), d}, want: "learn d/u-d d:1"},
		{name: "one shuts down, another can vote", servers: learning, members: []shard.Member{a, b, edit(c, draining), d}, want: "add d/u-d d:1"},
		{name: "one shuts down of three", servers: full, members: []shard.Member{a, b, edit(c, draining)}},
		{name: "all shut down", servers: full, members: []shard.Member{edit(a, draining), edit(b, draining), edit(c, draining), edit(d, draining)}, noReports: true},
		{name: "one has left with its vote", servers: learning, members: []shard.Member{a, b, edit(c, left), d}, want: "remove c/u-c"},
		{name: "the first ordinals are back", servers: moved, members: back, want: "await b/u-b b:1"},
		{name: "for a moment", servers: moved, members: []shard.Member{a, b, c, d, e}},
		{name: "while another voter is away", servers: moved, members: []shard.Member{back[0], back[1], back[2], back[3], edit(e, dead)}},
		{name: "while the log of another voter does not follow", servers: moved, members: back, slow: "e"},
		{name: "zones before ordinals", servers: full, members: []shard.Member{zoned(back[0], "x"), zoned(back[1], "x"), zoned(back[2], "y"), zoned(back[3], "z")}, want: "learn d/u-d d:1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			reports := (*Reports)(nil).Add(now, 100, []Report{{Node: "d", RaftIndex: 99}, {Node: "e", RaftIndex: 50}})
			if tc.noReports {
				reports = nil
			}
			if ch, ok := (Voters{
				Servers: tc.servers, Self: "a/u-a", Expect: 3, Members: tc.members, Reports: reports, Now: now, LostAfter: 10 * time.Minute,
				Away: func(n shard.NodeID) time.Duration {
					switch n {
					case tc.lost:
						return 10 * time.Minute
					case tc.slow:
						return learnPatience
					}
					return 0
				},
				Map: &shard.Map{Drained: []shard.NodeID{tc.drained}},
			}).Next(); ok {
				got = strings.TrimSpace(fmt.Sprintf("%s %s %s", ch.Do, ch.ID, ch.Address))
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// The absence of a node begins once, and ends when it is back.
func TestAbsenceOfANode(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	a := &Absence{Self: "self"}
	nodes := []shard.NodeID{"self", "dead", "unseen", "here"}
	here := member("here", shard.Alive, at(-100))
	dead := member("dead", shard.Dead, at(-30))
	for _, c := range []struct {
		now          int
		members      []shard.Member
		dead, unseen time.Duration
		next         time.Time
	}{
		{0, []shard.Member{here, dead}, 30 * time.Second, 1, at(30)},
		{10, []shard.Member{here, dead}, 40 * time.Second, 10 * time.Second, at(30)},
		{30, []shard.Member{here, dead}, time.Minute, 30 * time.Second, at(60)},
		{40, []shard.Member{here, dead, member("unseen", shard.Alive, at(35))}, 70 * time.Second, 0, time.Time{}},
		{50, []shard.Member{here, dead}, 80 * time.Second, 1, at(110)}, // away anew
		{55, []shard.Member{here, dead}, 85 * time.Second, 5 * time.Second, at(110)},
	} {
		away := a.Observe(serversOf(nodes), c.members, nil, at(c.now))
		if away("dead") != c.dead || away("unseen") != c.unseen || away("here") != 0 || away("self") != 0 {
			t.Errorf("at %d: dead %v, unseen %v, here %v, self %v", c.now, away("dead"), away("unseen"), away("here"), away("self"))
		}
		if got := a.Next(time.Minute, at(c.now)); !got.Equal(c.next) {
			t.Errorf("at %d: next %v, want %v", c.now, got, c.next)
		}
		if got := a.Next(0, at(c.now)); !got.IsZero() {
			t.Errorf("at %d: next %v, but no voter is ever declared lost", c.now, got)
		}
		f := Voters{Self: "elsewhere", Now: at(c.now), Away: away, LostAfter: c.dead}
		if !f.lost("dead") || f.lost("here") {
			t.Errorf("at %d: a voter counts as lost at the bound, want after it", c.now)
		}
		if f.LostAfter++; f.lost("dead") {
			t.Errorf("at %d: a voter counts as lost too early", c.now)
		}
	}
}

// A voter whose raft log does not follow is away, although gossip sees it. A voter
// without a report so far is not, because it may be healthy.
func TestAVoterWhoseLogDoesNotFollowIsAway(t *testing.T) {
	now := time.Unix(1000, 0)
	a := &Absence{Self: "self"}
	nodes := []shard.NodeID{"self", "follows", "lags", "unheard"}
	var members []shard.Member
	for _, n := range nodes {
		members = append(members, member(n, shard.Alive, now))
	}
	reports := (*Reports)(nil).Add(now, 100, []Report{{Node: "follows", RaftIndex: 99}, {Node: "lags", RaftIndex: 50}})
	a.Observe(serversOf(nodes), members, reports, now)
	away := a.Observe(serversOf(nodes), members, reports, now.Add(time.Minute))
	for n, want := range map[shard.NodeID]time.Duration{"self": 0, "follows": 0, "lags": time.Minute, "unheard": 0} {
		if got := away(n); got != want {
			t.Errorf("%s: away for %v, want %v", n, got, want)
		}
	}
}

// A learner that cannot report, because the leader does not reach it, is treated like one whose
// log does not follow: another node learns.
func TestALearnerThatReportsNothingIsNotAwaitedForEver(t *testing.T) {
	start := time.Unix(1000, 0)
	var members []shard.Member
	for _, n := range []shard.NodeID{"a", "b", "d", "e"} {
		members = append(members, member(n, shard.Alive, start))
	}
	server := func(n shard.NodeID, votes bool) Server {
		return Server{ID: NewVoterID(n, "u-"+string(n)), Address: string(n) + ":1", Votes: votes}
	}
	servers := []Server{server("a", true), server("b", true), server("d", false)}
	absent := &Absence{Self: "a"}
	for _, tc := range []struct {
		after int
		want  string
	}{{0, "await d/u-d"}, {31, "learn e/u-e"}} {
		now := start.Add(time.Duration(tc.after) * time.Second)
		reports := (*Reports)(nil).Add(now, 100, []Report{{Node: "b", RaftIndex: 100}, {Node: "e", RaftIndex: 100}})
		c, _ := Voters{
			Servers: servers, Self: "a/u-a", Expect: 3, Members: members, Reports: reports, Now: now,
			Away: absent.Observe(servers, members, reports, now), LostAfter: 10 * time.Minute,
		}.Next()
		if got := fmt.Sprintf("%s %s", c.Do, c.ID); got != tc.want {
			t.Errorf("after %d s: %q, want %q", tc.after, got, tc.want)
		}
	}
}

// A vote can be handed over if a live node that stays may vote and has no vote.
func TestRecipientsOfAVote(t *testing.T) {
	heir := member("heir", shard.Alive, time.Time{})
	for name, test := range map[string]struct {
		change func(*shard.Member)
		want   bool
	}{
		"it can":            {func(*shard.Member) {}, true},
		"it is the node":    {func(m *shard.Member) { m.Name = "self" }, false},
		"it votes already":  {func(m *shard.Member) { m.Name = "voter" }, false},
		"it is dead":        {func(m *shard.Member) { m.State = shard.Dead }, false},
		"it is suspect":     {func(m *shard.Member) { m.State = shard.Suspect }, false},
		"it may never vote": {func(m *shard.Member) { m.BootstrapExpect = 0 }, false},
		"it shuts down":     {func(m *shard.Member) { m.Draining = true }, false},
		"it is drained":     {func(m *shard.Member) { m.Name = "drained" }, false},
	} {
		m := heir
		test.change(&m)
		of := &shard.Map{Drained: []shard.NodeID{"drained"}}
		if got := HasVoteHeir("self", []shard.Member{member("voter", shard.Alive, time.Time{}), m}, []shard.NodeID{"self", "voter"}, of); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		if got := HasVoteHeir("self", []shard.Member{m}, []shard.NodeID{"self", "voter"}, nil); got != (test.want || m.Name == "drained") {
			t.Errorf("%s, without a map: %v", name, got)
		}
	}
}

func serversOf(nodes []shard.NodeID) (out []Server) {
	for _, n := range nodes {
		out = append(out, Server{ID: NewVoterID(n, "u"), Votes: true})
	}
	return out
}
