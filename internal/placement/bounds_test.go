package placement

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Each figure of the balance may be 0 and not below.
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
		t.Errorf("not every mistake is named: %v", err)
	}
}

// shardsOf is a map of n shards in one served range, of which one is asked for.
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

// watched looks at the same loads at several times, in seconds, and returns what is
// done at the last of them.
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
			t.Errorf("at most %d shards: %d splits of 6, want %d", most, len(a.Splits), splits)
		}
	}
	// A shard that cannot be cut rests for just so long.
	m := shardsOf(t, 1)
	now := time.Unix(1000, 0)
	_, tr := b.Decide(m, hot, Trend{}, now)
	now = now.Add(time.Hour)
	tr = tr.Uncuttable(1, now)
	for _, c := range []struct {
		after time.Duration
		split int
	}{{uncuttable - 1, 0}, {uncuttable, 1}} {
		if a, _ := b.Decide(m, hot, tr, now.Add(c.after)); len(a.Splits) != c.split {
			t.Errorf("%v after it was found that it cannot be cut: %+v", c.after, a)
		}
	}
	// What is not known of a shard is no load, and no reason to forget when it came.
	if a := watched(b, m, nil, 0, time.Hour); len(a.Splits)+len(a.Homes) > 0 {
		t.Errorf("without a load: %+v", a)
	}
}

// Two neighbours become one when both together are well below every bound, for long
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
			t.Errorf("%s: the smaller one comes to the larger one: %+v", what, a.Homes)
		}
	}
	// The larger one stays, also where it is the second; and a shard merges once.
	if a := watched(sound, shardsOf(t, 2), map[shard.ID]Load{1: {}, 2: {Bytes: 1}}, 0, time.Hour); len(a.Homes) != 1 || a.Homes[0].Shard != 1 {
		t.Errorf("the second is larger: %+v", a)
	}
	if a := watched(sound, shardsOf(t, 3), map[shard.ID]Load{1: {}, 2: {}, 3: {}}, 0, time.Hour); len(a.Homes) != 1 {
		t.Errorf("three neighbours: %+v", a)
	}
	loads := make(map[shard.ID]Load)
	for id := range shard.ID(20) {
		loads[id+1] = Load{}
	}
	if a := watched(sound, shardsOf(t, 20), loads, 0, time.Hour); len(a.Homes) != mostChanges {
		t.Errorf("%d merges at a time, want %d", len(a.Homes), mostChanges)
	}
	m := shardsOf(t, 4)
	m.Spec.Shards = 3
	if a := watched(sound, m, loads, 0, time.Hour); len(a.Homes) != 1 {
		t.Errorf("%d merges of 4 shards, and 3 are asked for", len(a.Homes))
	}
}

// A shard has a replica for every so many watches, after the patience; it is not
// given one back for as long as the watches would need it soon.
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
	// A crowd that goes and comes waits anew.
	var tr Trend
	m := shardsOf(t, 1)
	m.Shards[0].Home.Replicas = 3
	for i, watches := range []int{400, 50, 400, 400} {
		var a Action
		if a, tr = sound.Decide(m, map[shard.ID]Load{1: {Watches: watches}}, tr, time.Unix(1000, 0).Add(time.Duration(i)*40*time.Second)); len(a.Homes) > 0 {
			t.Errorf("look %d: %+v", i, a)
		}
	}
}

// state is a snapshot of a map and its requests.
func state(t *testing.T, m *shard.Map, entries ...entry) []byte {
	t.Helper()
	var s sink
	if err := (&fsmSnapshot{m: m, entries: entries}).Persist(&s); err != nil {
		t.Fatal(err)
	}
	return s.Bytes()
}

// closes is a reader that says whether it was closed.
type closes struct {
	io.Reader
	err    error
	closed bool
}

func (c *closes) Close() error { c.closed = true; return c.err }

