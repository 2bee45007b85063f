package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

// A load rises and falls: shards are split, get replicas, and this is undone.
func TestBalance(t *testing.T) {
	b := Balance{
		Split: true, SplitBytes: 1000, SplitEvents: 100, SplitWatches: 1000, MaxShards: 4, Merge: true, ReplicaWatches: 100, MaxExtraReplicas: 3,
		Patience: time.Minute, MergePatience: 5 * time.Minute, MinAge: 10 * time.Minute,
	}
	m := maptest.Pair(t, "a", "b") // 2 shards, 2 replicas, 2 wanted of each
	start := time.Unix(1000, 0)
	var tr Trend
	look := func(after time.Duration, loads map[shard.ID]Load) Action {
		t.Helper()
		var a Action
		a, tr = b.Decide(m, loads, tr, start.Add(after))
		return a
	}
	apply := func(c shard.Change) {
		t.Helper()
		var err error
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c}); err != nil {
			t.Fatal(err)
		}
	}
	nothing := func(name string, a Action) {
		t.Helper()
		if len(a.Splits)+len(a.Homes) > 0 {
			t.Errorf("%s: %+v", name, a)
		}
	}
	did := make(map[Operation]int64)
	count := func(homes []shard.ShardHome) {
		for _, h := range homes {
			if op := OperationOf(m, h); op != "" {
				did[op]++
			}
		}
	}
	waits := func(want Waiting) {
		t.Helper()
		if got := tr.Waiting(m); got != want {
			t.Errorf("waiting: %+v, want %+v", got, want)
		}
	}
	hot := map[shard.ID]Load{1: {Events: 150}, 2: {Bytes: 10}}
	nothing("a peak", look(0, hot))
	waits(Waiting{Split: 1})
	nothing("it is over", look(30*time.Second, map[shard.ID]Load{1: {Events: 50}, 2: {}}))
	nothing("another", look(40*time.Second, hot))
	if a := look(100*time.Second, hot); !slices.Equal(a.Splits, []Cut{{Shard: 1}}) || len(a.Homes) > 0 {
		t.Fatalf("lasting load, want a split of shard 1: %+v", a)
	}
	tr = tr.Uncuttable(1, start.Add(100*time.Second))
	nothing("it cannot be cut", look(110*time.Second, hot))
	waits(Waiting{Split: 1})
	if a := look(13*time.Minute, hot); len(a.Splits) != 1 {
		t.Errorf("an uncuttable shard is not tried again: %+v", a)
	}
	apply(shard.Split{Shard: 1, At: []string{"f"}, Stay: true}) // 3, 4, 2
	idle := map[shard.ID]Load{2: {Bytes: 100}, 3: {Bytes: 50, Events: 5}, 4: {Bytes: 90, Events: 5}}
	nothing("what was split rests", look(14*time.Minute, idle))
	nothing("it is young", look(20*time.Minute, idle))
	waits(Waiting{Merge: 1})
	a := look(25*time.Minute, idle)
	if len(a.Homes) != 1 || a.Homes[0].Shard != 3 || a.Homes[0].Home.Seat != 4 {
		t.Fatalf("two idle neighbours, want a merge: %+v", a)
	}
	count(a.Homes)
	apply(shard.Rehome{Homes: a.Homes})
	nothing("they join already", look(26*time.Minute, idle))
	apply(shard.Merge{Shards: []shard.ID{3, 4}, Replicas: []shard.NodeID{"a", "b"}}) // 5, 2
	for after := 27 * time.Minute; after < time.Hour; after += time.Minute {
		nothing("never below what was asked for", look(after, map[shard.ID]Load{2: {}, 5: {}}))
		waits(Waiting{})
	}

	crowd := map[shard.ID]Load{2: {Watches: 350}, 5: {}}
	nothing("a crowd", look(61*time.Minute, crowd))
	waits(Waiting{Replicas: 1})
	if a = look(62*time.Minute, crowd); len(a.Homes) != 1 || a.Homes[0].Shard != 2 || a.Homes[0].Home.Replicas != 4 {
		t.Fatalf("lasting watches, want more replicas of shard 2: %+v", a)
	}
	count(a.Homes)
	apply(shard.Rehome{Homes: a.Homes})
	nothing("some go", look(63*time.Minute, map[shard.ID]Load{2: {Watches: 210}, 5: {}}))
	nothing("most go", look(64*time.Minute, map[shard.ID]Load{2: {Watches: 20}, 5: {}}))
	if a = look(69*time.Minute, map[shard.ID]Load{2: {Watches: 20}, 5: {}}); len(a.Homes) != 1 || a.Homes[0].Home.Replicas != 0 {
		t.Errorf("extra replicas are kept without watches: %+v", a)
	}
	count(a.Homes)
	if want := map[Operation]int64{LoadMerge: 1, LoadMoreReplicas: 1, LoadFewerReplicas: 1}; !maps.Equal(did, want) {
		t.Errorf("did %v, want %v", did, want)
	}

	apply(shard.Rehome{Homes: a.Homes})
	m.Spec.Shards = 1
	b.MaxShards = 2
	nothing("no more shards", look(71*time.Minute, map[shard.ID]Load{2: {Bytes: 5000}, 5: {}}))
	nothing("for all that", look(75*time.Minute, map[shard.ID]Load{2: {Bytes: 5000}, 5: {}}))
	b = Balance{}
	nothing("switched off", look(90*time.Minute, map[shard.ID]Load{2: {Bytes: 5000}, 5: {}}))
}

