package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// Watcher is a watch of one range: a position that lives on one node after
// another. Read it with [Watcher.Next] or [Watcher.Updates] from one
// goroutine at a time, and close it, or end its context, when done.
type Watcher struct {
	c       *Client
	opts    watchOptions
	started chan struct{} // closed by handle, with the first start
	wake    chan struct{} // capacity 1: the queue or err has changed
	stop    func() bool   // detaches from the context

	mu       sync.Mutex // guards all below
	asm      assembler
	queue    []Update
	bytes    int     // of queue
	read     Update  // the last one that the consumer took, without its contents
	on       *stream // nil: nowhere
	id       int64   // of the watch on the stream
	paused   bool    // the queue was full; placed again when it is empty
	timer    *time.Timer
	failures int       // attempts in a row that failed
	since    time.Time // when the node started the watch
	tried    tried
	hints    []string // addresses named by the last node
	// floors are the nodes that no longer have what comes next, and from where
	// on they have it. One that was loaded anew has less than others.
	floors   map[string]int64
	cluster  string    // whose revisions they are; "": not known
	nodeName string    // the node that started it last
	reason   error     // why it left that node
	freshAt  time.Time // what has arrived is not older; zero: not known
	resumes  int
	units    Units
	err      error // why it ended; nil while it lives
}

// Watch follows a range. It returns at once; the watch starts in the
// background, and goes on at one node after the other until ctx ends or the
// watcher is closed. What is wrong with the request is returned by
// [Watcher.Next]. Be ready for units, which take the place of events that are
// no longer to be had ([KindDelta], [KindResync]), or say [WithoutSync].
func (c *Client) Watch(ctx context.Context, r Range, opts ...WatchOption) *Watcher {
	w := &Watcher{
		c: c, started: make(chan struct{}), wake: make(chan struct{}, 1),
		opts: watchOptions{buffer: c.cfg.Buffer},
		stop: func() bool { return true },
	}
	for _, o := range opts {
		o(&w.opts)
	}
	w.asm = assembler{
		rng: r, prevKV: w.opts.prevKV, noSync: w.opts.noSync, conflate: w.opts.conflate, maxStaleness: w.opts.maxStale,
		maxUnit: c.cfg.MaxUnit, wantState: w.opts.state, token: w.opts.token, lineage: w.opts.lineage,
	}
	if w.opts.from > 0 {
		w.asm.positioned, w.asm.position = true, w.opts.from-1
	}
	if err := errors.Join(r.validate(), w.opts.validate()); err != nil {
		w.err = fmt.Errorf("watch %v: %w", r, err)
		return w
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		w.err = ErrClosed
		return w
	}
	c.watchers[w] = struct{}{}
	c.mu.Unlock()
	w.setStop(context.AfterFunc(ctx, func() { w.end(context.Cause(ctx)) }))
	select {
	case <-c.first:
		w.place()
	default: // open closes first and then places all watchers, this one among them
	}
	return w
}

func (o *watchOptions) validate() error {
	n := 0
	for _, set := range []bool{o.from != 0, o.token != nil, o.state} {
		if set {
			n++
		}
	}
	var errs []error
	if n > 1 {
		errs = append(errs, fmt.Errorf("%w: FromRevision, FromToken and WithState exclude each other", ErrInvalid))
	}
	if o.from < 0 {
		errs = append(errs, fmt.Errorf("%w: start revision %d is negative", ErrInvalid, o.from))
	}
	if o.conflate != 0 && (o.conflate < 10*time.Millisecond || o.conflate > time.Hour) {
		errs = append(errs, fmt.Errorf("%w: conflation (%v) must be between 10ms and 1h", ErrInvalid, o.conflate))
	}
	if o.conflate != 0 && (o.noSync || o.prevKV) {
		errs = append(errs, fmt.Errorf("%w: WithConflation excludes WithoutSync and WithPrevKV: it merges events into units", ErrInvalid))
	}
	if o.maxStale != 0 && o.maxStale < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("%w: max staleness (%v) must be at least 100ms", ErrInvalid, o.maxStale))
	}
	if o.buffer <= 0 {
		errs = append(errs, fmt.Errorf("%w: a buffer of %d bytes holds nothing", ErrInvalid, o.buffer))
	}
	return errors.Join(errs...)
}

