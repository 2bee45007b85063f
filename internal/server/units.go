package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/tally"
	"github.com/shardwatch/shardwatch/internal/router"
)

// units are what watches are brought up to date with that cannot be served from
// the window: deltas and states. Making one costs memory and time, and when they
// are needed, many watches need them at once. So
//
//   - they begin at a bounded number at a time, one for each connection in turn;
//     a watch that waits is an entry in a list;
//   - watches that need the same one share it: its revision, and the bytes of its
//     chunks, which are made once, or again for a watch that comes so late that they
//     were dropped;
//   - chunks are made at a bounded rate.
//
// Deltas do not wait for states: they are small.
type units struct {
	cfg      *Config
	patience patience
	keep     int // bytes of chunks that are kept for others to share
	kick     chan struct{}
	pace     pace

	mu      sync.Mutex
	closed  bool
	lanes   [2]lane            // guarded by mu
	waiting map[unitKey]*unit  // guarded by mu; not begun
	shared  map[unitKey]*unit  // guarded by mu; begun, the newest
	begun   map[*unit]struct{} // guarded by mu
	kept    []keptPart         // guarded by mu; the oldest first
	bytes   int                // guarded by mu; of kept
	stats   UnitStats          // guarded by mu
	running sync.WaitGroup     // loads and chunks being made; not after closed
}

// Bounds of units.
const (
	// holdFactor bounds how many units without a place there are, as a multiple of
	// those with one.
	holdFactor = 4
	// keepBytes bounds the chunks that are kept for others to share; so does the share of
	// the budget that is for keys of other nodes.
	keepBytes = 64 << 20
	// loadTries is how often a unit is tried whose revision is gone before all
	// shards have told what they have at it.
	loadTries = 5
)

// patience is how long units wait for watches that come later or do not read.
type patience struct {
	// share is how long others may still join a unit that has begun, and how long it
	// is held for them: the older it is, the more has happened behind it.
	share time.Duration
	// stalled is when a unit that none of its watches takes more of gives its
	// place to another one.
	stalled time.Duration
	// hold is how long such a unit is held for watches that may continue: then they
	// begin anew.
	hold time.Duration
	// sweep is how often stalled watches are looked for.
	sweep time.Duration
}

func usualPatience() patience {
	return patience{share: 10 * time.Second, stalled: 5 * time.Second, hold: time.Minute, sweep: time.Second}
}

// lane is where units wait, and how many have left it for a place and still have it.
type lane struct {
	fair.Queue[*unit]

	running int
}

// unitKey is what makes two watches need the same.
type unitKey struct {
	kind    shardwatchv1.SyncKind
	rng     kv.Range
	lineage uint64      // the history that it brings up to date with
	since   kv.Revision // of deltas
}

// delta reports whether the unit says what has changed.
func (k *unitKey) delta() bool {
	return k.kind == shardwatchv1.SyncKind_SYNC_KIND_DELTA || k.kind == shardwatchv1.SyncKind_SYNC_KIND_CONFLATED
}

// rung is the serve mode, for operators, of a watch that has such a unit.
func (k *unitKey) rung() tally.Rung {
	if k.delta() {
		return tally.Delta
	}
	return tally.Resync
}

// lane returns which of the lanes the unit waits in.
func (k *unitKey) lane() int {
	if k.delta() {
		return 0
	}
	return 1
}

// unit is one of them. units.mu guards all of it; what body is never changes.
type unit struct {
	key    unitKey
	riders map[*watch]time.Time // and since when they wait
	least  kv.Revision          // of the watches that waited for it to begin

	entry  *fair.Entry[*unit] // while it waits
	state  unitState
	placed bool // it counts among those that its lane lets run
	begun  time.Time
	taken  time.Time       // when a watch has last asked for a part
	ctx    context.Context //nolint:containedctx // ends with the unit
	cancel context.CancelFunc
	making int // chunks that are being made

	body  *router.Body
	err   error
	parts []unitPart // as far as it is known where they begin
}

type unitState uint8

const (
	unitWaits unitState = iota
	unitLoads
	unitReady // body or err is set
	unitGone
)

func newUnits(cfg *Config) *units {
	return &units{
		cfg: cfg, patience: usualPatience(), keep: int(min(keepBytes, cfg.Budget.Share(budget.Fetches))), kick: make(chan struct{}, 1), pace: pace{perSecond: cfg.ResyncRate},
		waiting: make(map[unitKey]*unit), shared: make(map[unitKey]*unit), begun: make(map[*unit]struct{}),
	}
}