// A merge lasts until its shards have the same replicas, and counts meanwhile: merges
// never leave fewer shards than the specification asks for.
func TestMergesUnderWayCount(t *testing.T) {
	b := Balance{Split: true, SplitEvents: 100, MaxShards: 10, Merge: true, Patience: time.Minute, MergePatience: time.Minute}
	m := maptest.Pair(t, "a", "b")
	m.Spec.Shards = 3
	apply := func(c shard.Change) {
		t.Helper()
		var err error
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c}); err != nil {
			t.Fatal(err)
		}
	}
	apply(shard.Split{Shard: 1, At: []string{"c"}, Stay: true})
	apply(shard.Split{Shard: 2, At: []string{"x"}, Stay: true})
	idle := make(map[shard.ID]Load)
	for i := range m.Shards {
		idle[m.Shards[i].ID] = Load{}
	}
	var tr Trend
	begun := 0
	for now := time.Unix(1000, 0); now.Before(time.Unix(2000, 0)); now = now.Add(ReportInterval) {
		var a Action
		if a, tr = b.Decide(m, idle, tr, now); len(a.Homes) > 0 {
			begun += len(a.Homes)
			apply(shard.Rehome{Homes: a.Homes})
		}
	}
	if begun != 1 {
		t.Errorf("%d merges of %d shards, the specification asks for %d shards", begun, len(m.Shards), m.Spec.Shards)
	}
}

// A split divides watches of some keys, but doubles watches of whole shards. Watches of
// whole shards cause one split, and another when there are twice as many.
func TestWatchesOfWholeShardsAreNotSplitForEver(t *testing.T) { splitWholeShards(t, false) }

// Each of twenty leaders evaluates the load for some minutes.
func TestWatchesOfWholeShardsAreNotSplitByEachLeader(t *testing.T) { splitWholeShards(t, true) }

