package planner

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Balance says when the load of shards changes the map. The zero Balance changes
// nothing.
type Balance struct {
	// Split lets a shard be cut in two that has taken one of these for Patience; 0:
	// never by that.
	Split        bool
	SplitBytes   int64   // of keys and values in memory, on one node
	SplitEvents  float64 // per second, from etcd
	SplitWatches int     // of clients, at all nodes; a cut must part them
	// MaxShards is how many shards splits make at most.
	MaxShards int
	// Merge lets two neighbours become one when both together have taken less than
	// a mergeShare of each bound for MergePatience, as long as there are more
	// shards than the specification asks for.
	Merge bool
	// A shard has a replica for every ReplicaWatches watches, at most
	// MaxExtraReplicas more than the specification asks for; 0: no more than that.
	ReplicaWatches   int
	MaxExtraReplicas int
	// Patience and MergePatience are how long a load must last, and MinAge how old
	// both shards of a merge must be: what was split by hand shall not be merged at
	// once.
	Patience, MergePatience, MinAge time.Duration
}

const (
	// mergeShare is far below the half that a split leaves, and after a merge it
	// is far to the next split.
	mergeShare = 0.25
	// mostChanges is how many splits, and merges, one look begins.
	mostChanges = 4
	// uncuttable is how long a shard is left alone that cannot be cut: it has too
	// few keys.
	uncuttable = 10 * time.Minute
)

// DefaultBalance returns what suits nodes with some GiB of memory.
func DefaultBalance() Balance {
	return Balance{
		Split: true, SplitBytes: 512 << 20, SplitEvents: 5000, SplitWatches: 100_000, MaxShards: 4096, Merge: true,
		ReplicaWatches: 25_000, MaxExtraReplicas: 2,
		Patience: time.Minute, MergePatience: 5 * time.Minute, MinAge: 10 * time.Minute,
	}
}

// Validate names every mistake.
func (b *Balance) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("placement: "+format, args...))
		}
	}
	check(b.SplitBytes >= 0 && b.SplitEvents >= 0 && b.SplitWatches >= 0, "bounds of splits must not be negative")
	check(b.MaxShards >= 0, "the greatest number of shards (%d) must not be negative", b.MaxShards)
	check(b.ReplicaWatches >= 0 && b.MaxExtraReplicas >= 0, "watches for each replica and extra replicas must not be negative")
	check(b.Patience >= 0 && b.MergePatience >= 0 && b.MinAge >= 0, "patience and age must not be negative")
	return errors.Join(errs...)
}

// Trend is what a leader remembers of the load. The zero Trend is that of a new
// leader. A value: Decide returns a new one.
type Trend struct {
	seen  map[shard.ID]time.Time // since when the shard is there
	hot   map[shard.ID]time.Time // since when it is to be split
	idle  map[shard.ID]time.Time // since when it is to be merged with the one behind it
	crowd map[shard.ID]want      // since when it is to have so many replicas
	uncut map[shard.ID]time.Time // when it was found that it cannot be cut
}

type want struct {
	replicas int
	since    time.Time
}

// Action is what the load asks for.
type Action struct {
	// Splits are the shards to cut in two.
	Splits []Cut
	// Homes begin merges, change numbers of replicas, and say what came of cuts.
	Homes []shard.ShardHome
}

// Cut is a shard to cut in two; with Watches, to part so many watches.
type Cut struct {
	Shard   shard.ID
	Watches int
}

// Uncuttable returns the trend after it was found that the shard cannot be cut.
func (t Trend) Uncuttable(id shard.ID, now time.Time) Trend {
	t.uncut = maps.Clone(t.uncut)
	if t.uncut == nil {
		t.uncut = make(map[shard.ID]time.Time)
	}
	t.uncut[id] = now
	return t
}

