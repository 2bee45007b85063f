package planner

import (
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// Balance configures how the load of shards changes the map. The zero Balance
// changes nothing.
type Balance struct {
	// Split allows to cut a shard in two if its load has been at or above one of
	// these bounds for Patience; 0: no bound.
	Split        bool
	SplitBytes   int64   // of keys and values in memory, on one node
	SplitEvents  float64 // per second, from etcd
	SplitWatches int     // of clients, on all nodes; a cut must divide them
	// MaxShards is the number of shards up to which splits are made.
	MaxShards int
	// Merge allows to merge two neighbours that together have had less load than a
	// mergeShare of each bound for MergePatience, as long as there are more shards
	// than the specification asks for.
	Merge bool
	// Owners restricts ownership to as few nodes as the events need: one for every
	// SplitEvents. Without it, or without SplitEvents, all nodes own shards.
	Owners bool
	// A shard has a replica for every ReplicaWatches watches, and at most
	// MaxExtraReplicas more than the specification asks for; 0: no extra replicas.
	ReplicaWatches   int
	MaxExtraReplicas int
	// Patience is how long a load must last before the map changes, MergePatience if the map shrinks.
	// MinAge is how old both shards of a merge must be, so that shards that an operator has split are not
	// merged at once.
	Patience, MergePatience, MinAge time.Duration
}

const (
	// mergeShare is far below the half that a split leaves, and keeps a merged
	// shard far from the next split.
	mergeShare = 0.25
	// mostChanges bounds the splits, and the merges, that one call of Decide begins.
	mostChanges = 4
	// uncuttableFor is the time until the next attempt to split a shard that had too
	// few keys to be cut.
	uncuttableFor = 10 * time.Minute
)

// DefaultBalance returns the settings for nodes with some GiB of memory.
func DefaultBalance() Balance {
	return Balance{
		Split: true, SplitBytes: 512 << 20, SplitEvents: 5000, SplitWatches: 100_000, MaxShards: 4096, Merge: true, Owners: true,
		ReplicaWatches: 25_000, MaxExtraReplicas: 2,
		Patience: time.Minute, MergePatience: 5 * time.Minute, MinAge: 10 * time.Minute,
	}
}

// Validate names every mistake.
func (b *Balance) Validate() error {
	var errs checks
	errs.check(b.SplitBytes >= 0 && b.SplitEvents >= 0 && b.SplitWatches >= 0, "bounds of splits must not be negative")
	errs.check(b.MaxShards >= 0, "the greatest number of shards (%d) must not be negative", b.MaxShards)
	errs.check(b.ReplicaWatches >= 0 && b.MaxExtraReplicas >= 0, "watches for each replica and extra replicas must not be negative")
	errs.check(b.Patience >= 0 && b.MergePatience >= 0 && b.MinAge >= 0, "patience and age must not be negative")
	return errors.Join(errs...)
}

// Trend is a leader's record of the load. The zero Trend is that of a new leader. It
// is a value: Decide returns a new one.
type Trend struct {
	seen       map[shard.ID]time.Time // since when the shard exists
	overloaded map[shard.ID]time.Time // since when it should be split
	idle       map[shard.ID]time.Time // since when it should be merged with the next shard
	replicas   map[shard.ID]wanted    // since when it should have another number of replicas
	owners     wanted                 // since when another number of nodes should own shards; zero: the number is right
	uncuttable map[shard.ID]time.Time // when its cut failed
}

// wanted is a target number that differs from the present one.
type wanted struct {
	n     int
	since time.Time
}

// want sets the target n. It restarts the clock if n is on the other side of the present number.
func (w wanted) want(n, have int, now time.Time) wanted {
	if w.since.IsZero() || (w.n > have) != (n > have) {
		w.since = now
	}
	w.n = n
	return w
}

// Action holds the changes that the load requires.
type Action struct {
	// Splits are the shards to cut in two.
	Splits []Cut
	// Homes begin merges, change numbers of replicas, and record the results of cuts.
	Homes []shard.ShardHome
	// Owners is the new Spec.Owners; nil: unchanged.
	Owners *int
}

// Cut is a shard to cut in two. Watches is set for a cut that must divide this many watches.
type Cut struct {
	Shard   shard.ID
	Watches int
}

// Uncuttable returns the trend after an attempt to cut the shard has failed.
func (t Trend) Uncuttable(id shard.ID, now time.Time) Trend {
	found := make(map[shard.ID]time.Time, len(t.uncuttable)+1)
	maps.Copy(found, t.uncuttable)
	found[id] = now
	t.uncuttable = found
	return t
}

// settleCuts returns the homes of shards whose last cut was made to divide their
// watches, once its effect is known. A client that watches all of a shard watches all
// of each part, so such a cut only adds watches. Parts that each have most of the
// watches are cut for them again only when the watches have doubled. The result is
// stored in the map, so that the next leader does not start over.
func (t Trend) settleCuts(m *shard.Map, loads map[shard.ID]Load, patience time.Duration, now time.Time) (homes []shard.ShardHome) {
	for i := 0; i < len(m.Shards); {
		parting := m.Shards[i].Home.Parting
		run := 1 // the parts of one cut, or of several equal ones
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

// partsWatches reports whether a cut of the shard may divide its watches, as far as
// known.
func partsWatches(s *shard.Shard, watches int) bool {
	return s.Home.Parting == 0 && (s.Home.Whole == 0 || watches >= 2*s.Home.Whole)
}

// Decide evaluates the known loads, and returns the changes to make and the
// next trend.
func (b Balance) Decide(m *shard.Map, loads map[shard.ID]Load, t Trend, now time.Time) (Action, Trend) {
	l := look{Balance: b, m: m, loads: loads, before: t, now: now, changed: make(map[shard.ID]bool)}
	l.after = Trend{
		seen: make(map[shard.ID]time.Time), overloaded: make(map[shard.ID]time.Time), idle: make(map[shard.ID]time.Time),
		replicas: make(map[shard.ID]wanted), uncuttable: make(map[shard.ID]time.Time),
	}
	l.rehome(t.settleCuts(m, loads, b.Patience, now)...)
	l.mostHomes = len(l.Homes) + mostChanges
	l.mostMerges = len(m.Shards) - m.Joining() - max(m.Spec.Shards, 1)
	for i := range m.Shards {
		s := &m.Shards[i]
		l.age(t.seen, l.after.seen, s.ID)
		if at, ok := t.uncuttable[s.ID]; ok && now.Sub(at) < uncuttableFor {
			l.after.uncuttable[s.ID] = at
		}
		if _, known := loads[s.ID]; !known || m.Joins(i) || l.changed[s.ID] {
			continue
		}
		l.resize(s)
		l.split(s)
		l.merge(i)
	}
	l.owners()
	return l.Action, l.after
}

// look is the state of one call of Decide.
type look struct {
	Balance
	Action
	m             *shard.Map
	loads         map[shard.ID]Load
	before, after Trend
	now           time.Time

	changed               map[shard.ID]bool // by this call
	mostHomes, mostMerges int
}

// age returns how long the shard has been in a map of the trend, and copies its time to after.
func (l *look) age(before, after map[shard.ID]time.Time, id shard.ID) time.Duration {
	at, ok := before[id]
	if !ok {
		at = l.now
	}
	after[id] = at
	return l.now.Sub(at)
}

func (l *look) rehome(homes ...shard.ShardHome) {
	l.Homes = append(l.Homes, homes...)
	for _, h := range homes {
		l.changed[h.Shard] = true
	}
}

// split cuts a shard whose load has been at or above a bound for Patience.
func (l *look) split(s *shard.Shard) {
	load := l.loads[s.ID] // the load that a split can divide
	watches := load.Watches
	if !partsWatches(s, watches) {
		load.Watches = 0
	}
	if !l.Split || l.utilization(load) < 1 {
		return
	}
	_, uncuttable := l.after.uncuttable[s.ID]
	if l.age(l.before.overloaded, l.after.overloaded, s.ID) < l.Patience || uncuttable || len(l.m.Shards)+len(l.Splits) >= l.MaxShards || len(l.Splits) >= mostChanges {
		return
	}
	c := Cut{Shard: s.ID}
	if load.Watches = 0; l.utilization(load) < 1 {
		c.Watches = watches
	}
	l.Splits = append(l.Splits, c)
	l.changed[s.ID] = true
}

// merge begins to merge m.Shards[i] with the next shard when both have been
// idle for MergePatience.
func (l *look) merge(i int) {
	if !l.Merge || i+1 == len(l.m.Shards) {
		return
	}
	s, other := &l.m.Shards[i], &l.m.Shards[i+1]
	a := l.loads[s.ID]
	b, known := l.loads[other.ID]
	sum := Load{Bytes: a.Bytes + b.Bytes, Events: a.Events + b.Events, Watches: a.Watches + b.Watches}
	if !known || l.m.Joins(i+1) || len(s.Home.Pins)+len(other.Home.Pins) > 0 || !l.bounded() || l.utilization(sum) >= mergeShare || !l.m.Mergeable(i) {
		return
	}
	idle := l.age(l.before.idle, l.after.idle, s.ID)
	young := func(id shard.ID) bool { return l.now.Sub(l.before.seenSince(id, l.now)) < l.MinAge }
	if idle < l.MergePatience || young(s.ID) || young(other.ID) || l.mostMerges <= 0 || len(l.Homes) >= l.mostHomes || l.changed[s.ID] || l.changed[other.ID] {
		return
	}
	to, from := s, other
	if b.Bytes > a.Bytes {
		to, from = other, s
	}
	if r, err := Together(l.m, to.ID, from.ID); err == nil {
		l.rehome(r.Homes...)
		l.changed[to.ID] = true
		l.mostMerges--
	}
}

func (t Trend) seenSince(id shard.ID, now time.Time) time.Time {
	if at, ok := t.seen[id]; ok {
		return at
	}
	return now
}

// bounded reports whether the load of a shard has any bound.
func (b Balance) bounded() bool { return b.SplitBytes > 0 || b.SplitEvents > 0 || b.SplitWatches > 0 }

// utilization is the largest share that the load takes of any bound: 1 and more is too much.
func (b Balance) utilization(l Load) (share float64) {
	if b.SplitBytes > 0 {
		share = max(share, float64(l.Bytes)/float64(b.SplitBytes))
	}
	if b.SplitEvents > 0 {
		share = max(share, l.Events/b.SplitEvents)
	}
	if b.SplitWatches > 0 {
		share = max(share, float64(l.Watches)/float64(b.SplitWatches))
	}
	return share
}

// resize changes the number of replicas. It removes a replica only when the others
// could serve twice the watches.
func (l *look) resize(s *shard.Shard) {
	if l.ReplicaWatches == 0 || l.MaxExtraReplicas == 0 || len(s.Home.Pins) > 0 {
		return
	}
	base := l.m.Spec.Replicas
	fit := func(watches int) int {
		n := int(math.Ceil(float64(watches) / float64(l.ReplicaWatches)))
		return min(max(n, base), base+l.MaxExtraReplicas, shard.MaxReplicas)
	}
	have := max(s.Home.Replicas, base)
	watches, patience := l.loads[s.ID].Watches, l.Patience
	n := fit(watches)
	if n <= have {
		n, patience = min(fit(2*watches), have), l.MergePatience
	}
	if n == have {
		return
	}
	r := l.before.replicas[s.ID].want(n, have, l.now)
	l.after.replicas[s.ID] = r
	if l.now.Sub(r.since) < patience || len(l.Homes) >= l.mostHomes {
		return
	}
	home := s.Home
	home.Pins = slices.Clone(home.Pins)
	if home.Replicas = n; n == base {
		home.Replicas = 0
	}
	l.rehome(shard.ShardHome{Shard: s.ID, Home: home})
}

// owners sets how many nodes own shards: one for every SplitEvents, and at least as many as it takes
// to have a copy of each shard. It lowers the number only when fewer owners could handle twice the
// events. Without the bound of the copies, the planner would use more owners than the map says, and
// drop them as soon as a node is gone. The number in the map changes only after the patience.
func (l *look) owners() {
	if l.m.FinalLevel() < shard.LevelSettings || len(l.m.Spec.Ranges) > shard.MaxRanges { // the map refuses the change
		return
	}
	have := l.m.Spec.Owners
	if !l.Balance.Owners || l.SplitEvents <= 0 {
		if have != 0 {
			l.Action.Owners = new(0)
		}
		return
	}
	var events float64
	for i := range l.m.Shards {
		load, known := l.loads[l.m.Shards[i].ID]
		if !known {
			l.after.owners = l.before.owners
			return
		}
		events += load.Events
	}
	if have == 0 { // all nodes own shards: at most one for each shard
		have = len(l.m.Shards)
	}
	least := max(1, fewestOwners(l.m))
	fit := func(events float64) int { return max(least, int(math.Ceil(events/l.SplitEvents))) }
	n, patience := fit(events), l.Patience
	if n <= have {
		n, patience = min(fit(2*events), have), l.MergePatience
	}
	if n == have {
		return
	}
	l.after.owners = l.before.owners.want(n, have, l.now)
	if l.now.Sub(l.after.owners.since) >= patience {
		l.Action.Owners = &n
	}
}

// Waiting counts shards whose load requires a change that is delayed until the
// load has lasted, or until a bound allows it.
type Waiting struct {
	// Split, Merge and Replicas count shards to cut, to merge with a neighbour,
	// and to give another number of replicas.
	Split, Merge, Replicas int
}

// Waiting returns the pending changes of a map.
func (t Trend) Waiting(m *shard.Map) Waiting {
	// Neighbours stay idle forever if there are no more shards than the specification asks for.
	most := max(0, len(m.Shards)-max(m.Spec.Shards, 1))
	return Waiting{Split: len(t.overloaded), Merge: min(len(t.idle), most), Replicas: len(t.replicas)}
}