func splitWholeShards(t *testing.T, leaders bool) {
	t.Helper()
	const keys = 1024
	b := Balance{Split: true, SplitWatches: 1000, MaxShards: 1000, Patience: time.Minute}
	bounds := func(s *shard.Shard) (from, to int) {
		to = keys
		_, _ = fmt.Sscanf(s.Range.Start, "%d", &from)
		_, _ = fmt.Sscanf(s.Range.End, "%d", &to)
		return from, to
	}
	for name, c := range map[string]struct {
		watches func(from, to, look int) int
		shards  int
	}{
		"of keys":                 {func(from, to, _ int) int { return 7 * (to - from) }, 8},
		"of keys in a corner":     {func(from, to, _ int) int { return 20 * max(0, min(to, 100)-from) }, 6},
		"of everything":           {func(int, int, int) int { return 1500 }, 2},
		"of everything, and many": {func(int, int, int) int { return 90_000 }, 2},
		"ever more of everything": {func(_, _, look int) int { return 1500 + 10*look }, 8},
	} {
		m, err := shard.Apply(nil, shard.Command{Change: shard.Found{
			ClusterID: "c", EtcdClusterID: 1, Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 1, Replicas: 1}, Replicas: [][]shard.NodeID{{"a"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var tr Trend
		now := time.Unix(1000, 0)
		for look := range 600 {
			if leaders && look%29 == 0 {
				tr = Trend{} // another node becomes the leader
			}
			loads := make(map[shard.ID]Load)
			for i := range m.Shards {
				from, to := bounds(&m.Shards[i])
				loads[m.Shards[i].ID] = Load{Watches: c.watches(from, to, look)}
			}
			var a Action
			a, tr = b.Decide(m, loads, tr, now)
			if len(a.Homes) > 0 {
				if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: shard.Rehome{Homes: a.Homes}}); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range a.Splits {
				s, _ := m.Shard(c.Shard)
				from, to := bounds(&s)
				split := shard.Split{Shard: c.Shard, At: []string{fmt.Sprintf("%04d", (from+to)/2)}, Stay: true, Watches: c.Watches}
				if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: split}); err != nil {
					t.Fatal(err)
				}
			}
			now = now.Add(ReportInterval)
		}
		if len(m.Shards) != c.shards {
			t.Errorf("%s: %d shards, want %d", name, len(m.Shards), c.shards)
		}
	}
}

// Three founders begin with three shards; three more nodes have no shard to own. A load
// that is spread over the keys splits shards, until all six nodes own equally many.
func TestLoadGivesEveryNodeShardsToOwn(t *testing.T) {
	const keys, events, founders, nodes = 3 << 10, 40_000, 3, 6
	key := func(at int) string { return fmt.Sprintf("%04d", at) }
	var members []shard.Member
	for i := range nodes {
		members = append(members, member(shard.NodeID(fmt.Sprintf("n%d", i+1)), shard.Alive, time.Unix(0, 0)))
	}
	found, err := Place(shard.Found{
		ClusterID: "c", EtcdClusterID: 1, Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: founders, Replicas: 3},
		Cuts: []string{key(keys / 3), key(2 * keys / 3)},
	}, members[:founders])
	if err != nil {
		t.Fatal(err)
	}
	m, err := shard.Apply(nil, shard.Command{Change: found})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(c shard.Change) {
		t.Helper()
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: c}); err != nil {
			t.Fatal(err)
		}
	}
	bounds := func(s *shard.Shard) (from, to int) {
		to = keys
		_, _ = fmt.Sscanf(s.Range.Start, "%d", &from)
		_, _ = fmt.Sscanf(s.Range.End, "%d", &to)
		return from, to
	}
	owned := func() []int {
		counts := make(map[shard.NodeID]int)
		for _, s := range m.Shards {
			counts[s.Owner()]++
		}
		var out []int
		for _, n := range members {
			out = append(out, counts[n.Name])
		}
		slices.Sort(out)
		return out
	}
	if got := owned(); !slices.Equal(got, []int{0, 0, 0, 1, 1, 1}) {
		t.Fatalf("shards owned by the nodes: %v", got)
	}
	b, tr := DefaultBalance(), Trend{}
	for now := time.Unix(1000, 0); now.Before(time.Unix(2000, 0)); now = now.Add(ReportInterval) {
		loads := make(map[shard.ID]Load)
		for i := range m.Shards {
			from, to := bounds(&m.Shards[i])
			loads[m.Shards[i].ID] = Load{Events: float64(events * (to - from) / keys)}
		}
		var a Action
		a, tr = b.Decide(m, loads, tr, now)
		for _, c := range a.Splits {
			s, _ := m.Shard(c.Shard)
			from, to := bounds(&s)
			apply(shard.Split{Shard: c.Shard, At: []string{key((from + to) / 2)}, Stay: true})
		}
		for moves := Plan(m, members); len(moves) > 0; moves = Plan(m, members) {
			apply(shard.Assign{Moves: moves})
		}
	}
	if got := owned(); !slices.Equal(got, []int{2, 2, 2, 2, 2, 2}) {
		t.Errorf("nodes own %v of %d shards, want equal numbers", got, len(m.Shards))
	}
}

// Each setting of the balance may be 0 but not negative.
func TestBalanceNamesEveryNegativeFigure(t *testing.T) {
	if err := new(Balance).Validate(); err != nil {
		t.Errorf("the zero Balance: %v", err)
	}
	for says, b := range map[string][]Balance{
		"bounds of splits":          {{SplitBytes: -1}, {SplitEvents: -1}, {SplitWatches: -1}},
		"greatest number of shards": {{MaxShards: -1}},
		"extra replicas":            {{ReplicaWatches: -1}, {MaxExtraReplicas: -1}},
		"patience and age":          {{Patience: -1}, {MergePatience: -1}, {MinAge: -1}},
	} {
		for _, b := range b {
			if err := b.Validate(); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%+v: %v", b, err)
			}
		}
	}
	all := Balance{SplitBytes: -1, MaxShards: -1, ReplicaWatches: -1, MinAge: -1}
	if err := all.Validate(); strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("the error does not name every mistake: %v", err)
	}
}

