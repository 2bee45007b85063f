package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
)

// stream is one Watch stream to one node, shared by many watchers. It lives
// from its first watch to its last, or until it breaks; then every watcher on
// it is placed again.
type stream struct {
	c     *Client
	node  *node
	began time.Time
	heard atomic.Int64 // when something arrived last, as Client.pulse.Ran

	wake   chan struct{} // capacity 1: there is something to send
	ctx    context.Context
	cancel context.CancelCauseFunc

	told []target // of the last response; owned by serve

	mu      sync.Mutex
	dead    bool                 // takes no watches any more; guarded by mu
	retired bool                 // takes no further watches; guarded by mu
	watches map[int64]*Watcher   // guarded by mu
	pending map[int64]*startWait // not created yet; guarded by mu
	lastID  int64                // guarded by mu
	out     []*pb.WatchRequest   // to be sent; guarded by mu
	askedAt time.Time            // last RequestProgress; guarded by mu
}

// target is a watch on the stream.
type target struct {
	id int64
	w  *Watcher
}

// startWait is a watch that has been asked for and has not started, and until when
// that may take, as Client.pulse.Ran.
type startWait struct{ until time.Duration }

const (
	// startTimeout is how long a node that is alive may take to start a watch.
	startTimeout = 5 * time.Second
	// stateTimeout is that for a watch that begins with the state, which waits
	// for its turn: to ask elsewhere is to wait again, and doubles the work.
	stateTimeout = time.Minute
)

func newStream(c *Client, n *node) *stream {
	s := &stream{
		c: c, node: n, began: time.Now(), wake: make(chan struct{}, 1),
		watches: map[int64]*Watcher{}, pending: map[int64]*startWait{},
		out: []*pb.WatchRequest{{Request: &pb.WatchRequest_Options{Options: &pb.StreamOptions{
			ProgressInterval: durationpb.New(max(c.cfg.Silence/3, 100*time.Millisecond)),
			AllowWatchIds:    proto.Bool(true),
		}}}},
	}
	s.ctx, s.cancel = context.WithCancelCause(c.ctx)
	return s
}

// add puts a watch on the stream; false when the stream is full or dead. The
// caller holds w.mu.
func (s *stream) add(w *Watcher) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead || s.retired || len(s.watches) >= maxWatches {
		return 0, false
	}
	s.lastID++
	create := w.asm.begin()
	create.WatchId = s.lastID
	s.watches[s.lastID] = w
	patience := startTimeout
	if create.GetStateFirst() {
		patience = stateTimeout
	}
	s.pending[s.lastID] = &startWait{until: s.c.pulse.Ran() + patience}
	s.sendLocked(&pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: create}})
	return s.lastID, true
}

// retire keeps further watches off the stream. Those that are on it continue.
func (s *stream) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
}

// remove takes a watch off the stream. With tell, it has the node end the watch.
// The last one ends the stream.
func (s *stream) remove(id int64, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[id] == nil {
		return
	}
	delete(s.watches, id)
	delete(s.pending, id)
	if len(s.watches) == 0 {
		s.dead = true
		s.cancel(outcome.ErrIdle)
		return
	}
	if tell {
		s.sendLocked(&pb.WatchRequest{Request: &pb.WatchRequest_Cancel{Cancel: &pb.CancelWatch{WatchId: id}}})
	}
}

// started says that the node has started a watch.
func (s *stream) started(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, id)
}

// askProgress asks the node for progress, at most every 100 ms.
func (s *stream) askProgress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.askedAt) >= 100*time.Millisecond {
		s.askedAt = now
		s.sendLocked(&pb.WatchRequest{Request: &pb.WatchRequest_Progress{Progress: &pb.RequestProgress{}}})
	}
}