// run lets units begin until ctx ends.
func (u *units) run(ctx context.Context) {
	sweep := time.NewTicker(u.patience.sweep)
	defer sweep.Stop()
	for {
		u.begin(ctx)
		select {
		case <-u.kick:
		case now := <-sweep.C:
			u.sweep(now)
		case <-ctx.Done():
			u.mu.Lock()
			u.closed = true
			u.mu.Unlock()
			u.running.Wait()
			u.dropAll()
			return
		}
	}
}

func (u *units) look() {
	select {
	case u.kick <- struct{}{}:
	default:
	}
}

// board has w wait for the unit of a key, or share the one that is there. w is
// woken when it is ready. The unit's revision is least or a later one, unless it
// has begun and is being read. Every unit must be left.
func (u *units) board(w *watch, key unitKey, least kv.Revision, client string) *unit {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if x := u.shared[key]; x != nil && u.sharesLocked(x, now) && (x.body == nil || x.body.Revision >= least) {
		x.riders[w] = now
		return x
	}
	x := u.waiting[key]
	if x == nil {
		x = &unit{key: key, riders: make(map[*watch]time.Time)}
		u.waiting[key] = x
		x.entry = u.lanes[key.lane()].Push(client, x)
		u.look()
	}
	x.riders[w], x.least = now, max(x.least, least)
	u.stats.Waiting++
	return x
}

// leave takes w off the unit; through: it has had all of it.
func (u *units) leave(x *unit, w *watch, through bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, on := x.riders[w]; !on {
		return
	}
	delete(x.riders, w)
	if x.state == unitWaits {
		u.stats.Waiting--
	}
	if through && x.placed && u.cfg.Happened != nil {
		u.cfg.Happened(Happening{What: x.key.rung().String(), Began: x.begun, From: x.key.since, Revision: x.body.Revision})
	}
	if through || len(x.riders) == 0 { // it has been made once, or is not being made
		u.freeLocked(x)
	}
	if len(x.riders) == 0 && (x.err != nil || !u.sharesLocked(x, time.Now())) {
		u.dropLocked(x)
	}
}

// sharesLocked reports whether others may join. Not a state that was asked for:
// it sees everything before the question.
func (u *units) sharesLocked(x *unit, now time.Time) bool {
	return x.state != unitWaits && x.key.kind != shardwatchv1.SyncKind_SYNC_KIND_STATE && now.Sub(x.begun) < u.patience.share
}

// begin lets units begin while there are places.
func (u *units) begin(ctx context.Context) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.lanes {
		l := &u.lanes[i]
		for l.running < u.cfg.MaxResyncs {
			x, ok := l.Pop()
			if !ok {
				break
			}
			now := time.Now()
			delete(u.waiting, x.key)
			u.shared[x.key], u.begun[x] = x, struct{}{}
			x.state, x.placed, x.begun = unitLoads, true, now
			x.ctx, x.cancel = context.WithCancel(ctx)
			l.running++
			u.stats.Begun++
			u.stats.Waiting -= len(x.riders)
			for _, since := range x.riders {
				u.stats.Waited += now.Sub(since)
			}
			least := x.least
			u.running.Go(func() { u.load(x, least) })
		}
	}
}

// load finds what is in a unit.
func (u *units) load(x *unit, least kv.Revision) {
	body, err := u.read(x, least)
	u.mu.Lock()
	defer u.mu.Unlock()
	if x.state == unitGone {
		body.Release()
		return
	}
	x.state, x.body, x.err, x.taken = unitReady, body, err, time.Now()
	x.parts = make([]unitPart, 1)
	if err != nil {
		u.freeLocked(x)
		u.unshareLocked(x)
	}
	for w := range x.riders {
		w.Wake()
	}
}

// read finds what is in a unit. Its bytes count for the client of the watch that has waited
// longest. If they do not fit, they count for another client's that waits: it is not to be
// refused because of the first.
func (u *units) read(x *unit, least kv.Revision) (*router.Body, error) {
	first, _ := u.holder(x, nil)
	body, err := u.cfg.find(x.ctx, x.key, least, first)
	if errors.As(err, new(*kv.LimitError)) {
		if other, ok := u.holder(x, &first); ok {
			return u.cfg.find(x.ctx, x.key, least, other)
		}
	}
	return body, err
}

// holder returns the client of the watch that has waited longest, of those of another client
// than the one given; false: there is none.
func (u *units) holder(x *unit, but *budget.Client) (holder budget.Client, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var longest time.Time
	for w, since := range x.riders {
		if of := w.s.holder; (but == nil || of.Name != but.Name) && (!ok || since.Before(longest)) {
			holder, longest, ok = of, since, true
		}
	}
	return holder, ok
}

