package mapchange

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Five nodes with default settings: the first three vote, and two of these are lost.
func TestARecoveryIsRefusedWhileTheVotersMayElect(t *testing.T) {
	voters := []shard.NodeID{"a", "b", "c"}
	lost := func(edit func(ws []Witness)) []Witness {
		var ws []Witness
		for _, n := range []shard.NodeID{"a", "b", "c", "d", "e"} {
			w := Witness{
				Member: shard.Member{Name: n, State: shard.Dead, Voter: n < "d", BootstrapExpect: 3, Level: shard.Level},
			}
			if n >= "c" {
				w.Member.State, w.Answered, w.MapVersion = shard.Alive, true, 7
			}
			if n == "c" {
				w.Voters, w.RaftIndex = voters, 9
			}
			ws = append(ws, w)
		}
		if edit != nil {
			edit(ws)
		}
		return ws
	}
	back := func(w *Witness) {
		w.Member.State, w.Answered, w.MapVersion, w.Voters, w.RaftIndex = shard.Alive, true, 7, voters, 9
	}
	for name, c := range map[string]struct {
		ws   []Witness
		want Recovery
		why  string
	}{
		"two of three are lost": {ws: lost(nil), want: Recovery{Node: "c", Voters: voters, Reachable: []shard.NodeID{"c"}}},
		"all are lost": {
			ws:   lost(func(ws []Witness) { ws[2] = Witness{Member: ws[2].Member}; ws[2].Member.State = shard.Dead }),
			want: Recovery{Node: "d", Voters: voters},
		},
		"and gossip has forgotten them": {ws: lost(nil)[3:], want: Recovery{Node: "d"}},
		"two are back with empty disks": {
			ws: lost(func(ws []Witness) {
				for i := range ws[:2] {
					ws[i].Member.State, ws[i].Member.Voter, ws[i].Answered, ws[i].MapVersion = shard.Alive, false, true, 7
				}
			}),
			want: Recovery{Node: "a", Voters: voters, Reachable: []shard.NodeID{"c"}},
		},
		"one has the newest map": {
			ws:   lost(func(ws []Witness) { ws[4].MapVersion = 8 }),
			want: Recovery{Node: "e", MapVersion: 8, Voters: voters, Reachable: []shard.NodeID{"c"}},
		},
		"one drains": {
			ws:   lost(func(ws []Witness) { ws[2].Member.Draining = true }),
			want: Recovery{Node: "d", Voters: voters, Reachable: []shard.NodeID{"c"}},
		},
		"a leader is known": {ws: lost(func(ws []Witness) { ws[2].Leader = "b" }), why: "c reports that b leads"},
		"one is back":       {ws: lost(func(ws []Witness) { back(&ws[0]) }), why: "2 of 3 voters are reachable (a, c)"},
		"one is suspected, and gives no answer": {
			ws:  lost(func(ws []Witness) { ws[1].Member.State = shard.Suspect }),
			why: "2 of 3 voters are reachable (b, c)",
		},
		"no map":                      {ws: lost(func(ws []Witness) { ws[2].MapVersion, ws[3].MapVersion, ws[4].MapVersion = 0, 0, 0 }), why: "no reachable node has a shard map"},
		"older software":              {ws: lost(func(ws []Witness) { ws[4].Member.Level = shard.LevelWatches }), why: "e run older software"},
		"older software that is lost": {ws: lost(func(ws []Witness) { ws[0].Member.Level = shard.LevelWatches }), want: Recovery{Node: "c", Voters: voters, Reachable: []shard.NodeID{"c"}}},
		"the newest map never votes": {
			ws:  lost(func(ws []Witness) { ws[4].MapVersion, ws[4].Member.BootstrapExpect = 8, 0 }),
			why: "no node that may vote has the newest shard map, version 8",
		},
	} {
		c.want.Announced = 9
		if c.want.MapVersion == 0 {
			c.want.MapVersion = 7
		}
		got, err := NewRecovery(c.ws, 9)
		if c.why == "" {
			if err != nil || !reflect.DeepEqual(*got, c.want) {
				t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
			}
			continue
		}
		if e := new(RefusedError); !errors.As(err, &e) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", name, err, c.why)
		}
	}
}

// An order for a different plan than the current one is refused.
func TestARecoveryNeedsItsCurrentPlan(t *testing.T) {
	plan := &Recovery{Node: "c", MapVersion: 7}
	for order, ok := range map[RecoverOrder]bool{
		{Node: "c", MapVersion: 7}: true,
		{Node: "d", MapVersion: 7}: false,
		{Node: "c", MapVersion: 6}: false,
		{}:                         false,
	} {
		if err := plan.Confirms(order); (err == nil) != ok {
			t.Errorf("%+v: %v", order, err)
		}
	}
}
