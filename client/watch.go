package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/client/internal/homing"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/retry"
	"github.com/shardwatch/shardwatch/client/internal/token"
)

// Watcher is a watch of one range, served by one node after another. Read it with
// [Watcher.Next] or [Watcher.Updates] from one goroutine at a time, and close it, or
// end its context, when done.
type Watcher struct {
	c       *Client
	opts    watchOptions
	started chan struct{} // closed at the first start or the end
	wake    chan struct{} // capacity 1: the queue or err has changed
	stop    func() bool   // detaches from the context

	mu       sync.Mutex // guards all below
	begun    bool       // a node has started the watch
	asm      assembler
	queue    []Update
	bytes    int           // of queue
	read     Update        // the consumer's position: the start, then that of the last update taken; no contents
	taken    bool          // the consumer has taken an update
	on       *nodes.Stream // nil: none
	id       int64         // the watch's on the stream
	paused   bool          // the queue was full; placed again when it is empty
	timer    *time.Timer
	awaited  bool      // the watch has waited for the shards of its range
	unmapped bool      // the watch waits for them, until timer
	failures int       // attempts in a row that failed
	since    time.Time // when the node started the watch
	tried    retry.Tried
	hints    []string // addresses that the last node named
	// floors has the nodes that no longer have the next revision, with their floors. A
	// node that was reloaded has a higher floor than others.
	floors   map[string]int64
	moves    homing.Moves
	nodeName string    // the node that started the watch last
	reason   error     // why the watch left that node
	lastErr  error     // why the last attempt failed; nil while a node serves it
	freshAt  time.Time // the watch has everything up to this time; zero: not known
	resumes  int
	untold   *Resume // to be reported to OnResume; nil: none
	telling  bool    // tell runs; no update is returned meanwhile
	units    Units
	observed []func() // to be called without mu
	err      error    // why the watch ended; nil until then
}

// Watch follows a range. It returns at once; the watch starts in the background, and
// resumes on one node after another until ctx ends or the watcher is closed. [Watcher.Next]
// returns the error of an invalid request. The caller must handle units, which replace
// events that are no longer available ([KindDelta], [KindResync]), or use [WithoutResync].
func (c *Client) Watch(ctx context.Context, r Range, opts ...WatchOption) *Watcher {
	w := &Watcher{
		c: c, started: make(chan struct{}), wake: make(chan struct{}, 1),
		opts: watchOptions{buffer: c.cfg.Buffer},
		stop: func() bool { return true },
	}
	for _, o := range opts {
		o.watch(&w.opts)
	}
	invalid := w.opts.validate()
	w.asm = assembler{
		rng: r, prevKV: w.opts.prevKV, noResync: w.opts.noResync, conflate: w.opts.conflate, maxStaleness: w.opts.maxStale,
		maxUnit: c.cfg.MaxUnit, wantState: w.opts.state, token: w.opts.token, history: w.opts.history,
	}
	if w.opts.from > 0 {
		w.asm.positioned, w.asm.position = true, w.opts.from-1
	}
	if w.opts.token != nil && len(w.opts.token) == 0 { // it means no position
		w.opts.token = nil
		w.asm.startOver()
	}
	if err := errors.Join(r.validate(), invalid); err != nil {
		w.end(fmt.Errorf("watch %v: %w", r, err))
		return w
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		w.end(ErrClosed)
		return w
	}
	c.watchers[w] = struct{}{}
	c.mu.Unlock()
	w.setStop(context.AfterFunc(ctx, func() { w.end(context.Cause(ctx)) }))
	select {
	case <-c.follower.First:
		w.place()
	default: // the follower closes First and then places all watchers, including this one
	}
	return w
}

// Next returns the next update. It waits for one until ctx ends, which does not end the
// watch. Once the watch has ended and all updates received before have been returned,
// it returns the reason: the cause of the watch's context, [ErrClosed], [ErrInvalid],
// [ErrDenied], [ErrTooBig], [ErrUnauthenticated] (only if the client cannot get other
// credentials: neither Config.Token nor Config.PasswordFrom is set), and with
// [WithoutResync] also [*CompactedError] or [ErrLineage].
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

