package placement

import (
	"slices"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// The time of a node that is away begins once, and ends when it is back.
func TestTheTimeThatANodeIsAway(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	a := &absence{self: "self"}
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
		away := a.look(nodes, c.members, nil, at(c.now))
		if away("dead") != c.dead || away("unseen") != c.unseen || away("here") != 0 || away("self") != 0 {
			t.Errorf("at %d: dead %v, unseen %v, here %v, self %v", c.now, away("dead"), away("unseen"), away("here"), away("self"))
		}
		if got := a.next(time.Minute, at(c.now)); !got.Equal(c.next) {
			t.Errorf("at %d: next %v, want %v", c.now, got, c.next)
		}
		if got := a.next(0, at(c.now)); !got.IsZero() {
			t.Errorf("at %d: next %v though no voter is ever lost", c.now, got)
		}
		f := voterFacts{self: "elsewhere", now: at(c.now), away: away, lostAfter: c.dead}
		if !f.lost("dead") || f.lost("here") {
			t.Errorf("at %d: a voter is lost after just the time that is allowed", c.now)
		}
		if f.lostAfter++; f.lost("dead") {
			t.Errorf("at %d: a voter is lost too early", c.now)
		}
	}
}

// A voter whose raft log does not follow is away, though gossip sees it. One of which no
// report has come yet is not: it may be well.
func TestAVoterWhoseLogDoesNotFollowIsAway(t *testing.T) {
	now := time.Unix(1000, 0)
	a := &absence{self: "self"}
	nodes := []shard.NodeID{"self", "follows", "lags", "unheard"}
	var members []shard.Member
	for _, n := range nodes {
		members = append(members, member(n, shard.Alive, now))
	}
	reports := (*Reports)(nil).Add(now, 100, []Report{{Node: "follows", RaftIndex: 99}, {Node: "lags", RaftIndex: 50}})
	a.look(nodes, members, reports, now)
	away := a.look(nodes, members, reports, now.Add(time.Minute))
	for n, want := range map[shard.NodeID]time.Duration{"self": 0, "follows": 0, "lags": time.Minute, "unheard": 0} {
		if got := away(n); got != want {
			t.Errorf("%s: away for %v, want %v", n, got, want)
		}
	}
}