// Next returns the next update. It waits for one until ctx ends, which does
// not end the watch. Once the watch has ended, and what had arrived before has
// been returned, it returns why: the cause of the watch's context,
// [ErrClosed], [ErrInvalid], [ErrDenied], [ErrUnauthenticated] or [ErrTooBig],
// and [WithoutSync] also [*CompactedError] or [ErrLineage].
func (w *Watcher) Next(ctx context.Context) (Update, error) {
	for {
		u, ok, err := w.take()
		if ok || err != nil {
			return u, err
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return Update{}, context.Cause(ctx)
		}
	}
}

// Updates returns the updates one after the other, and, unless the watcher
// was closed, at last why the watch ended. Leaving the loop does not end the
// watch.
func (w *Watcher) Updates() iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		for {
			u, err := w.Next(context.Background())
			if errors.Is(err, ErrClosed) || !yield(u, err) || err != nil {
				return
			}
		}
	}
}

// take takes the next update off the queue.
func (w *Watcher) take() (Update, bool, error) {
	w.mu.Lock()
	if len(w.queue) == 0 {
		defer w.mu.Unlock()
		return Update{}, false, w.err
	}
	u := w.queue[0]
	w.queue[0] = Update{} // lets go of its bytes
	w.queue = w.queue[1:]
	w.bytes -= u.size()
	w.read = Update{Revision: u.Revision, Lineage: u.Lineage}
	again := w.paused && len(w.queue) == 0
	if again {
		w.paused = false
	}
	if len(w.queue) == 0 {
		w.queue = nil
	}
	w.mu.Unlock()
	if again {
		w.place()
	}
	return u, true, nil
}

// Close ends the watch and lets go of what it holds. It may be called twice.
func (w *Watcher) Close() { w.end(ErrClosed) }

// Started is closed once a node has started the watch for the first time: what
// is written from then on will be delivered.
func (w *Watcher) Started() <-chan struct{} { return w.started }

// Revision returns the revision up to which everything has been read by the
// consumer, or was not asked for; 0 when the watch has not started. A watch
// that goes on elsewhere starts at the revision behind it.
func (w *Watcher) Revision() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	revision, _ := w.positionLocked()
	return revision
}

// Lineage returns the history that [Watcher.Revision] belongs to; 0 when the
// watch has not started.
func (w *Watcher) Lineage() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, lineage := w.positionLocked()
	return lineage
}

// Token returns the consumer's position for [FromToken], which goes on behind it
// in another process, too, and after the cluster was restarted. It is about what
// [Watcher.Next] has returned: keep it once that is dealt with. It holds for this
// range in this cluster, and is no secret. Nil while the watch has not started.
func (w *Watcher) Token() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	revision, lineage := w.positionLocked()
	if w.asm.token != nil && w.read.Revision == 0 {
		return w.asm.token // nothing has been read behind it
	}
	if lineage == 0 || w.cluster == "" {
		return nil
	}
	return token(w.cluster, rangeFromWire(w.asm.rng.wire()), lineage, revision)
}

// positionLocked returns how far the consumer is, and in which history.
func (w *Watcher) positionLocked() (int64, uint64) {
	if len(w.queue) == 0 && w.asm.positioned {
		return w.asm.position, w.asm.lineage
	}
	return w.read.Revision, w.read.Lineage
}

// WatcherStats are a watcher's figures.
type WatcherStats struct {
	// Node is the name of the node that serves the watch, or served it last.
	Node string
	// Attached: a node serves the watch now. Otherwise one is being looked
	// for, or the consumer does not keep up.
	Attached bool
	// Resumes counts the times it went on after its first start.
	Resumes int
	// Updates and Bytes wait for the consumer.
	Updates, Bytes int
	// Units are those that have arrived so far.
	Units
	// FreshAt is a time at which etcd had nothing newer than what has arrived:
	// that is not older than time.Since(FreshAt). The zero time: not known. It
	// moves with the nodes' signs of life, about three times in Config.Silence.
	FreshAt time.Time
}

