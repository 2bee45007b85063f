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

// past has the parts of etcd's log that watches need. A part is read once for all watches of a range,
// and its bytes count against the budget. leastPart bytes are reserved before the read: a watch that
// waits for them is an entry in a list, and clients take turns. A larger result is kept as far as the
// budget allows.
//
// A watch holds no part: it takes one message's worth at a time, when its client reads. A part
// is spare if no watch has taken events from it for a while: it is dropped as soon as another part
// needs its bytes, and read again if a watch needs it. So a client that does not read holds
// one message for each of its streams, independent of its watches, and clients that resume at the
// same revisions repeatedly cost etcd one read per minute.
//
//	want ─▶ waiting ─budget─▶ loading ─▶ loaded ─keepPart─▶ spare ─keepSpare─▶ gone
//	                             └─▶ failed ─fetchRetry─▶ gone
type past struct {
	of *Streams

	mu      sync.Mutex
	closed  bool                // guarded by mu; no new reads
	paces   paces               // guarded by mu
	parts   map[pastKey][]*part // guarded by mu
	running sync.WaitGroup      // waiting and loading parts; none is added after closed
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
	// from is the first revision. When the part is loaded, batches has all revisions
	// before next; until then, next is the end of the requested revisions.
	from, next kv.Revision
	batches    []kv.Batch

	state  partState
	size   int                     // bytes reserved in the budget
	holder budget.Client           // the client whose budget has these bytes: of the first watch
	riders map[*watch]kv.Revision  // the waiting watches, and their next revisions
	wait   *budget.Waiter          // waits for these bytes
	paced  bool                    // waits for the end of its holder's pause
	ctx    context.Context         //nolint:containedctx // ends with its riders
	cancel context.CancelCauseFunc // stops loading
	spare  bool                    // it is loaded, and may be dropped for other parts
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
	// leastPart is the number of bytes reserved for a part. mostPart is the maximum size of a part,
	// except for a single revision that is larger. For each part etcd reads its whole log from the
	// part's first revision on, and blocks writes meanwhile. So a part keeps everything that was read
	// if the budget allows it, and a client that does not read causes one read.
	leastPart = 64 << 10
	mostPart  = 8 << 20
	// shareWithin is the distance in revisions within which a watch waits for a part
	// that begins before its own next revision.
	shareWithin = 1000
	// keepPart is the time for which a part is kept after a watch last took events from it.
	// keepSpare is the time for which it is then kept as spare, unless another part needs its bytes. Each
	// read blocks etcd's writes for a while, so avoid a read for every client that resumes.
	keepPart  = 3 * time.Second
	keepSpare = time.Minute
	// fetchRetry is the pause after a failed read.
	fetchRetry = time.Second
)

func newPast(x *Streams) *past {
	return &past{of: x, parts: make(map[pastKey][]*part), paces: make(paces)}
}

// run stops all reads when ctx ends, and waits for them.
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

// take returns the events in w's range from its next revision on, about one message's
// worth, and the revision to continue from. If they are not read yet, w is woken when they are, or
// when their read fails; see watch.fetched. Called by the stream's pump.
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
			// No client waits for the memory of another one, which may not read.
		case x.paced && x.holder.Name != w.s.holder.Name:
			// No client waits for the pause of another one.
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

// dropSpareLocked drops all spare parts, because another part needs their bytes.
func (p *past) dropSpareLocked() {
	for _, list := range p.parts {
		for _, x := range slices.Clone(list) {
			if x.spare {
				p.dropLocked(x)
			}
		}
	}
}

// rest returns the function of the part's idle timer: it makes the part spare after keepPart, or drops
// it if another part waits for bytes. It drops a spare part after keepSpare.
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

// cut returns one message's worth of the part from a revision on, at least one revision,
// and the revision to continue from.
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

// rideLocked makes w wait for the part: it is woken when the part is loaded or dropped.
func (p *past) rideLocked(x *part, w *watch) {
	if w.rides != nil && w.rides != x {
		p.leaveLocked(w)
	}
	w.rides, x.riders[w] = x, w.next
}

// leave ends w's wait for a part.
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

// wakeLocked wakes all waiting watches.
func (x *part) wakeLocked() {
	for w := range x.riders {
		w.rides = nil
		w.task.Wake()
	}
	clear(x.riders)
}

// dropLocked drops the part. It wakes its waiting watches, if any, which then take another part.
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
		} // else load calls Done
	case partLoads: // load releases its bytes
	default:
		p.of.cfg.Budget.Give(x.holder, budget.CatchUps, int64(x.size))
	}
	x.batches = nil
	if was == partFailed {
		for w := range x.riders {
			w.deliver(&fetched{}) // opening the window shows whether its keys are still served
		}
	}
	x.wakeLocked()
}

// expire returns the function of a failed part's idle timer: it drops the part, so that its
// watches retry.
func (p *past) expire(x *part) func() {
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.dropLocked(x)
	}
}

// failLocked makes the waiting watches retry after fetchRetry.
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

// away returns the time since which all reads for w have failed because etcd is unavailable; 0: the
// last read has not, or w waits for its client's pace, for memory or for the window.
func (p *past) away(w *watch) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.rides == nil || w.rides.state != partFailed || w.away.IsZero() {
		return 0
	}
	return time.Since(w.away)
}

// caughtUp records that w has reached the window.
func (p *past) caughtUp(w *watch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.away = time.Time{}
}

// load reads the part. Its bytes are reserved.
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
	if gone || x.state == partGone { // no watch needs it anymore
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
		if x.wakeLocked(); h.Next == x.from { // the shared read returned no revision of this part: retry
			p.dropLocked(x)
		}
	}
}

// keepLocked reserves the bytes of all that was read. If that fails, it keeps the revisions that fit
// into the bytes reserved before, and at least one.
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
		h.Batches = slices.Delete(h.Batches, last, last+1) // slices.Delete clears the freed element
	}
	p.of.cfg.Budget.Settle(x.holder, budget.CatchUps, int64(x.size), int64(size))
	x.size = size
}

// partOverhead is the size of a part without its batches, in bytes.
const partOverhead = 512

// readPaced reads the part once its client may read, and records how long etcd took. It reads up to
// the newest revision, so that the window has not moved past the part when the watch reaches it.
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
	if x.ctx.Err() != nil { // etcd does not stop reading
		took = time.Since(began)
	}
	size := p.of.cfg.Router.RevisionSize()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paces.took(x.holder.Name, took, time.Now(), max(p.of.cfg.Router.Newest(), x.from)-x.from, size)
	return h, err
}

// read reads the part from etcd. A *kv.CompactedError is etcd's, or reports that the
// lineage has ended.
func (p *past) read(x *part) (etcd.LogPage, error) {
	h, err := p.of.cfg.Log.History(x.ctx, etcd.HistoryRequest{Range: x.key.rng, From: x.from, Before: x.next, PrevKV: x.key.prev, MaxBytes: mostPart})
	if p.of.cfg.Router.History().Lineage != x.key.lineage || overtaken(err) {
		return etcd.LogPage{}, &kv.CompactedError{Requested: x.from, Floor: x.from} // the events may be of the next lineage
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
