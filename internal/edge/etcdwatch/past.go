package etcdwatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// past has the parts of etcd's log that watches need, read once for all watches of a range. Its
// bytes are of the budget. Some are reserved before etcd is asked: a watch that waits for
// them is an entry in a list, and clients take turns. A read that brings more keeps as much
// as the budget has.
//
// A watch holds no part of it: it takes a message's worth at a time, when its client
// reads. A part of which no watch has taken events for a while is spare: it is dropped as soon as another
// part needs its bytes, and read again if a watch needs it. So a client that does not read holds
// one message for each of its streams, independent of its watches, and clients that come back to the
// same revisions again and again cost etcd one read a minute.
//
//	want ─▶ waiting ─budget─▶ loading ─▶ loaded ─keepPart─▶ spare ─keepSpare─▶ gone
//	                             └─▶ failed ─fetchRetry─▶ gone
type past struct {
	of *Streams

	mu      sync.Mutex
	closed  bool                // guarded by mu; nothing more is read
	paces   paces               // guarded by mu
	parts   map[pastKey][]*part // guarded by mu
	running sync.WaitGroup      // parts that wait or load; not after closed
}

// pastKey identifies the watches that can share a part.
type pastKey struct {
	rng     kv.Range
	prev    bool
	lineage uint64
}

// part is a part of the log. past.mu guards all of it; the contents of batches never change.
type part struct {
	key pastKey
	// from is the first revision. When it is loaded, all before next is in batches;
	// till then, next is the first revision that is not wanted.
	from, next kv.Revision
	batches    []kv.Batch

	state  partState
	size   int                     // bytes of the budget, once it has them
	holder budget.Client           // of those bytes: the client of the first watch that wanted them
	riders map[*watch]kv.Revision  // to be woken, and their next revisions
	wait   *budget.Waiter          // for those bytes
	paced  bool                    // its holder's pause is not over
	ctx    context.Context         //nolint:containedctx // ends with its riders
	cancel context.CancelCauseFunc // ends loading
	spare  bool                    // it is loaded, and others may have its bytes
	idle   *time.Timer             // makes it spare, and drops it
}

type partState uint8

const (
	partWaits partState = iota
	partLoads
	partLoaded
	partFailed
	partGone
)

const (
	// leastPart is how many bytes are reserved for a part, and mostPart how many it may have,
	// but for one revision that is larger. For each part etcd reads all of its log from the
	// part's first revision on, and holds its writes meanwhile. So a part keeps all that has come,
	// if there is memory for it, and a client that does not read causes one read.
	leastPart = 64 << 10
	mostPart  = 8 << 20
	// shareWithin is the distance in revisions within which a watch waits for a part
	// that begins before its own next revision.
	shareWithin = 1000
	// keepPart is how long a part is kept for certain after a watch last took events of it, and
	// keepSpare how long it is kept then, unless another part needs its bytes. For each read etcd holds its
	// writes for a while, so that the log is not to be read again for every client that comes back.
	keepPart  = 3 * time.Second
	keepSpare = time.Minute
	// fetchRetry is the pause after an attempt that etcd did not answer.
	fetchRetry = time.Second
)

func newPast(x *Streams) *past {
	return &past{of: x, parts: make(map[pastKey][]*part), paces: make(paces)}
}

// run ends all reads when ctx ends, and waits for them.
func (p *past) run(ctx context.Context) {
	<-ctx.Done()
	p.mu.Lock()
	p.closed = true
	for _, list := range p.parts {
		for _, x := range slices.Clone(list) {
			p.dropLocked(x)
		}
	}
	p.mu.Unlock()
	p.running.Wait()
}

// take returns the events in w's range from its next revision on, about a message's
// worth, and the revision to continue with. If there are none yet, w is woken when they arrive, or
// when their read fails; see watch.fetched. For the pump that is at w.
func (p *past) take(w *watch) (batches []kv.Batch, next kv.Revision, ok bool) {
	key := pastKey{rng: w.rng, prev: w.prev, lineage: w.lineage}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.parts[key] {
		switch {
		case w.next < x.from:
		case x.state == partLoaded && w.next < x.next:
			x.spare, w.away = false, time.Time{}
			x.idle.Reset(keepPart)
			batches, next = x.cut(w.next)
			return batches, next, true
		case x.state == partWaits && x.holder.Name != w.s.holder.Name && x.wait.Capped():
			// Another client must not wait for one that does not read.
		case x.paced && x.holder.Name != w.s.holder.Name:
			// Nor for the pause of one that has read.
		case x.state != partLoaded && w.next < min(x.next, x.from+shareWithin):
			p.rideLocked(x, w)
			return nil, 0, false
		}
	}
	if p.closed {
		return nil, 0, false
	}
	x := &part{key: key, from: w.next, next: w.before, size: leastPart, holder: w.s.holder, riders: make(map[*watch]kv.Revision)}
	x.ctx, x.cancel = context.WithCancelCause(context.Background())
	p.parts[key] = append(p.parts[key], x)
	p.rideLocked(x, w)
	p.running.Add(1)
	var err error
	if x.wait, err = p.of.cfg.Budget.Wait(x.holder, budget.CatchUps, int64(x.size), func() { go p.load(x) }); err != nil {
		p.running.Done()
		x.size = 0
		p.failLocked(x, err)
	} else if x.wait.Waited() {
		p.dropSpareLocked()
	}
	return nil, 0, false
}

