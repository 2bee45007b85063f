package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// mux is the shared watch stream of a client, for all watches that have caught up. One
// progress request serves all of them. A watch that begins, or is behind, has a separate
// stream (watch) and takes a place here when it has caught up.
//
// A watch is created here from the present (StartRevision 0), while its own stream continues
// up to etcd's revision at that moment, which is in the announcement. So the watch never
// catches up here, which would silence the progress of the whole stream until the next round
// of etcd's sync loop, 100 ms. Nor does it wait for a future revision, which would do so
// until the next write (storage/mvcc/watchable_store.go: watch, progressIfSync,
// syncWatchersLoop).
//
// Let C be etcd's revision when it created a watch, and at the revision of its
// announcement, which is read afterwards (api/v3rpc/watch.go, recvLoop): C <= at. Then
//
//   - all events after at come here, and all up to at on the watch's own stream: none is
//     missing, and those in (C, at], which come twice, are skipped here;
//   - an answer of revision R that comes after the announcement proves R for the watch. If
//     etcd took the question after it created the watch, the watch was synced, and its
//     events up to R are in the stream's channel before the answer; events that had to
//     wait for the announcement were sent with it. If etcd took it before, then R <= C <=
//     at, which proves nothing new: one loop takes all requests.
//
// An answer before the announcement proves nothing for the watch: etcd holds events back
// until it has announced a watch, but not answers (sendLoop). An event proves nothing for
// other watches, so places with adjacent ranges get one watch together: see upstream.
//
// Nothing waits for a consumer here: the bytes of a place are bounded, and a watch whose
// place is full leaves and continues on a separate stream from its position. So does a
// watch that etcd ends, for any reason: the new stream reports the reason. When the stream
// ends, all of its watches end.
type mux struct {
	c       *Client
	lineage uint64          // the history of the stream
	ctx     context.Context //nolint:containedctx // of the stream, which outlives each of its watches
	cancel  context.CancelCauseFunc
	want    kv.Demand // of all consumers
	out     *outbox
	done    chan struct{} // closed when run returns
	due     []*place      // places whose consumers get progress next; owned by the receiving goroutine

	mu       sync.Mutex
	watches  map[int64]*upstream // by watch ID; guarded by mu
	creating []*upstream         // not announced by etcd yet, in order; guarded by mu
	places   int                 // guarded by mu
	last     int64               // the last watch ID; guarded by mu
	closed   bool                // takes no more places; guarded by mu
	answered time.Time           // when etcd last reported progress for all, or a watch was shed; guarded by mu
	stale    bool                // places have changed since runs were last formed; guarded by mu
	shaped   time.Time           // when runs were last formed, or the stream began; guarded by mu
	apart    bool                // etcd refuses runs: none are formed; guarded by mu
}

const (
	// muxPause is the shortest time between the beginnings of two shared streams.
	muxPause = time.Second
	// muxPatience is how long etcd may leave progress requests of the shared stream
	// unanswered while it sends events: three rounds of its sync loop.
	muxPatience = 300 * time.Millisecond
)

// muxes is a client's shared stream.
type muxes struct {
	mu      sync.Mutex
	now     *mux           // nil: no stream; guarded by mu
	next    time.Time      // no stream begins before it; guarded by mu
	pause   time.Duration  // see runPause
	closed  bool           // no stream begins any more; guarded by mu
	running sync.WaitGroup // Add: guarded by mu, and not after closed
}

// close waits for all shared streams, whose connection is closed.
func (s *muxes) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
}

// join takes a place on the shared stream of a lineage for a watch of r, and opens the
// stream if needed. joined gets the revision at which the place begins. It returns nil
// when no place is available now.
func (c *Client) join(lineage uint64, r kv.Range, joined chan<- kv.Revision) *place {
	s := &c.muxes
	s.mu.Lock()
	defer s.mu.Unlock()
	if adopted, _ := c.Known(); adopted != lineage {
		return nil
	}
	if s.now != nil && s.now.lineage == lineage {
		if p := s.now.add(r, joined); p != nil {
			return p
		}
	}
	now := time.Now()
	if now.Before(s.next) || s.closed {
		return nil
	}
	s.next = now.Add(muxPause)
	ctx, cancel := context.WithCancelCause(context.Background())
	s.now = &mux{
		c: c, lineage: lineage, ctx: ctx, cancel: cancel, done: make(chan struct{}), out: newOutbox(),
		watches: make(map[int64]*upstream), shaped: now,
	}
	p := s.now.add(r, joined)
	s.running.Go(s.now.run)
	return p
}