// shardsOf is a map of n shards in one served range; its specification asks for one.
func shardsOf(t *testing.T, n int) *shard.Map {
	t.Helper()
	f := shard.Found{ClusterID: "c", EtcdClusterID: 1, Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 1, Replicas: 2}}
	for i := range n {
		f.Replicas = append(f.Replicas, []shard.NodeID{"a", "b"})
		if i > 0 {
			f.Cuts = append(f.Cuts, fmt.Sprintf("%03d", i))
		}
	}
	m, err := shard.Apply(nil, shard.Command{Change: f})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// watched evaluates the same loads at several times, in seconds, and returns the
// last action.
func watched(b Balance, m *shard.Map, loads map[shard.ID]Load, at ...time.Duration) (a Action) {
	var tr Trend
	for _, after := range at {
		a, tr = b.Decide(m, loads, tr, time.Unix(1000, 0).Add(after))
	}
	return a
}

// A shard is split at its bound, after the patience, as long as there may be more.
func TestSplitsKeepToTheirBounds(t *testing.T) {
	b := Balance{Split: true, SplitBytes: 1000, SplitEvents: 100, SplitWatches: 1000, MaxShards: 100, Patience: time.Minute}
	for _, c := range []struct {
		load  Load
		after time.Duration
		split bool
	}{
		{Load{Bytes: 1000}, time.Minute, true},
		{Load{Bytes: 999}, time.Minute, false},
		{Load{Events: 100}, time.Minute, true},
		{Load{Events: 99}, time.Minute, false},
		{Load{Watches: 1000}, time.Minute, true},
		{Load{Watches: 999}, time.Minute, false},
		{Load{Bytes: 600, Events: 60, Watches: 600}, time.Minute, false},
		{Load{Bytes: 1000}, time.Minute - 1, false},
	} {
		a := watched(b, shardsOf(t, 1), map[shard.ID]Load{1: c.load}, 0, c.after)
		if got := len(a.Splits) == 1; got != c.split {
			t.Errorf("%+v after %v: %+v", c.load, c.after, a)
		}
	}
	hot := make(map[shard.ID]Load)
	for id := range shard.ID(6) {
		hot[id+1] = Load{Bytes: 1000}
	}
	for most, splits := range map[int]int{6: 0, 7: 1, 8: 2, 10: 4, 100: mostChanges} {
		b.MaxShards = most
		if a := watched(b, shardsOf(t, 6), hot, 0, time.Hour); len(a.Splits) != splits {
			t.Errorf("with at most %d shards: %d splits of 6, want %d", most, len(a.Splits), splits)
		}
	}
	// A shard that cannot be cut rests for exactly this time.
	m := shardsOf(t, 1)
	now := time.Unix(1000, 0)
	_, tr := b.Decide(m, hot, Trend{}, now)
	now = now.Add(time.Hour)
	tr = tr.Uncuttable(1, now)
	for _, c := range []struct {
		after time.Duration
		split int
	}{{uncuttableFor - 1, 0}, {uncuttableFor, 1}} {
		if a, _ := b.Decide(m, hot, tr, now.Add(c.after)); len(a.Splits) != c.split {
			t.Errorf("%v after the shard was found uncuttable: %+v", c.after, a)
		}
	}
	// An unknown load counts as no load, and does not reset the age of the shard.
	if a := watched(b, m, nil, 0, time.Hour); len(a.Splits)+len(a.Homes) > 0 {
		t.Errorf("changes without a load: %+v", a)
	}
}