// Stats returns the watcher's figures as they are now.
func (w *Watcher) Stats() WatcherStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return WatcherStats{
		Node: w.nodeName, Attached: w.on != nil && w.asm.created, Resumes: w.resumes,
		Updates: len(w.queue), Bytes: w.bytes, Units: w.units, FreshAt: w.freshAt,
	}
}

// RequestProgress asks the node for progress now rather than at its interval;
// see [WithProgress]. It does nothing while no node serves the watch.
func (w *Watcher) RequestProgress() {
	w.mu.Lock()
	s := w.on
	w.mu.Unlock()
	if s != nil {
		s.askProgress()
	}
}

// setStop keeps what detaches the watcher from its context.
func (w *Watcher) setStop(stop func() bool) {
	w.mu.Lock()
	ended := w.err != nil
	w.stop = stop
	w.mu.Unlock()
	if ended {
		stop()
	}
}

// place puts the watch on a stream, if it lives and is on none.
func (w *Watcher) place() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.placeLocked()
}

func (w *Watcher) placeLocked() {
	if w.err != nil || w.on != nil || w.paused || w.timer != nil {
		return
	}
	if t := w.c.topology.Load(); t != nil && t.shards.ClusterID != w.cluster {
		if w.cluster != "" && w.asm.noSync {
			w.endLocked(fmt.Errorf("watch %v: another cluster answers: %w", w.asm.rng, ErrLineage))
			return
		}
		if w.cluster != "" {
			w.asm.move()
		}
		w.cluster = t.shards.ClusterID
	}
	addr := w.c.pick(w.asm.rng, w.hints, w.tried)
	w.hints = nil
	s, id, err := w.c.join(w, addr)
	if err != nil {
		if !errors.Is(err, ErrClosed) { // Close ends all watchers
			w.c.penalise(addr, 0)
			w.tried.add(addr)
			w.retryLocked(0, 0)
		}
		return
	}
	w.on, w.id = s, id
}

// retryLocked places the watch anew after its next backoff: when the node asked
// to wait for after, not before that. Spread comes on top.
func (w *Watcher) retryLocked(after, spread time.Duration) {
	if w.err != nil || w.timer != nil {
		return
	}
	w.failures++
	d := backoff(w.failures, after) + spread
	if d == 0 {
		w.placeLocked()
		return
	}
	// The client's Close ends every watcher before it waits: until then the
	// group may grow.
	w.c.wg.Add(1)
	w.timer = time.AfterFunc(d, func() {
		defer w.c.wg.Done()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.timer = nil
		w.placeLocked()
	})
}

// detachLocked takes the watch off its stream.
func (w *Watcher) detachLocked(reason error, tell bool) {
	if w.on == nil {
		return
	}
	if w.asm.created && time.Since(w.since) > settled {
		w.failures, w.tried = 0, nil
	}
	if w.asm.created || w.reason == nil {
		w.reason = reason
	}
	w.tried.add(w.on.node.addr)
	w.on.remove(w.id, tell)
	w.on, w.id = nil, 0
}

// lost says that a stream, or the watch on it, came to nothing. The watch comes
// back after spread, besides its backoff.
func (w *Watcher) lost(s *stream, id int64, err error, v verdict, spread time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on != s || w.id != id {
		return
	}
	w.detachLocked(err, true)
	w.hints = v.hints
	w.retryLocked(v.after, spread)
}

// end ends the watch for good. What has arrived can still be read, unless the
// watcher was closed.
func (w *Watcher) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked(err)
	if errors.Is(err, ErrClosed) {
		w.queue, w.bytes = nil, 0
	}
}