// add takes a place; nil: the stream takes no more.
func (m *mux) add(r kv.Range, joined chan<- kv.Revision) *place {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	p := &place{m: m, r: r, joined: joined, ready: make(chan struct{}, 1)}
	p.turn.Lock()
	m.places++
	p.on = m.createLocked(r, p)
	return p
}

// run serves the stream until it ends, or has no more watches.
func (m *mux) run() {
	defer close(m.done)
	err := m.serve()
	m.cancel(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	switch {
	case errors.Is(err, errSilent):
		m.c.count.silenced.Add(int64(m.places))
	case errors.Is(err, etcdconn.ErrTooLarge):
		err = leftOversize
	}
	for _, w := range m.watches {
		m.leaveAllLocked(w, err)
	}
}

func (m *mux) serve() error {
	stream, err := m.c.openWatch(m.ctx, m.c.Watches)
	if err != nil {
		return err
	}
	m.c.count.streamsOpen.Add(1)
	defer m.c.count.streamsOpen.Add(-1)
	a := m.c.newAsker(stream, m.out)
	a.stuck = m.shed
	var asking sync.WaitGroup
	defer asking.Wait()
	defer m.want.Serve(0, a.ask)()
	asking.Go(func() { a.run(m.ctx, m.cancel) })
	err = m.receiveAll(a)
	if errors.Is(err, etcdconn.ErrToken) {
		m.c.Forget(stream.token)
		err = leftLogin
	}
	if cause := context.Cause(m.ctx); cause != nil {
		err = cause
	}
	m.cancel(nil)
	return err
}

func (m *mux) receiveAll(a *asker) error {
	for admitted := false; ; {
		r, err := a.receive()
		if err != nil {
			return err
		}
		if r.created && !r.canceled && !admitted {
			// From here on, all responses come from one process of etcd and one history.
			if err := m.c.Admit(m.ctx, m.lineage); err != nil {
				return err
			}
			admitted = true
			a.announced <- r.revision
		}
		known, err := m.take(r, time.Now())
		for _, p := range m.due {
			p.pass()
		}
		clear(m.due)
		m.due = m.due[:0]
		if err != nil {
			return err
		}
		if known > 0 {
			m.c.Saw(m.lineage, kv.Mark{Revision: known})
			if r.watch == anyWatch {
				a.progress.Store(int64(known))
			}
		}
	}
}

// take puts the updates of a response in its places, and returns the revision that the
// response proves for etcd, 0: none.
func (m *mux) take(r *watchResponse, now time.Time) (kv.Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case r.created:
		return 0, m.createdLocked(r)
	case r.watch == anyWatch:
		m.answered = now
		for _, w := range m.watches {
			w.lively = 0
			if err := m.putLocked(w, r, now); err != nil {
				return 0, err
			}
		}
		m.shapeLocked(r.revision, now)
		return r.revision, nil
	}
	w := m.watches[r.watch]
	switch {
	case r.watch < 1 || r.watch > m.last:
		return 0, fmt.Errorf("%w: a response to unknown watch %d", errProtocol, r.watch)
	case w == nil:
		return 0, nil // it was cancelled
	case r.canceled:
		m.leaveAllLocked(w, leftEnded)
		return 0, nil
	case w.a == nil:
		return 0, fmt.Errorf("%w: a response to watch %d before its announcement", errProtocol, r.watch)
	}
	err := m.putLocked(w, r, now)
	return w.a.done, err
}

// createdLocked handles the answer to the creation of the watch at the head of creating:
// one loop of etcd answers all creations in order (api/v3rpc/watch.go, recvLoop). A
// watch that etcd refuses has no ID.
func (m *mux) createdLocked(r *watchResponse) error {
	if len(m.creating) == 0 {
		return fmt.Errorf("%w: a watch was announced that was not requested", errProtocol)
	}
	w := m.creating[0]
	m.creating = m.creating[1:]
	switch {
	case r.canceled && etcdconn.WantsLogin(r.reason):
		return etcdconn.ErrToken // of the stream's login: etcd would refuse any further watch
	case r.canceled:
		m.apart = m.apart || w.forming
		m.leaveAllLocked(w, leftRefused)
	case r.watch != w.id:
		return fmt.Errorf("%w: watch %d was announced instead of %d", errProtocol, r.watch, w.id)
	case m.watches[w.id] == nil:
		m.out.put(cancelRequest(w.id))
	default:
		w.a = newAssembly(r.revision + 1)
		w.a.announced, w.a.id = true, w.id
		if !w.forming {
			w.places[0].begin(r.revision)
		}
	}
	return nil
}