// dropSpareLocked drops all spare parts: another one needs their bytes.
func (p *past) dropSpareLocked() {
	for _, list := range p.parts {
		for _, x := range slices.Clone(list) {
			if x.spare {
				p.dropLocked(x)
			}
		}
	}
}

// rest makes a part spare when no watch has taken events of it for keepPart, and drops it later, or at
// once if another part waits for bytes.
func (p *past) rest(x *part) func() {
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		waits := func(list []*part) bool {
			return slices.ContainsFunc(list, func(y *part) bool { return y.state == partWaits })
		}
		if x.state == partGone {
			return
		}
		if x.spare || slices.ContainsFunc(slices.Collect(maps.Values(p.parts)), waits) {
			p.dropLocked(x)
			return
		}
		x.spare = true
		x.idle.Reset(keepSpare)
	}
}

// cut returns a message's worth of the part from a revision on, one revision at least,
// and the revision to continue with.
func (x *part) cut(from kv.Revision) ([]kv.Batch, kv.Revision) {
	i, _ := slices.BinarySearchFunc(x.batches, from, func(b kv.Batch, r kv.Revision) int { return int(b.Revision - r) })
	rest := x.batches[i:]
	for n, size := 0, 0; n < len(rest); n++ {
		if size += rest[n].Size(); size >= messageBytes && n+1 < len(rest) {
			return rest[: n+1 : n+1], rest[n+1].Revision
		}
	}
	return rest, x.next
}

// rideLocked has w woken when the part is there or has failed.
func (p *past) rideLocked(x *part, w *watch) {
	if w.rides != nil && w.rides != x {
		p.leaveLocked(w)
	}
	w.rides, x.riders[w] = x, w.next
}

// leave says that w wants nothing more.
func (p *past) leave(w *watch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveLocked(w)
}

func (p *past) leaveLocked(w *watch) {
	x := w.rides
	if x == nil {
		return
	}
	w.rides = nil
	if delete(x.riders, w); len(x.riders) == 0 {
		p.dropLocked(x)
	}
}

// wakeLocked wakes all riders.
func (x *part) wakeLocked() {
	for w := range x.riders {
		w.rides = nil
		w.task.Wake()
	}
	clear(x.riders)
}

// dropLocked lets go of the part. Its riders, if there are any, want another one.
func (p *past) dropLocked(x *part) {
	was := x.state
	if was == partGone {
		return
	}
	x.state = partGone
	x.cancel(errUnwanted)
	if x.idle != nil {
		x.idle.Stop()
	}
	list := slices.DeleteFunc(p.parts[x.key], func(y *part) bool { return x == y })
	if p.parts[x.key] = list; len(list) == 0 {
		delete(p.parts, x.key)
	}
	switch was {
	case partWaits:
		if x.wait.Cancel() {
			p.running.Done()
		} // else load does
	case partLoads: // load gives back its bytes
	default:
		p.of.cfg.Budget.Give(x.holder, budget.CatchUps, int64(x.size))
	}
	x.batches = nil
	if was == partFailed {
		for w := range x.riders {
			w.deliver(&fetched{}) // the window reports whether its keys are still served
		}
	}
	x.wakeLocked()
}

// expire drops a part that has failed, when it is time to try again.
func (p *past) expire(x *part) func() {
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.dropLocked(x)
	}
}

// failLocked has the riders try again in a while.
func (p *past) failLocked(x *part, err error) {
	x.state = partFailed
	var unavailable *kv.UnavailableError
	away := errors.As(err, &unavailable) && unavailable.Why == kv.EtcdUnavailable
	for w := range x.riders {
		if !away {
			w.away = time.Time{}
		} else if w.away.IsZero() {
			w.away = time.Now()
		}
	}
	x.idle = time.AfterFunc(fetchRetry, p.expire(x))
	p.of.cfg.Logger.Debug("watches wait for etcd's log", "range", x.key.rng, "from", x.from, "error", err)
}

// away returns for how long reads for w have failed because etcd is away, of which the last has just failed; 0:
// it has not, or w waits for its client's pace, for memory or for the window.
func (p *past) away(w *watch) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.rides == nil || w.rides.state != partFailed || w.away.IsZero() {
		return 0
	}
	return time.Since(w.away)
}