// freeLocked gives the unit's place to another one.
func (u *units) freeLocked(x *unit) {
	if x.placed {
		x.placed = false
		u.lanes[x.key.lane()].running--
		u.look()
	}
}

func (u *units) unshareLocked(x *unit) {
	if u.shared[x.key] == x {
		delete(u.shared, x.key)
	}
}

// dropLocked lets go of all that the unit holds. Watches that are on it find it
// gone.
func (u *units) dropLocked(x *unit) {
	was := x.state
	x.state = unitGone
	switch was {
	case unitGone:
		return
	case unitWaits:
		delete(u.waiting, x.key)
		u.lanes[x.key.lane()].Remove(x.entry)
	case unitLoads, unitReady:
		x.cancel()
	}
	u.freeLocked(x)
	u.unshareLocked(x)
	delete(u.begun, x)
	for i := range x.parts {
		x.parts[i].wakeLocked()
	}
	x.body.Release()
	x.body, x.parts = nil, nil
}

// sweep takes places back from units that have stalled, and drops those that
// no watch has continued with.
func (u *units) sweep(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var held []*unit
	for x := range u.begun {
		if x.state != unitReady || x.making > 0 {
			continue // it is at work
		}
		idle := now.Sub(x.taken)
		if idle > u.patience.stalled {
			u.freeLocked(x)
		}
		if idle > u.patience.hold || len(x.riders) == 0 && !u.sharesLocked(x, now) {
			u.dropLocked(x)
		} else if !x.placed {
			held = append(held, x)
		}
	}
	if over := len(held) - holdFactor*u.cfg.MaxResyncs; over > 0 {
		slices.SortFunc(held, func(a, b *unit) int { return a.taken.Compare(b.taken) })
		for _, x := range held[:over] {
			u.dropLocked(x)
		}
	}
}

// dropAll lets go of all units, when none begins any more.
func (u *units) dropAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for x := range u.begun {
		u.dropLocked(x)
	}
}

// find reads what a unit is made of: at one revision over all shards, which is
// least, known to exist, or a later one. Keys of other nodes count for holder.
func (c *Config) find(ctx context.Context, key unitKey, least kv.Revision, holder budget.Client) (*router.Body, error) {
	for try := 1; ; try++ {
		body, err := c.findOnce(ctx, key, least, holder)
		if err == nil && body.Lineage != key.lineage {
			body.Release()
			return nil, &kv.LineageError{Requested: key.lineage, Current: body.Lineage}
		}
		var compacted *kv.CompactedError
		if !errors.As(err, &compacted) || key.delta() && compacted.Requested == key.since+1 {
			return body, err
		}
		if try == loadTries {
			return nil, &kv.UnavailableError{
				Why: kv.NotReady, RetryAfter: kv.RetrySoon,
				Detail: fmt.Sprintf("the list's revision was compacted %d times before all shards had listed: %v", try, err),
			}
		}
	}
}

func (c *Config) findOnce(ctx context.Context, key unitKey, least kv.Revision, holder budget.Client) (*router.Body, error) {
	req := router.ReadRequest{Range: key.rng, Holder: holder}
	if key.kind != shardwatchv1.SyncKind_SYNC_KIND_STATE {
		now, err := c.Router.Present(ctx, key.rng)
		if err != nil {
			return nil, err
		}
		req.Revision, req.Exists = max(now, least), true
	}
	reading, err := c.Router.Read(ctx, req)
	switch {
	case err != nil:
		return nil, err
	case key.delta():
		return reading.Changes(ctx, key.since)
	}
	return reading.Hold(ctx)
}

// UnitStats counts units; see Server.Units.
type UnitStats struct {
	// Waiting is how many watches wait for a unit to begin, Running how many
	// units have begun and were not sent whole to anybody yet.
	Waiting, Running int
	// Begun is how many have begun, Waited how long watches have waited for that,
	// together.
	Begun  int64
	Waited time.Duration
	// Made are the bytes of the chunks that were made. What several watches share
	// counts once.
	Made int64
	// Sent is what watches were sent, by kind.
	Sent [unitKinds]SentUnits
}

// unitKinds is one more than the highest shardwatchv1.SyncKind.
const unitKinds = 5

// SentUnits counts what watches were sent of one kind of unit.
type SentUnits struct {
	Units, Keys, Bytes int64
}

// Units returns what has become of units since the start.
func (s *Server) Units() UnitStats {
	u := s.units
	u.mu.Lock()
	defer u.mu.Unlock()
	out := u.stats
	out.Running = u.lanes[0].running + u.lanes[1].running
	return out
}