// putLocked puts the updates of a response in the places that the watch serves. A response
// before the announcement has none.
func (m *mux) putLocked(w *upstream, r *watchResponse, now time.Time) error {
	if w.a == nil {
		return nil
	}
	updates, err := w.a.add(r, now)
	if err != nil {
		return err
	}
	for i := range updates {
		if b := &updates[i].Batch; updates[i].Kind == kv.UpdateBatch {
			w.lively, w.last = w.lively+updateBytes+b.Size(), now
			m.splitLocked(w, b)
		}
	}
	m.toldLocked(w, now)
	return nil
}

// toldLocked advances the places of a watch to its revision, and wakes their consumers:
// those without events first, since others may wait for their progress after an event.
func (m *mux) toldLocked(w *upstream, now time.Time) {
	var loud []*place
	for _, p := range w.places {
		if p.on != w {
			continue
		}
		if p.done < w.a.done {
			m.queueLocked(p, kv.Update{Kind: kv.UpdateProgress, Revision: w.a.done})
		}
		// A consumer that does not wait for progress gets it only at long intervals:
		// like a watch on a separate stream it must not fall behind compaction.
		switch waits := p.wants > p.given || now.Sub(p.asked) < eagerFor; {
		case p.loud:
			loud = append(loud, p)
		case len(p.queue) > 0 && (waits || now.Sub(p.taken) >= m.c.cfg.ProgressIdle/2):
			m.due = append(m.due, p)
		}
		p.loud = false
	}
	m.due = append(m.due, loud...)
}

// queueLocked queues an update, or has the watch leave when its consumer is too slow.
func (m *mux) queueLocked(p *place, u kv.Update) {
	n, size := len(p.queue), updateBytes
	if u.Kind == kv.UpdateBatch {
		size += u.Batch.Size()
		p.loud = true
	}
	switch {
	case p.left != nil:
	case n > 0 && u.Kind == kv.UpdateProgress && p.queue[n-1].Kind == kv.UpdateProgress:
		p.queue[n-1], p.done = u, u.Revision
	case n > 0 && p.bytes+size > placeBytes:
		m.leaveLocked(p, leftFull)
	default:
		p.queue, p.bytes, p.done = append(p.queue, u), p.bytes+size, u.Revision
	}
}

// shed makes the busiest watch leave while etcd reports no progress for the stream
// although a consumer has waited since then: one watch that catches up silences the
// progress of all others. On a separate stream it does not, and its events prove its own
// progress. A stream without events is silent for another reason.
func (m *mux) shed(since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answered.After(since) {
		since = m.answered
	}
	now := time.Now()
	if now.Sub(since) < muxPatience {
		return
	}
	var most *upstream
	for _, w := range m.watches {
		if w.last.Sub(since) >= muxPatience/2 && (most == nil || w.lively > most.lively) {
			most = w
		}
	}
	if most != nil {
		m.answered = now
		m.leaveAllLocked(most, leftStuck)
	}
}

// leaveAllLocked makes all places of a watch leave. A watch that forms ends alone,
// since its places have other watches.
func (m *mux) leaveAllLocked(w *upstream, why error) {
	for _, p := range w.places {
		switch {
		case p.on == w:
			m.leaveLocked(p, why)
		case p.next == w:
			m.dropLocked(p, w)
		}
	}
}

// leaveLocked makes a place leave.
func (m *mux) leaveLocked(p *place, why error) {
	if p.left != nil {
		return
	}
	p.left = why
	m.c.count.left(why)
	m.dropLocked(p, p.on)
	if p.next != nil {
		m.dropLocked(p, p.next)
	}
	if m.places--; m.places == 0 {
		m.closed = true
		m.cancel(leftDone)
	}
	wake(p.ready)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