// caughtUp says that w has come to the window.
func (p *past) caughtUp(w *watch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.away = time.Time{}
}

// load reads the part, which has its bytes.
func (p *past) load(x *part) {
	defer p.running.Done()
	p.mu.Lock()
	gone := x.state == partGone
	if !gone {
		x.state = partLoads
	}
	p.mu.Unlock()
	var h etcd.LogPage
	var err error
	if !gone {
		h, err = p.readPaced(x)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if gone || x.state == partGone { // no watch needs it any more
		p.of.cfg.Budget.Give(x.holder, budget.CatchUps, int64(x.size))
		return
	}
	p.keepLocked(x, &h)
	var compacted *kv.CompactedError
	switch {
	case errors.As(err, &compacted):
		x.state = partFailed
		for w, wants := range x.riders {
			if wants < compacted.Floor || wants == x.from {
				w.rides = nil
				w.deliver(&fetched{err: err})
				delete(x.riders, w)
			}
		}
		p.dropLocked(x)
	case err != nil:
		p.failLocked(x, err)
	default:
		x.state, x.batches, x.next = partLoaded, h.Batches, h.Next
		x.idle = time.AfterFunc(keepPart, p.rest(x))
		for w := range x.riders {
			w.away = time.Time{}
		}
		if x.wakeLocked(); h.Next == x.from { // others had more: once more
			p.dropLocked(x)
		}
	}
}

// keepLocked takes the bytes of all that was read. Without them it keeps as many revisions as the
// reserved bytes hold, and one at least.
func (p *past) keepLocked(x *part, h *etcd.LogPage) {
	size := partOverhead
	for i := range h.Batches {
		size += h.Batches[i].Size()
	}
	grow := func() bool {
		return p.of.cfg.Budget.Grow(x.holder, budget.CatchUps, int64(size-x.size), int64(x.size))
	}
	if size > x.size {
		got := grow()
		if !got {
			p.dropSpareLocked()
			got = grow()
		}
		if got {
			x.size = size
		}
	}
	for last := len(h.Batches) - 1; size > x.size && last > 0; last-- {
		size -= h.Batches[last].Size()
		h.Next = h.Batches[last].Revision
		h.Batches = slices.Delete(h.Batches, last, last+1) // it clears the last one
	}
	p.of.cfg.Budget.Settle(x.holder, budget.CatchUps, int64(x.size), int64(size))
	x.size = size
}

// partOverhead is the size of a part without its batches, in bytes.
const partOverhead = 512

// readPaced reads the part when its client may, and notes how long that took etcd. All that has happened
// meanwhile is read with it, or the window would have moved on when the watch comes back to it.
func (p *past) readPaced(x *part) (etcd.LogPage, error) {
	begin := func() time.Duration {
		p.mu.Lock()
		defer p.mu.Unlock()
		pause := p.paces.begin(x.holder.Name, time.Now())
		if x.paced = pause > 0; !x.paced {
			x.next = max(x.next, p.of.cfg.Router.Newest()+1)
		}
		return pause
	}
	for pause := begin(); pause > 0; pause = begin() {
		if !wait.Sleep(x.ctx, pause) {
			return etcd.LogPage{}, context.Cause(x.ctx)
		}
	}
	began := time.Now()
	h, err := p.read(x)
	took := h.Took
	if x.ctx.Err() != nil { // etcd reads on
		took = time.Since(began)
	}
	size := p.of.cfg.Router.RevisionSize()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paces.took(x.holder.Name, took, time.Now(), max(p.of.cfg.Router.Newest(), x.from)-x.from, size)
	return h, err
}

// read reads the part from etcd. A *kv.CompactedError is etcd's, or says that the
// lineage has ended.
func (p *past) read(x *part) (etcd.LogPage, error) {
	h, err := p.of.cfg.Log.History(x.ctx, etcd.HistoryRequest{Range: x.key.rng, From: x.from, Before: x.next, PrevKV: x.key.prev, MaxBytes: mostPart})
	if p.of.cfg.Router.History().Lineage != x.key.lineage || overtaken(err) {
		return etcd.LogPage{}, &kv.CompactedError{Requested: x.from, Floor: x.from} // the read events may be of the next
	}
	if errors.As(err, new(*kv.CompactedError)) {
		if _, newest := p.of.view.CheckRevision(x.ctx, x.from); errors.As(newest, new(*kv.CompactedError)) {
			err = newest
		}
	}
	if err != nil {
		return etcd.LogPage{}, fmt.Errorf("read etcd's log of %v from %d: %w", x.key.rng, x.from, err)
	}
	return h, nil
}

var errUnwanted = errors.New("no watch waits for it")