// A snapshot that is torn, of a newer version or of another cluster stops the node:
// it applies nothing on top of what it had.
func TestASnapshotThatCannotBeRestoredStopsTheNode(t *testing.T) {
	m := testMap(t, "a", "b")
	sound := state(t, m, entry{"first", 1})
	broken := errors.New("broken")
	for what, c := range map[string]struct {
		r    io.Reader
		show error
		want error
	}{
		"empty":              {bytes.NewReader(nil), nil, nil},
		"of a newer version": {bytes.NewReader(append([]byte{snapshotLevel + 1}, sound[1:]...)), nil, shard.ErrNewer},
		"cut off":            {bytes.NewReader(sound[:len(sound)-1]), nil, nil},
		"without a map":      {strings.NewReader("\x01" + `{"map":"AAAA"}`), nil, nil},
		"unreadable":         {io.MultiReader(bytes.NewReader(sound[:5]), &closes{Reader: errReader{broken}}), nil, broken},
		"of another cluster": {bytes.NewReader(sound), ErrForeign, ErrForeign},
	} {
		f := newFSM(func(*shard.Map) error { return c.show }, func() {})
		f.m = m
		r := &closes{Reader: c.r}
		err := f.Restore(r)
		if err == nil || (c.want != nil && !errors.Is(err, c.want)) || !r.closed {
			t.Errorf("%s: %v, closed %v", what, err, r.closed)
		}
		if told := <-f.broken; told == nil {
			t.Errorf("%s: the node is not told", what)
		}
		if out := f.applyCommand(t, shard.Command{IfVersion: 1, Change: shard.Split{Shard: 1, At: []string{"c"}}}); out.err == nil || f.m != m {
			t.Errorf("%s: it goes on", what)
		}
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

// What a snapshot has replaces what the node had: the map is shown, and requests that
// are not in it were not made.
func TestASnapshotReplacesWhatTheNodeHad(t *testing.T) {
	m := testMap(t, "a", "b")
	var shown []*shard.Map
	f := newFSM(func(m *shard.Map) error { shown = append(shown, m); return nil }, func() {})
	f.ledger.add(entry{"before", 7})
	r := &closes{Reader: bytes.NewReader(state(t, m, entry{"first", 1}))}
	if err := f.Restore(r); err != nil || !r.closed {
		t.Fatalf("%v, closed %v", err, r.closed)
	}
	if len(shown) != 1 || shown[0] != f.m || f.m.Version != 1 || len(f.m.Shards) != 2 {
		t.Errorf("shown %v, and the node has %+v", shown, f.m)
	}
	if _, ok := f.ledger.find("before"); ok {
		t.Error("a request that is not in the snapshot counts as made")
	}
	if v, ok := f.ledger.find("first"); !ok || v != 1 {
		t.Error("a request of the snapshot is not known")
	}
	// Before the cluster is founded there is no map.
	if err := f.Restore(io.NopCloser(bytes.NewReader(state(t, nil, entry{"x", 1})))); err != nil || f.m != nil || len(shown) != 1 {
		t.Errorf("%v: map %v, shown %d", err, f.m, len(shown))
	}
	if err := f.Restore(&closes{Reader: bytes.NewReader(state(t, m)), err: errors.New("cannot close")}); err == nil {
		t.Error("an error of the file is lost")
	}
}

// failing is a sink whose disk is full.
type failing struct {
	sink
	cancelled bool
}

func (*failing) Write([]byte) (int, error) { return 0, errors.New("no space left") }
func (f *failing) Cancel() error           { f.cancelled = true; return nil }

// A snapshot that cannot be written is cancelled, not closed as if it were whole.
func TestASnapshotThatCannotBeWrittenIsCancelled(t *testing.T) {
	f := &failing{}
	if err := (&fsmSnapshot{m: testMap(t, "a", "b")}).Persist(f); err == nil || !f.cancelled || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("%v, cancelled %v", err, f.cancelled)
	}
}

// A map that cannot be shown is not applied, and a request that was refused may be
// made again.
func TestWhatIsNotAppliedIsNotRemembered(t *testing.T) {
	var failed error
	f := newFSM(func(*shard.Map) error { return failed }, func() {})
	f.m = testMap(t, "a", "b")
	stale := shard.Command{RequestID: "r", IfVersion: 9, Change: shard.Split{Shard: 1, At: []string{"c"}}}
	if out := f.applyCommand(t, stale); !errors.Is(out.err, shard.ErrRefused) || f.failed != nil {
		t.Errorf("%+v, %v", out, f.failed)
	}
	stale.IfVersion = 1
	if out := f.applyCommand(t, stale); out.err != nil || out.version != 2 {
		t.Errorf("%+v", out)
	}
	failed = ErrForeign
	before := f.m
	out := f.applyCommand(t, shard.Command{RequestID: "s", IfVersion: 2, Change: shard.Split{Shard: 2, At: []string{"x"}}})
	if !errors.Is(out.err, ErrForeign) || f.m != before {
		t.Errorf("%+v, map of version %d", out, f.m.Version)
	}
	if _, ok := f.ledger.find("s"); ok {
		t.Error("a request that was not applied counts as made")
	}
}

// The board refuses the map of another cluster, and does not go back.
func TestTheBoardOnlyGoesForward(t *testing.T) {
	b := newBoard()
	if m, d := b.since("c", 0); m != nil || d != nil {
		t.Error("an empty board has a map")
	}
	second := testMap(t, "a", "b")
	second.Version = 2
	_, changed := b.watch()
	if err := b.show(second); err != nil {
		t.Fatal(err)
	}
	<-changed
	_, changed = b.watch()
	for version := range uint64(3) {
		m := testMap(t, "c", "d")
		m.Version = version
		if err := b.show(m); err != nil {
			t.Error(err)
		}
	}
	foreign := testMap(t, "a", "b")
	foreign.ClusterID, foreign.Version = "other", 9
	if err := b.show(foreign); !errors.Is(err, ErrForeign) {
		t.Errorf("of another cluster: %v", err)
	}
	if m, _ := b.watch(); m != second {
		t.Errorf("shows %+v", m)
	}
	select {
	case <-changed:
		t.Error("told of a change")
	default:
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
		t.Error("which names are numbered")
	}
}

// How long a node that comes and goes is given no shards.
func TestHowLongANodeIsHeld(t *testing.T) {
	const settle = 2 * time.Second
	for returns, want := range map[int]time.Duration{
		0: settle, 1: settle, 2: holdFirst, 3: 2 * holdFirst, 4: 4 * holdFirst, 6: 16 * holdFirst, 7: holdMost, 100: holdMost,
	} {
		if got := (presence{returns: returns}).hold(settle); got != want {
			t.Errorf("after %d returns: %v, want %v", returns, got, want)
		}
	}
	if got := (presence{returns: 2}).hold(time.Hour); got != time.Hour {
		t.Errorf("a longer settle time: %v", got)
	}
	start := time.Unix(1000, 0)
	for what, c := range map[string]struct {
		states  []shard.State
		lives   time.Duration // between them
		returns int
	}{
		"one that stays":           {[]shard.State{shard.Alive, shard.Alive}, time.Second, 0},
		"one return":               {[]shard.State{shard.Alive, shard.Dead, shard.Alive}, time.Second, 1},
		"two":                      {[]shard.State{shard.Alive, shard.Dead, shard.Alive, shard.Dead, shard.Alive}, time.Second, 2},
		"suspected between":        {[]shard.State{shard.Alive, shard.Suspect, shard.Dead, shard.Suspect, shard.Alive}, time.Second, 1},
		"suspected only":           {[]shard.State{shard.Alive, shard.Suspect, shard.Alive, shard.Suspect, shard.Alive}, time.Second, 0},
		"calm, but just not":       {[]shard.State{shard.Alive, shard.Dead, shard.Alive, shard.Dead, shard.Alive}, calmAfter - 1, 2},
		"calm":                     {[]shard.State{shard.Alive, shard.Dead, shard.Alive, shard.Dead, shard.Alive}, calmAfter, 1},
		"one that says goodbye":    {[]shard.State{shard.Alive, shard.Dead, shard.Alive, shard.Left, shard.Alive}, time.Second, 0},
		"dead for long in between": {[]shard.State{shard.Dead, shard.Alive, shard.Dead, shard.Alive}, time.Second, 2},
	} {
		var h History
		for i, s := range c.states {
			h.presence = h.observe([]shard.Member{member("a", s, start.Add(time.Duration(i)*c.lives))})
		}
		if got := h.presence["a"].returns; got != c.returns {
			t.Errorf("%s: %d returns, want %d", what, got, c.returns)
		}
	}
	// The time of a node's life is counted from what gossip says last.
	p := presence{state: shard.Alive, since: start}.observe(member("a", shard.Alive, start.Add(calmAfter)))
	p.returns = 1
	if p = p.observe(member("a", shard.Dead, start.Add(calmAfter+time.Second))); p.returns != 1 {
		t.Error("a node that has come anew counts as calm")
	}
	if got := new(History).observe(nil); len(got) != 0 {
		t.Errorf("of nobody: %v", got)
	}
}

// Whether a cut has parted the watches is judged when all its parts have been seen
// for the patience: where most watches are at every part, they are not cut for them
// again until there are twice as many.
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
		for _, h := range tr.judgeCuts(m, loads, patience, now) {
			if got[h.Shard] = h.Home.Whole; h.Home.Parting != 0 {
				t.Errorf("%s: shard %d is judged again", what, h.Shard)
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
		t.Error("cut again before it is known what the cut before did")
	}
}

// A shard of which a cut was just judged, or that joins its neighbour, is left alone
// in the same look; a configuration of the voters is told at once.
func TestAShardIsChangedOnceALook(t *testing.T) {
	b := Balance{Split: true, SplitWatches: 100, SplitBytes: 100, MaxShards: 10, Merge: true}
	hot := map[shard.ID]Load{1: {Watches: 1000, Bytes: 1000}, 2: {Watches: 1000, Bytes: 1000}}
	m := shardsOf(t, 2)
	m.Shards[0].Home.Parting = 1000
	if a := watched(b, m, hot, 0); len(a.Homes) != 1 || !slices.Equal(a.Splits, []Cut{{Shard: 2}}) {
		t.Errorf("one is judged: %+v", a)
	}
	m = shardsOf(t, 3)
	r, err := planner.Together(m, 1, 2)
	if err == nil {
		m, err = shard.Apply(m, shard.Command{IfVersion: 1, Change: shard.Rehome{Homes: r.Homes}})
	}
	if err != nil {
		t.Fatal(err)
	}
	hot[3] = hot[1]
	if a := watched(b, m, hot, 0); len(a.Homes) != 0 || !slices.Equal(a.Splits, []Cut{{Shard: 3}}) {
		t.Errorf("two join: %+v", a)
	}
	told := 0
	f := newFSM(nil, func() { told++ })
	f.StoreConfiguration(1, raft.Configuration{})
	if told != 1 {
		t.Error("not told that the voters may have changed")
	}
}