// judgeCuts returns the homes of shards of which it is known now whether the cut that
// was to part their watches did. A client that watches all of a shard watches all of
// each part, so that a cut only makes more watches: parts that have most of the
// watches each are cut for them again when there are twice as many. What was found
// stands in the map, so that the next leader does not begin anew.
func (t Trend) judgeCuts(m *shard.Map, loads map[shard.ID]Load, patience time.Duration, now time.Time) (homes []shard.ShardHome) {
	for i := 0; i < len(m.Shards); {
		parting := m.Shards[i].Home.Parting
		run := 1 // the parts of one cut, or of several that were alike
		for i+run < len(m.Shards) && m.Shards[i+run].Home.Parting == parting {
			run++
		}
		parts := m.Shards[i : i+run]
		i += run
		if parting == 0 {
			continue
		}
		sum, known := 0, true
		for _, s := range parts {
			l, ok := loads[s.ID]
			known = known && ok && now.Sub(t.seenSince(s.ID, now)) >= patience
			sum += l.Watches
		}
		if !known {
			continue
		}
		for _, s := range parts {
			home := s.Home
			home.Pins, home.Parting, home.Whole = slices.Clone(home.Pins), 0, 0
			if 4*sum >= 3*parting*run {
				home.Whole = loads[s.ID].Watches
			}
			homes = append(homes, shard.ShardHome{Shard: s.ID, Home: home})
		}
	}
	return homes
}

// partsWatches reports whether a cut of the shard may part its watches, as far as is
// known.
func partsWatches(s *shard.Shard, watches int) bool {
	return s.Home.Parting == 0 && (s.Home.Whole == 0 || watches >= 2*s.Home.Whole)
}

// Decide looks at the loads, as far as they are known, and returns what is to be
// done and the next trend.
func (b Balance) Decide(m *shard.Map, loads map[shard.ID]Load, t Trend, now time.Time) (Action, Trend) {
	next := Trend{
		seen: make(map[shard.ID]time.Time), hot: make(map[shard.ID]time.Time), idle: make(map[shard.ID]time.Time),
		crowd: make(map[shard.ID]want), uncut: make(map[shard.ID]time.Time),
	}
	since := func(from, to map[shard.ID]time.Time, id shard.ID) time.Duration {
		at, ok := from[id]
		if !ok {
			at = now
		}
		to[id] = at
		return now.Sub(at)
	}
	a := Action{Homes: t.judgeCuts(m, loads, b.Patience, now)}
	touched := make(map[shard.ID]bool)
	for _, h := range a.Homes {
		touched[h.Shard] = true
	}
	most := len(a.Homes) + mostChanges
	merges := len(m.Shards) - m.Joining() - max(m.Spec.Shards, 1)
	for i := range m.Shards {
		s := &m.Shards[i]
		age := since(t.seen, next.seen, s.ID)
		if at, ok := t.uncut[s.ID]; ok && now.Sub(at) < uncuttable {
			next.uncut[s.ID] = at
		}
		l, known := loads[s.ID]
		if !known || m.Joins(i) || touched[s.ID] {
			continue
		}
		if home, ok := b.replicas(m, s, l, t, next, now); ok && len(a.Homes) < most {
			a.Homes = append(a.Homes, home)
			touched[s.ID] = true
		}
		rest := l // what a split can part
		if !partsWatches(s, l.Watches) {
			rest.Watches = 0
		}
		if b.Split && b.heat(rest) >= 1 {
			_, uncut := next.uncut[s.ID]
			if since(t.hot, next.hot, s.ID) >= b.Patience && !uncut && len(m.Shards)+len(a.Splits) < b.MaxShards && len(a.Splits) < mostChanges {
				c := Cut{Shard: s.ID}
				if rest.Watches = 0; b.heat(rest) < 1 {
					c.Watches = l.Watches
				}
				a.Splits = append(a.Splits, c)
				touched[s.ID] = true
			}
		}
		if !b.Merge || i+1 == len(m.Shards) {
			continue
		}
		other := &m.Shards[i+1]
		ol, known := loads[other.ID]
		sum := Load{Bytes: l.Bytes + ol.Bytes, Events: l.Events + ol.Events, Watches: l.Watches + ol.Watches}
		if !known || m.Joins(i+1) || len(s.Home.Pins)+len(other.Home.Pins) > 0 || !b.bounded() || b.heat(sum) >= mergeShare || !m.Mergeable(i) {
			continue
		}
		if since(t.idle, next.idle, s.ID) < b.MergePatience || age < b.MinAge || now.Sub(t.seenSince(other.ID, now)) < b.MinAge {
			continue
		}
		if merges <= 0 || len(a.Homes) >= most || touched[s.ID] || touched[other.ID] {
			continue
		}
		to, from := s, other
		if ol.Bytes > l.Bytes {
			to, from = other, s
		}
		if r, err := Together(m, to.ID, from.ID); err == nil {
			a.Homes = append(a.Homes, r.Homes...)
			touched[s.ID], touched[other.ID] = true, true
			merges--
		}
	}
	return a, next
}