// Two neighbours are merged when both together are well below every bound, for long
// enough, and when neither is young, pinned or unknown.
func TestMergesKeepToTheirBounds(t *testing.T) {
	sound := Balance{
		Split: true, SplitBytes: 1000, SplitEvents: 100, SplitWatches: 1000, MaxShards: 100, Merge: true,
		MergePatience: 5 * time.Minute, MinAge: 10 * time.Minute,
	}
	idle := map[shard.ID]Load{1: {Bytes: 125, Events: 12, Watches: 100}, 2: {Bytes: 124, Events: 12, Watches: 100}}
	for what, c := range map[string]struct {
		given  func(b *Balance, m *shard.Map, loads map[shard.ID]Load)
		at     []time.Duration
		merges int
	}{
		"long enough":            {nil, []time.Duration{0, 10 * time.Minute}, 1},
		"too young":              {nil, []time.Duration{0, 10*time.Minute - 1}, 0},
		"not for long enough":    {func(b *Balance, _ *shard.Map, _ map[shard.ID]Load) { b.MergePatience = 11 * time.Minute }, []time.Duration{0, 11*time.Minute - 1}, 0},
		"just for long enough":   {func(b *Balance, _ *shard.Map, _ map[shard.ID]Load) { b.MergePatience = 11 * time.Minute }, []time.Duration{0, 11 * time.Minute}, 1},
		"a quarter of the bytes": {func(_ *Balance, _ *shard.Map, l map[shard.ID]Load) { l[2] = Load{Bytes: 125} }, []time.Duration{0, time.Hour}, 0},
		"of the events":          {func(_ *Balance, _ *shard.Map, l map[shard.ID]Load) { l[1] = Load{Events: 13} }, []time.Duration{0, time.Hour}, 0},
		"of the watches":         {func(_ *Balance, _ *shard.Map, l map[shard.ID]Load) { l[2] = Load{Watches: 150} }, []time.Duration{0, time.Hour}, 0},
		"unknown neighbour":      {func(_ *Balance, _ *shard.Map, l map[shard.ID]Load) { delete(l, 2) }, []time.Duration{0, time.Hour}, 0},
		"first one pinned":       {func(_ *Balance, m *shard.Map, _ map[shard.ID]Load) { m.Shards[0].Home.Pins = []shard.NodeID{"a"} }, []time.Duration{0, time.Hour}, 0},
		"second one pinned":      {func(_ *Balance, m *shard.Map, _ map[shard.ID]Load) { m.Shards[1].Home.Pins = []shard.NodeID{"a"} }, []time.Duration{0, time.Hour}, 0},
		"no more than asked for": {func(_ *Balance, m *shard.Map, _ map[shard.ID]Load) { m.Spec.Shards = 2 }, []time.Duration{0, time.Hour}, 0},
		"two served ranges": {func(_ *Balance, m *shard.Map, _ map[shard.ID]Load) {
			m.Spec.Ranges = []kv.Range{{End: "001"}, {Start: "001"}}
		}, []time.Duration{0, time.Hour}, 0},
		"without bounds": {func(b *Balance, _ *shard.Map, _ map[shard.ID]Load) {
			b.SplitBytes, b.SplitEvents, b.SplitWatches = 0, 0, 0
		}, []time.Duration{0, time.Hour}, 0},
		"one bound":    {func(b *Balance, _ *shard.Map, _ map[shard.ID]Load) { b.SplitBytes, b.SplitEvents = 0, 0 }, []time.Duration{0, time.Hour}, 1},
		"switched off": {func(b *Balance, _ *shard.Map, _ map[shard.ID]Load) { b.Merge = false }, []time.Duration{0, time.Hour}, 0},
	} {
		b, m, loads := sound, shardsOf(t, 2), map[shard.ID]Load{1: idle[1], 2: idle[2]}
		if c.given != nil {
			c.given(&b, m, loads)
		}
		a := watched(b, m, loads, c.at...)
		if len(a.Homes) != c.merges {
			t.Errorf("%s: %+v, want %d merges", what, a, c.merges)
		}
		if c.merges == 1 && (a.Homes[0].Shard != 2 || a.Homes[0].Home.Seat != 1) {
			t.Errorf("%s: the smaller shard should move to the larger: %+v", what, a.Homes)
		}
	}
	// The larger shard stays, even if it is the second; and a shard merges once.
	if a := watched(sound, shardsOf(t, 2), map[shard.ID]Load{1: {}, 2: {Bytes: 1}}, 0, time.Hour); len(a.Homes) != 1 || a.Homes[0].Shard != 1 {
		t.Errorf("the second shard is larger, want the first to move: %+v", a)
	}
	if a := watched(sound, shardsOf(t, 3), map[shard.ID]Load{1: {}, 2: {}, 3: {}}, 0, time.Hour); len(a.Homes) != 1 {
		t.Errorf("three neighbours, want one merge: %+v", a)
	}
	loads := make(map[shard.ID]Load)
	for id := range shard.ID(20) {
		loads[id+1] = Load{}
	}
	if a := watched(sound, shardsOf(t, 20), loads, 0, time.Hour); len(a.Homes) != mostChanges {
		t.Errorf("%d merges in one call, want %d", len(a.Homes), mostChanges)
	}
	m := shardsOf(t, 4)
	m.Spec.Shards = 3
	if a := watched(sound, m, loads, 0, time.Hour); len(a.Homes) != 1 {
		t.Errorf("%d merges of 4 shards, want 1: the specification asks for 3 shards", len(a.Homes))
	}
}