func (s *stream) sendLocked(r *pb.WatchRequest) {
	s.out = append(s.out, r)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run serves the stream until it ends, and sends its watchers elsewhere.
func (s *stream) run(ctx context.Context) {
	err := s.serve()
	s.mu.Lock()
	s.dead = true
	watches := s.watches
	s.watches, s.out = nil, nil
	s.mu.Unlock()
	s.c.leave(s)
	if len(watches) == 0 || ctx.Err() != nil {
		return
	}
	v := judge(err)
	if errors.Is(err, outcome.ErrSilent) {
		s.c.penalise(s.node.addr, 0)
		s.c.drop(s.node)
	} else if v.Penalise || errors.Is(err, outcome.ErrEnded) {
		s.c.penalise(s.node.addr, 0)
	}
	s.c.cfg.Logger.Debug("watch stream ended", "node", s.node.addr, "watches", len(watches), "error", err)
	hopeless := errors.Is(v.Err, ErrUnauthenticated) && !s.c.renewed(v, s.began)
	for id, w := range watches {
		if hopeless {
			w.end(v.Err)
			continue
		}
		w.lost(s, id, v, retry.Herd(len(watches)))
	}
}

// serve opens the stream and hands out what arrives. It returns why it ended.
func (s *stream) serve() error {
	var g sync.WaitGroup
	defer g.Wait()
	defer s.cancel(nil)
	// Before silence counts: to check a password takes etcd its time.
	if err := s.c.connect.Login.Ready(s.ctx, s.node.conn, s.c.cfg.AttemptTimeout); err != nil {
		return fmt.Errorf("%s: watch: %w", s.node.addr, err)
	}
	s.heardNow()
	g.Go(s.listen)
	rpc, err := pb.NewCacheServiceClient(s.node.conn).Watch(s.ctx)
	if err == nil {
		g.Go(func() { s.send(rpc) })
		for {
			var r *pb.WatchResponse
			if r, err = rpc.Recv(); err != nil {
				break
			}
			s.heardNow()
			s.handle(r)
		}
	}
	switch cause := context.Cause(s.ctx); {
	case cause != nil:
		return fmt.Errorf("%s: %w", s.node.addr, cause)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: %w", s.node.addr, outcome.ErrEnded)
	}
	return fmt.Errorf("%s: watch: %w", s.node.addr, err)
}

// send sends what is asked for, in order.
func (s *stream) send(rpc pb.CacheService_WatchClient) {
	for {
		s.mu.Lock()
		out := s.out
		s.out = nil
		s.mu.Unlock()
		for _, r := range out {
			if rpc.Send(r) != nil {
				return // Recv tells why
			}
		}
		select {
		case <-s.wake:
		case <-rpc.Context().Done():
			return
		}
	}
}

// listen ends the stream when the node is silent for too long, and the wait
// of a watch that the node does not start.
func (s *stream) listen() {
	for retry.Sleep(s.ctx, s.c.cfg.Silence/6) {
		if s.c.pulse.Ran()-time.Duration(s.heard.Load()) > s.c.cfg.Silence {
			s.cancel(outcome.ErrSilent)
			return
		}
		for id, w := range s.overdue() {
			w.lost(s, id, outcome.Verdict{Err: fmt.Errorf("%s: %w", s.node.addr, outcome.ErrNoStart)}, 0)
		}
	}
}

// overdue returns the watches whose start has been waited for too long.
func (s *stream) overdue() map[int64]*Watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.pulse.Ran()
	var out map[int64]*Watcher
	for id, p := range s.pending {
		if now > p.until {
			if out == nil {
				out = map[int64]*Watcher{}
			}
			out[id] = s.watches[id]
		}
	}
	return out
}

func (s *stream) heardNow() { s.heard.Store(int64(s.c.pulse.Ran())) }

// handle hands a response to the watchers it is about. It never waits for a
// consumer.
func (s *stream) handle(m *pb.WatchResponse) {
	r := &response{WatchResponse: m}
	s.told = s.about(m, s.told[:0])
	for _, t := range s.told {
		t.w.handle(s, t.id, r)
	}
	clear(s.told)
}

// about appends the watchers that a response is about. One that has left the
// stream may still be named.
func (s *stream) about(r *pb.WatchResponse, to []target) []target {
	ids := r.GetWatchIds()
	if p := r.GetProgress(); p != nil && len(ids) == 0 {
		ids = p.GetWatchIds()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(id int64) {
		if w := s.watches[id]; w != nil {
			to = append(to, target{id, w})
		}
	}
	switch {
	case r.GetWatchId() != 0:
		add(r.GetWatchId())
	case len(ids) == 0 && r.GetProgress() != nil: // of the whole stream
		for id := range s.watches {
			if s.pending[id] == nil {
				add(id)
			}
		}
	default:
		for _, id := range ids {
			add(id)
		}
	}
	return to
}

// response is what a node has sent, for one watch or for several: what it carries
// is decoded once, and shared.
type response struct {
	*pb.WatchResponse
	decoded []Event
}

// events returns the events. Who appends to them gets a copy.
func (r *response) events() []Event {
	if n := len(r.GetEvents()); r.decoded == nil && n > 0 {
		r.decoded = make([]Event, n)
		for i, e := range r.GetEvents() {
			r.decoded[i] = eventFrom(e)
		}
	}
	return r.decoded[:len(r.decoded):len(r.decoded)]
}