func (t Trend) seenSince(id shard.ID, now time.Time) time.Time {
	if at, ok := t.seen[id]; ok {
		return at
	}
	return now
}

// bounded reports whether a shard can have too much load.
func (b Balance) bounded() bool { return b.SplitBytes > 0 || b.SplitEvents > 0 || b.SplitWatches > 0 }

// heat is the share of its bounds that the load has: 1 and more is too much.
func (b Balance) heat(l Load) float64 {
	var heat float64
	if b.SplitBytes > 0 {
		heat = max(heat, float64(l.Bytes)/float64(b.SplitBytes))
	}
	if b.SplitEvents > 0 {
		heat = max(heat, l.Events/b.SplitEvents)
	}
	if b.SplitWatches > 0 {
		heat = max(heat, float64(l.Watches)/float64(b.SplitWatches))
	}
	return heat
}

// replicas returns the home that gives the shard another number of replicas. One
// is given back when the watches would have enough with half the load on each.
func (b Balance) replicas(m *shard.Map, s *shard.Shard, l Load, t, next Trend, now time.Time) (shard.ShardHome, bool) {
	if b.ReplicaWatches == 0 || b.MaxExtraReplicas == 0 || len(s.Home.Pins) > 0 {
		return shard.ShardHome{}, false
	}
	base := m.Spec.Replicas
	fit := func(watches int) int {
		n := int(math.Ceil(float64(watches) / float64(b.ReplicaWatches)))
		return min(max(n, base), base+b.MaxExtraReplicas, shard.MaxReplicas)
	}
	have := max(s.Home.Replicas, base)
	n := have
	if more, less := fit(l.Watches), fit(2*l.Watches); more > have {
		n = more
	} else if less < have {
		n = less
	}
	if n == have {
		return shard.ShardHome{}, false
	}
	w, ok := t.crowd[s.ID]
	if !ok || (w.replicas > have) != (n > have) {
		w.since = now
	}
	w.replicas = n
	next.crowd[s.ID] = w
	patience := b.Patience
	if n < have {
		patience = b.MergePatience
	}
	if now.Sub(w.since) < patience {
		return shard.ShardHome{}, false
	}
	home := s.Home
	home.Pins = slices.Clone(home.Pins)
	if home.Replicas = n; n == base {
		home.Replicas = 0
	}
	return shard.ShardHome{Shard: s.ID, Home: home}, true
}

// Waiting are shards whose load asks for something that waits: for the load to
// last, or for a bound to allow it.
type Waiting struct {
	// Split, Merge and Replicas are to be cut, merged with a neighbour, and given
	// another number of replicas.
	Split, Merge, Replicas int
}

// Waiting returns the pending changes of a map.
func (t Trend) Waiting(m *shard.Map) Waiting {
	// Neighbours are idle for ever where there are no more shards than there shall be.
	most := max(0, len(m.Shards)-max(m.Spec.Shards, 1))
	return Waiting{Split: len(t.hot), Merge: min(len(t.idle), most), Replicas: len(t.crowd)}
}