// Updates yields the updates, and, unless the watcher was closed, the error that ended
// the watch last. Leaving the loop does not end the watch.
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
	if len(w.queue) == 0 || w.telling && w.err == nil {
		defer w.mu.Unlock()
		return Update{}, false, w.err
	}
	u := w.queue[0]
	w.queue[0] = Update{} // releases its bytes
	w.queue = w.queue[1:]
	w.bytes -= u.size()
	w.taken = true
	w.read = Update{Revision: u.Revision, Lineage: u.Lineage, Cluster: u.Cluster}
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

// Close ends the watch and releases its updates. It may be called twice.
func (w *Watcher) Close() { w.end(ErrClosed) }

// Started is closed once a node has started the watch for the first time: every later
// change will be delivered. It is also closed when the watch ends before that;
// [Watcher.Err] returns the reason.
func (w *Watcher) Started() <-chan struct{} { return w.started }

// Err returns the error that ended the watch, nil until then. Updates received before
// may still be pending.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Revision returns the revision up to which the consumer has read everything that was
// requested; 0 if the watch has not started. A watch that moves to another node resumes
// after this revision.
func (w *Watcher) Revision() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.positionLocked().Revision
}

// Position returns [Watcher.Revision] with the history it belongs to; the zero Position
// if the watch has not started.
func (w *Watcher) Position() Position {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.positionLocked()
}

// Token returns the consumer's position for [FromToken], which resumes after it, also
// in another process and after a restart of the cluster. It covers the updates that
// [Watcher.Next] has returned: store it once they are processed. It is valid for this
// range, and no secret. Nil if the watch has not started.
func (w *Watcher) Token() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.positionLocked()
	if w.opts.token != nil && !w.taken && (w.asm.token != nil || len(w.queue) > 0) {
		return w.opts.token // nothing has been read after it
	}
	if at.Lineage == 0 {
		return nil
	}
	return token.Of(w.asm.rng.keys(), at.Cluster, at.Lineage, at.Revision)
}

// positionLocked returns the consumer's position.
func (w *Watcher) positionLocked() Position {
	if len(w.queue) == 0 && w.asm.positioned {
		return Position{w.asm.cluster, w.asm.lineage, w.asm.position}
	}
	return w.read.Position()
}

// WatcherStats has a watcher's statistics.
type WatcherStats struct {
	// Node is the name of the node that serves the watch, or served it last.
	Node string
	// Attached: a node serves the watch now. Otherwise the client searches for one, or
	// the consumer does not keep up.
	Attached bool
	// LastError is the reason why the last attempt at a node failed, or why the last
	// node no longer serves the watch; nil while one does. The watch keeps retrying.
	LastError error
	// Resumes counts the resumes of the watch after its first start.
	Resumes int
	// Updates and Bytes count the pending updates.
	Updates, Bytes int
	// Units counts the units that have arrived so far.
	Units
	// FreshAt is a time at which etcd had no newer revision than the watch has received:
	// its data is not older than time.Since(FreshAt). The zero time: not known. It
	// advances with the nodes' signs of life, about three times per Config.Silence.
	FreshAt time.Time
}

// Stats returns the watcher's current statistics.
func (w *Watcher) Stats() WatcherStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return WatcherStats{
		Node: w.nodeName, Attached: w.on != nil && w.asm.created, LastError: w.lastErr, Resumes: w.resumes,
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
		s.AskProgress()
	}
}

// setStop stores the function that detaches the watcher from its context.
func (w *Watcher) setStop(stop func() bool) {
	w.mu.Lock()
	ended := w.err != nil
	w.stop = stop
	w.mu.Unlock()
	if ended {
		stop()
	}
}

// end ends the watch permanently. Updates received before can still be read, unless the
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
	if !w.begun {
		close(w.started)
	}
	if w.timer != nil && w.timer.Stop() {
		w.c.wg.Done()
	}
	w.timer = nil
	w.stopAwaitingLocked()
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