// A shard has one replica for every ReplicaWatches watches, after the patience.
// A replica is kept while the watches would soon need it again.
func TestReplicasKeepToTheirBounds(t *testing.T) {
	sound := Balance{ReplicaWatches: 100, MaxExtraReplicas: 3, Patience: time.Minute, MergePatience: 5 * time.Minute}
	for what, c := range map[string]struct {
		given   func(b *Balance, s *shard.Shard)
		watches int
		after   time.Duration
		want    int // replicas; -1: no change
	}{
		"just enough":         {nil, 200, time.Hour, -1},
		"one watch more":      {nil, 201, time.Minute, 3},
		"not for long enough": {nil, 201, time.Minute - 1, -1},
		"all extra replicas":  {nil, 10_000, time.Minute, 5},
		"pinned":              {func(_ *Balance, s *shard.Shard) { s.Home.Pins = []shard.NodeID{"a"} }, 10_000, time.Hour, -1},
		"switched off":        {func(b *Balance, _ *shard.Shard) { b.ReplicaWatches = 0 }, 10_000, time.Hour, -1},
		"none extra":          {func(b *Balance, _ *shard.Shard) { b.MaxExtraReplicas = 0 }, 10_000, time.Hour, -1},
		"more than may be":    {func(b *Balance, _ *shard.Shard) { b.MaxExtraReplicas = 100 }, 1 << 20, time.Hour, shard.MaxReplicas},
		"given back":          {func(_ *Balance, s *shard.Shard) { s.Home.Replicas = 4 }, 150, 5 * time.Minute, 3},
		"not so soon":         {func(_ *Balance, s *shard.Shard) { s.Home.Replicas = 4 }, 150, 5*time.Minute - 1, -1},
		"needed soon":         {func(_ *Balance, s *shard.Shard) { s.Home.Replicas = 4 }, 151, time.Hour, -1},
		"as many as asked":    {func(_ *Balance, s *shard.Shard) { s.Home.Replicas = 4 }, 100, time.Hour, 0},
	} {
		b, m := sound, shardsOf(t, 1)
		if c.given != nil {
			c.given(&b, &m.Shards[0])
		}
		a := watched(b, m, map[shard.ID]Load{1: {Watches: c.watches}}, 0, c.after)
		switch {
		case c.want < 0 && len(a.Homes) == 0:
		case c.want < 0 || len(a.Homes) != 1 || a.Homes[0].Home.Replicas != c.want:
			t.Errorf("%s: %+v, want %d replicas", what, a, c.want)
		}
	}
	// Watches that end and return restart the patience.
	var tr Trend
	m := shardsOf(t, 1)
	m.Shards[0].Home.Replicas = 3
	for i, watches := range []int{400, 50, 400, 400} {
		var a Action
		if a, tr = sound.Decide(m, map[shard.ID]Load{1: {Watches: watches}}, tr, time.Unix(1000, 0).Add(time.Duration(i)*40*time.Second)); len(a.Homes) > 0 {
			t.Errorf("evaluation %d: %+v", i, a)
		}
	}
}