func (w *Watcher) endLocked(err error) {
	if w.err != nil {
		return
	}
	w.detachLocked(err, true)
	w.err = err
	if w.timer != nil && w.timer.Stop() {
		w.c.wg.Done()
	}
	w.timer = nil
	w.stop()
	w.c.mu.Lock()
	delete(w.c.watchers, w)
	w.c.mu.Unlock()
	w.signal()
}

// signal wakes the consumer.
func (w *Watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// handle takes a response of the watch id on stream s.
func (w *Watcher) handle(s *stream, id int64, r *pb.WatchResponse) {
	w.mu.Lock()
	if w.on != s || w.id != id {
		w.mu.Unlock()
		return
	}
	var resumed *Resume
	switch {
	case r.GetCreated() != nil:
		resumed = w.createdLocked(r.GetCreated())
	case r.GetEnded() != nil:
		w.endedLocked(r.GetEnded())
	default:
		w.stepLocked(r)
	}
	w.mu.Unlock()
	if resumed != nil {
		w.c.resumes.Add(1)
		if w.opts.onResume != nil {
			w.opts.onResume(*resumed)
		}
	}
}

func (w *Watcher) createdLocked(c *pb.Created) *Resume {
	fresh := !w.asm.positioned && !w.asm.wantState && w.asm.token == nil
	if err := w.asm.start(c); err != nil {
		if errors.Is(err, ErrLineage) {
			w.endLocked(fmt.Errorf("watch %v: %w", w.asm.rng, ErrLineage))
			return nil
		}
		w.brokenLocked(err)
		return nil
	}
	w.on.started(w.id)
	w.c.praise(w.on.node.addr)
	name := c.GetNode()
	if name == "" {
		name = w.on.node.addr
	}
	w.since, w.floors = time.Now(), nil
	var resumed *Resume
	select {
	case <-w.started:
		w.resumes++
		resumed = &Resume{From: w.nodeName, To: name, Reason: w.reason, Revision: w.asm.position}
	default:
		close(w.started)
	}
	w.nodeName, w.reason = name, nil
	if fresh {
		w.pushLocked(Update{Kind: KindProgress, Revision: w.asm.position, Lineage: w.asm.lineage})
	}
	return resumed
}

// brokenLocked leaves a node that lags, or does not keep to the protocol.
func (w *Watcher) brokenLocked(err error) {
	if !errors.Is(err, errBehind) {
		w.c.cfg.Logger.Warn("leaving a node", "node", w.on.node.addr, "range", w.asm.rng.String(), "error", err)
	}
	w.detachLocked(err, true)
	w.retryLocked(backoffBase, 0)
}

func (w *Watcher) endedLocked(e *pb.Ended) {
	because := func(err error) error { return fmt.Errorf("watch %v: %w", w.asm.rng, err) }
	switch e.GetReason() {
	case pb.EndReason_END_REASON_INVALID:
		w.endLocked(because(fmt.Errorf("%w: %s", ErrInvalid, e.GetMessage())))
		return
	case pb.EndReason_END_REASON_DENIED:
		w.endLocked(because(fmt.Errorf("%w: %s", ErrDenied, e.GetMessage())))
		return
	case pb.EndReason_END_REASON_UNAUTHENTICATED:
		if !w.c.login.again(w.on.began) {
			w.endLocked(because(fmt.Errorf("%w: %s", ErrUnauthenticated, e.GetMessage())))
			return
		}
		w.on.retire() // a stream's token is that of its beginning
	case pb.EndReason_END_REASON_COMPACTED:
		if !w.asm.wantState { // else it is about the state's revision: the next one will do
			floor, nowhere := w.compactedLocked(e)
			switch {
			case !nowhere:
				return
			case w.asm.noSync:
				w.endLocked(because(&CompactedError{Requested: w.asm.position + 1, Floor: floor}))
				return
			}
			w.asm.startOver() // a server that knows no units
		}
	case pb.EndReason_END_REASON_LINEAGE:
		switch {
		case w.asm.wantState:
		case w.asm.noSync:
			w.endLocked(because(ErrLineage))
			return
		case w.asm.created: // this node has what all are about to ask for
			addr := w.on.node.addr
			w.detachLocked(fmt.Errorf("%s: %w", addr, ErrLineage), false)
			w.tried, w.hints = nil, []string{addr}
			w.retryLocked(e.GetRetryAfter().AsDuration(), herd(maxWatches))
			return
		default:
			w.asm.startOver() // a server that knows no units
		}
	case pb.EndReason_END_REASON_DRAINING:
		w.c.penalise(w.on.node.addr, drainPenalty)
	}
	hints := e.GetEndpoints()
	w.detachLocked(fmt.Errorf("%s ended the watch: %s", w.on.node.addr, e.GetMessage()), false)
	w.hints = hints
	w.retryLocked(e.GetRetryAfter().AsDuration(), 0)
}

// compactedLocked goes on at a node that was not asked yet. When a few have
// said that what comes next is gone, it is: then it returns the lowest floor.
func (w *Watcher) compactedLocked(e *pb.Ended) (floor int64, nowhere bool) {
	if w.floors == nil {
		w.floors = make(map[string]int64)
	}
	w.floors[w.on.node.addr] = e.GetFloor()
	if len(w.floors) < maxAsked {
		for _, addr := range w.c.topology.Load().candidates(w.asm.rng, w.c.seed) {
			if _, asked := w.floors[addr]; asked {
				continue
			}
			w.floors[addr] = math.MaxInt64 // asked once, also when it does not answer
			w.detachLocked(fmt.Errorf("%s does not have revision %d any more", w.on.node.addr, w.asm.position+1), false)
			w.tried, w.hints = nil, []string{addr}
			w.retryLocked(0, 0)
			return 0, false
		}
	}
	floor = e.GetFloor()
	for _, f := range w.floors {
		floor = min(floor, f)
	}
	return floor, true
}

// maxAsked is how many nodes are asked for history before it counts as gone:
// more than a shard has replicas.
const maxAsked = 5

func (w *Watcher) stepLocked(r *pb.WatchResponse) {
	if p := r.GetProgress(); p.GetAge() != nil && p.GetRevision() > 0 && w.asm.steady() {
		if at := time.Now().Add(-p.GetAge().AsDuration()); at.After(w.freshAt) {
			w.freshAt = at
		}
	}
	u, whole, err := w.asm.step(r)
	switch {
	case errors.Is(err, ErrTooBig):
		w.endLocked(fmt.Errorf("watch %v: %w", w.asm.rng, err))
	case err != nil:
		w.brokenLocked(err)
	case whole:
		w.pushLocked(u)
	case w.asm.partial.Kind == KindBatch && len(w.queue) > 0 && w.bytes+w.asm.size > w.opts.buffer:
		w.pauseLocked() // never in a unit: it costs the servers more than a revision
	}
}

// pushLocked puts an update on the queue. When it does not fit, the watch
// leaves the stream with the update, and resumes once the queue is empty.
func (w *Watcher) pushLocked(u Update) {
	switch u.Kind {
	case KindProgress:
		if !w.opts.progress {
			return
		}
		u.FreshAt = w.freshAt
		if n := len(w.queue); n > 0 && w.queue[n-1].Kind == KindProgress {
			w.queue[n-1] = u
			return
		}
	case KindResync:
		w.freshAt = time.Time{} // it may be another history's
		fallthrough
	case KindState, KindDelta, KindConflated:
		w.units.add(&u)
		w.c.count(&u)
	case KindBatch:
	}
	w.queue = append(w.queue, u)
	w.bytes += u.size()
	if len(w.queue) > 1 && w.bytes > w.opts.buffer {
		w.pauseLocked()
	}
	w.signal()
}

func (w *Watcher) pauseLocked() {
	w.paused = true
	w.detachLocked(errFull, true)
	w.failures, w.tried = 0, nil // it is not the node's fault
}