// The last copy that is known to be loaded is not taken away. One of a node that has not
// reported yet, or is dead, is not known to be.
func TestTheLastLoadedCopyIsKnownByReports(t *testing.T) {
	now := time.Unix(1000, 0)
	copies := func(ready bool) []ShardReport { return []ShardReport{{Shard: 7, Ready: ready}} }
	for name, test := range map[string]struct {
		goes, stays Report // without a node: it has not reported
		dead        shard.NodeID
		want        bool
	}{
		"both have loaded":              {goes: Report{Node: "goes", Shards: copies(true)}, stays: Report{Node: "stays", Shards: copies(true)}},
		"the one that stays loads":      {goes: Report{Node: "goes", Shards: copies(true)}, stays: Report{Node: "stays", Shards: copies(false)}, want: true},
		"the one that stays is unheard": {goes: Report{Node: "goes", Shards: copies(true)}, stays: Report{Node: "other"}, want: true},
		"the one that stays is dead":    {goes: Report{Node: "goes", Shards: copies(true)}, stays: Report{Node: "stays", Shards: copies(true)}, dead: "stays", want: true},
		"the one that goes loads":       {goes: Report{Node: "goes", Shards: copies(false)}, stays: Report{Node: "stays", Shards: copies(false)}},
		"the one that goes is unheard":  {goes: Report{Node: "other"}, stays: Report{Node: "stays", Shards: copies(false)}},
		"the one that goes is dead":     {goes: Report{Node: "goes", Shards: copies(true)}, stays: Report{Node: "stays", Shards: copies(false)}, dead: "goes"},
		"neither has reported":          {goes: Report{Node: "other"}, stays: Report{Node: "another"}},
	} {
		states := stateOf([]shard.Member{member("goes", shard.Alive, now), member("stays", shard.Alive, now)})
		if m, ok := states[test.dead]; ok {
			m.State = shard.Dead
			states[test.dead] = m
		}
		reports := (*Reports)(nil).Add(now, 0, []Report{test.goes, test.stays})
		s := &shard.Shard{ID: 7, Replicas: []shard.NodeID{"goes", "stays"}}
		if got := takesLastWarm(s, []shard.NodeID{"goes"}, states, reports); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What a leader remembers of moves: a fill ends in time though its newcomer never reports
// that it has loaded; a shard of a split rests; a node that left was not buried.
func TestWhatALeaderRemembers(t *testing.T) {
	now := time.Unix(1000, 0)
	r := Rules{PromoteDelay: 5 * time.Second, FillTimeout: time.Minute}
	loads := History{reports: (*Reports)(nil).Add(now, 0, []Report{{Node: "b", Shards: []ShardReport{{Shard: 1}}}})}
	f := fill{donor: "a", newcomers: []shard.NodeID{"b"}, since: now}
	for after, want := range map[time.Duration]time.Duration{
		time.Second: r.PromoteDelay, r.PromoteDelay: r.PromoteDelay + coldCheck, r.FillTimeout - 1: r.FillTimeout - 1 + coldCheck, r.FillTimeout: r.PromoteDelay,
	} {
		if got := r.filledBy(1, f, loads, now.Add(after)).Sub(now); got != want {
			t.Errorf("after %v: filled after %v, want %v", after, got, want)
		}
	}

	m := testMap(t, "a", "b")
	before, split := m.Shards[0].ID, m.Shards[1].ID
	seen := History{nextID: split, changed: map[shard.ID]time.Time{}}.Notice(m, nil, now)
	if _, rests := seen.changed[before]; rests || !seen.changed[split].Equal(now) {
		t.Errorf("shard %d was there, shard %d is new: %v", before, split, seen.changed)
	}

	for state, want := range map[shard.State]bool{shard.Left: false, shard.Dead: true, shard.Alive: false} {
		members := []shard.Member{member("a", shard.Alive, now), member("b", state, now)}
		next := History{}.Record(m, Decision{Moves: []shard.Move{{Shard: before, Replicas: []shard.NodeID{"a"}}}}, members, now)
		if _, buried := next.buried[before]; buried != want {
			t.Errorf("a shard is taken from a node that is %v: buried %v", state, buried)
		}
	}

	members := []shard.Member{member("a", shard.Alive, now), member("b", shard.Dead, now), member("c", shard.Alive, now)}
	if mine, others := Owed(m, members, "a"), Owed(m, members, "c"); mine != 0 || others != len(m.Shards) {
		t.Errorf("%d shards are to come to the node that has all, and %d to another one", mine, others)
	}
}

// A vote has an heir if a node that may vote lives, has no vote, and stays.
func TestWhoCanTakeAVote(t *testing.T) {
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
		if got := hasVoteHeir("self", []shard.Member{member("voter", shard.Alive, time.Time{}), m}, []shard.NodeID{"self", "voter"}, of); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		if got := hasVoteHeir("self", []shard.Member{m}, []shard.NodeID{"self", "voter"}, nil); got != (test.want || m.Name == "drained") {
			t.Errorf("%s, without a map: %v", name, got)
		}
	}
}

// A node that an operator has drained, in the map and not by gossip, gives its
// shards away at once, as one that drains by itself.
func TestANodeDrainedInTheMapGivesItsShardsAway(t *testing.T) {
	r := Rules{Settle: 2 * time.Second, DeadGrace: 5 * time.Second, MoveInterval: 30 * time.Second, PromoteDelay: 5 * time.Second}
	now := time.Unix(1000, 0)
	m := testMap(t, "a", "b")
	members := []shard.Member{member("a", shard.Alive, now.Add(-time.Hour)), member("b", shard.Alive, now.Add(-time.Hour)), member("c", shard.Alive, now.Add(-time.Hour))}
	rested := History{changed: map[shard.ID]time.Time{1: now.Add(-time.Second), 2: now.Add(-time.Second)}}
	drained := *m
	drained.Drained = []shard.NodeID{"a"}
	byGossip := slices.Clone(members)
	byGossip[0].Draining = true
	want := r.Decide(m, byGossip, rested, now)
	got := r.Decide(&drained, members, rested, now)
	if len(want.Moves) == 0 || !slices.EqualFunc(got.Moves, want.Moves, func(a, b shard.Move) bool {
		return a.Shard == b.Shard && slices.Equal(a.Replicas, b.Replicas)
	}) {
		t.Errorf("got %v, want %v", got.Moves, want.Moves)
	}
}