// The effect of a cut on watches is judged after all its parts have been reported for
// the patience: if most watches are on every part, the parts are not cut again for
// watches until there are twice as many.
func TestCutsAreJudgedOnceAllPartsAreKnown(t *testing.T) {
	const patience = time.Minute
	now := time.Unix(1000, 0)
	seen := now.Add(-patience)
	for what, c := range map[string]struct {
		parting []int // of each shard
		watches []int // below 0: not known
		seen    []time.Time
		whole   []int // below 0: not judged
	}{
		"most are at each part":     {[]int{100, 100}, []int{75, 75}, []time.Time{seen, seen}, []int{75, 75}},
		"just not most":             {[]int{100, 100}, []int{75, 74}, []time.Time{seen, seen}, []int{0, 0}},
		"unknown":                   {[]int{100, 100}, []int{75, -1}, []time.Time{seen, seen}, []int{-1, -1}},
		"the first unknown":         {[]int{100, 100}, []int{-1, 75}, []time.Time{seen, seen}, []int{-1, -1}},
		"too young":                 {[]int{100, 100}, []int{75, 75}, []time.Time{seen.Add(1), seen}, []int{-1, -1}},
		"the second too young":      {[]int{100, 100}, []int{75, 75}, []time.Time{seen, seen.Add(1)}, []int{-1, -1}},
		"not seen before":           {[]int{100, 100}, []int{75, 75}, nil, []int{-1, -1}},
		"of no cut":                 {[]int{0, 0}, []int{75, 75}, []time.Time{seen, seen}, []int{-1, -1}},
		"two cuts, judged apart":    {[]int{100, 40}, []int{75, 29}, []time.Time{seen, seen}, []int{75, 0}},
		"one of two cuts is judged": {[]int{100, 40}, []int{-1, 30}, []time.Time{seen, seen}, []int{-1, 30}},
		"a cut beside no cut":       {[]int{0, 40}, []int{90, 30}, []time.Time{seen, seen}, []int{-1, 30}},
	} {
		m := shardsOf(t, 2)
		tr := Trend{seen: make(map[shard.ID]time.Time)}
		loads := make(map[shard.ID]Load)
		want := make(map[shard.ID]int)
		for i := range m.Shards {
			s := &m.Shards[i]
			s.Home.Parting, s.Home.Whole = c.parting[i], 7
			if c.watches[i] >= 0 {
				loads[s.ID] = Load{Watches: c.watches[i]}
			}
			if c.seen != nil {
				tr.seen[s.ID] = c.seen[i]
			}
			if c.whole[i] >= 0 {
				want[s.ID] = c.whole[i]
			}
		}
		got := make(map[shard.ID]int)
		for _, h := range tr.settleCuts(m, loads, patience, now) {
			if got[h.Shard] = h.Home.Whole; h.Home.Parting != 0 {
				t.Errorf("%s: shard %d is still to be judged", what, h.Shard)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	s := &shard.Shard{Home: shard.Home{Whole: 100}}
	if partsWatches(s, 199) || !partsWatches(s, 200) {
		t.Error("cut again for the wrong number of watches")
	}
	if s.Home.Parting = 1; partsWatches(s, 1000) || !partsWatches(&shard.Shard{}, 0) {
		t.Error("cut again before the last cut was judged")
	}
}

// A shard whose cut was just decided, or that joins its neighbour, is not changed in
// the same call.
func TestAShardIsChangedOncePerDecision(t *testing.T) {
	b := Balance{Split: true, SplitWatches: 100, SplitBytes: 100, MaxShards: 10, Merge: true}
	hot := map[shard.ID]Load{1: {Watches: 1000, Bytes: 1000}, 2: {Watches: 1000, Bytes: 1000}}
	m := shardsOf(t, 2)
	m.Shards[0].Home.Parting = 1000
	if a := watched(b, m, hot, 0); len(a.Homes) != 1 || !slices.Equal(a.Splits, []Cut{{Shard: 2}}) {
		t.Errorf("a shard whose cut was just judged is changed: %+v", a)
	}
	m = shardsOf(t, 3)
	r, err := Together(m, 1, 2)
	if err == nil {
		m, err = shard.Apply(m, shard.Command{IfVersion: 1, Change: shard.Rehome{Homes: r.Homes}})
	}
	if err != nil {
		t.Fatal(err)
	}
	hot[3] = hot[1]
	if a := watched(b, m, hot, 0); len(a.Homes) != 0 || !slices.Equal(a.Splits, []Cut{{Shard: 3}}) {
		t.Errorf("a shard that joins its neighbour is changed: %+v", a)
	}
}

// One node owns shards for each SplitEvents, after the patience. An owner is dropped when
// the others could handle twice the events. Without the rule all nodes own shards.
func TestOwnersFollowTheEvents(t *testing.T) {
	b := Balance{Owners: true, SplitEvents: 100, Patience: time.Minute, MergePatience: 5 * time.Minute}
	loads := func(events ...float64) map[shard.ID]Load {
		out := make(map[shard.ID]Load)
		for i, e := range events {
			out[shard.ID(i+1)] = Load{Events: e, Bytes: 1 << 40, Watches: 1 << 20}
		}
		return out
	}
	for _, c := range []struct {
		name  string
		b     Balance
		have  int
		loads map[shard.ID]Load
		after time.Duration
		want  int // -1: no change
	}{
		{"few events", b, 1, loads(30, 30, 30, 10), time.Hour, -1},
		{"more", b, 1, loads(30, 30, 30, 11), time.Minute, 2},
		{"not for long yet", b, 1, loads(30, 30, 30, 11), time.Minute - 1, -1},
		{"many", b, 2, loads(90, 90, 90, 90), time.Minute, 4},
		{"fewer", b, 4, loads(30, 30, 30, 11), 5 * time.Minute, 3},
		{"fewer, not for long yet", b, 4, loads(30, 30, 30, 11), 5*time.Minute - 1, -1},
		{"hardly fewer", b, 2, loads(30, 21), time.Hour, -1},
		{"none", b, 4, loads(0, 0, 0, 0), 5 * time.Minute, 1},
		{"all nodes own some", b, 0, loads(0, 0, 0, 0), 5 * time.Minute, 1},
		{"all nodes shall", b, 0, loads(90, 90, 90, 90), time.Hour, -1},
		{"a load is not known", b, 4, loads(0, 0, 0), time.Hour, -1},
		{"the rule is off", Balance{SplitEvents: 100}, 2, loads(0, 0, 0, 0), 1, 0},
		{"the rule was off", Balance{SplitEvents: 100}, 0, loads(0, 0, 0, 0), time.Hour, -1},
		{"any number of events", Balance{Owners: true}, 2, nil, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := shardsOf(t, 4)
			m.Finalized, m.Spec.Owners = shard.LevelSettings, c.have
			got := -1
			if a := watched(c.b, m, c.loads, 0, c.after); a.Owners != nil {
				got = *a.Owners
			}
			if got != c.want {
				t.Errorf("%d owners, want %d", got, c.want)
			}
			m.Finalized, m.Spec.Owners = 0, 0
			if a := watched(c.b, m, c.loads, 0, c.after); a.Owners != nil {
				t.Error("the number of owners changes before its level is finalized")
			}
		})
	}
	// The owners together must have a copy of each shard.
	apart := shardsOf(t, 4)
	for i := range apart.Shards {
		apart.Shards[i].Replicas = [][]shard.NodeID{{"a", "b", "c"}, {"b", "c", "d"}, {"c", "d", "a"}, {"d", "a", "b"}}[i]
	}
	for have, want := range map[int]int{1: 2, 4: 2} {
		apart.Finalized, apart.Spec.Owners = shard.LevelSettings, have
		if a := watched(b, apart, loads(0, 0, 0, 0), 0, 5*time.Minute); a.Owners == nil || *a.Owners != want {
			t.Errorf("from %d owners with copies of different shards: %v, want %d", have, a.Owners, want)
		}
	}
	apart.Spec.Owners = 2
	if a := watched(b, apart, loads(0, 0, 0, 0), 0, time.Hour); a.Owners != nil {
		t.Errorf("two owners with copies of different shards are reduced to %d", *a.Owners)
	}
	// A change of a map that was founded with more ranges than can be configured would be refused forever,
	// and would block all later changes.
	m := shardsOf(t, 4)
	m.Finalized, m.Spec.Owners = shard.LevelSettings, 4
	for ranges, proposed := range map[int]bool{shard.MaxRanges: true, shard.MaxRanges + 1: false} {
		m.Spec.Ranges = make([]kv.Range, ranges)
		if a := watched(b, m, loads(0, 0, 0, 0), 0, time.Hour); (a.Owners != nil) != proposed {
			t.Errorf("%d served ranges: the number of owners changes: %v, want %v", ranges, a.Owners != nil, proposed)
		}
	}
	// A new reason restarts the patience.
	m = shardsOf(t, 4)
	m.Finalized, m.Spec.Owners = shard.LevelSettings, 2
	var tr Trend
	for at, l := range []map[shard.ID]Load{loads(0, 0, 0, 0), loads(99, 99, 99, 99), loads(0, 0, 0, 0), loads(25, 25, 25, 20), loads(0, 0, 0, 0)} {
		var a Action
		if a, tr = b.Decide(m, l, tr, time.Unix(1000, 0).Add(time.Duration(at)*59*time.Second)); a.Owners != nil {
			t.Errorf("evaluation %d: %d owners", at, *a.Owners)
		}
	}
}
