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
