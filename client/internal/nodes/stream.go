package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
)

// Stream is one Watch stream to one node, shared by many watchers. It exists from its
// first watch to its last, or until it breaks; then every watcher on it is placed again.
type Stream struct {
	pool  *Pool
	node  *Node
	began time.Time
	heard atomic.Int64 // time of the last message, on the pulse

	wake   chan struct{} // capacity 1: out has requests
	ctx    context.Context
	cancel context.CancelCauseFunc

	told []target // targets of the last response; owned by serve

	mu      sync.Mutex
	dead    bool                 // has ended: accepts no watches; guarded by mu
	retired bool                 // accepts no further watches; guarded by mu
	watches map[int64]Watch      // guarded by mu
	pending map[int64]*startWait // not created yet; guarded by mu
	lastID  int64                // guarded by mu
	out     []*pb.WatchRequest   // to be sent; guarded by mu
	askedAt time.Time            // last RequestProgress; guarded by mu
}

// target is a watch on the stream.
type target struct {
	id int64
	w  Watch
}

// startWait is a requested watch that has not started. until is its deadline, on the pulse.
type startWait struct{ until time.Duration }

const (
	// startTimeout is how long a node that is alive may take to start a watch.
	startTimeout = 5 * time.Second
	// stateTimeout is the same for a watch that begins with the state, which is queued
	// at the node: a request to another node would be queued again, and double the work.
	stateTimeout = time.Minute
)

func newStream(p *Pool, n *Node) *Stream {
	s := &Stream{
		pool: p, node: n, began: time.Now(), wake: make(chan struct{}, 1),
		watches: map[int64]Watch{}, pending: map[int64]*startWait{},
		out: []*pb.WatchRequest{{Request: &pb.WatchRequest_Options{Options: &pb.StreamOptions{
			ProgressInterval: durationpb.New(max(p.cfg.Silence/3, 100*time.Millisecond)),
			AllowWatchIds:    proto.Bool(true),
		}}}},
	}
	s.ctx, s.cancel = context.WithCancelCause(p.ctx)
	return s
}

// add puts a watch on the stream; it returns false if the stream is full or dead.
func (s *Stream) add(w Watch) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead || s.retired || len(s.watches) >= MaxWatches {
		return 0, false
	}
	s.lastID++
	create := w.Begin()
	create.WatchId = s.lastID
	s.watches[s.lastID] = w
	patience := startTimeout
	if create.GetStateFirst() {
		patience = stateTimeout
	}
	s.pending[s.lastID] = &startWait{until: s.pool.cfg.Pulse.Ran() + patience}
	s.sendLocked(&pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: create}})
	return s.lastID, true
}

// Retire prevents further watches on the stream. Its current watches continue.
func (s *Stream) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
}

// Remove removes a watch from the stream. With tell, it also ends the watch at the
// node. The last watch ends the stream.
func (s *Stream) Remove(id int64, tell bool) {
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

// Started records that the node has started a watch.
func (s *Stream) Started(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, id)
}

// AskProgress requests progress from the node, at most every 100 ms.
func (s *Stream) AskProgress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.askedAt) >= 100*time.Millisecond {
		s.askedAt = now
		s.sendLocked(&pb.WatchRequest{Request: &pb.WatchRequest_Progress{Progress: &pb.RequestProgress{}}})
	}
}

func (s *Stream) sendLocked(r *pb.WatchRequest) {
	s.out = append(s.out, r)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run serves the stream until it ends, and then returns its watchers to the client.
func (s *Stream) run() {
	err := s.serve()
	s.mu.Lock()
	s.dead = true
	watches := s.watches
	s.watches, s.out = nil, nil
	s.mu.Unlock()
	s.pool.leave(s)
	if len(watches) == 0 || s.pool.ctx.Err() != nil {
		return
	}
	v := outcome.Judge(err)
	if errors.Is(err, outcome.ErrSilent) {
		s.pool.Penalise(s.node.Addr, 0)
		s.pool.Drop(s.node)
	} else if v.Penalise || errors.Is(err, outcome.ErrEnded) {
		s.pool.Penalise(s.node.Addr, 0)
	}
	s.pool.cfg.Logger.Debug("watch stream ended", "node", s.node.Addr, "watches", len(watches), "error", err)
	hopeless := errors.Is(v.Err, outcome.ErrUnauthenticated) && !s.pool.cfg.Connect.Renewed(v, s.began)
	for id, w := range watches {
		if hopeless {
			w.End(v.Err)
			continue
		}
		w.Lost(s, id, v, retry.Herd(len(watches)))
	}
}

// serve opens the stream and handles its messages. It returns the reason for its end.
func (s *Stream) serve() error {
	var g sync.WaitGroup
	defer g.Wait()
	defer s.cancel(nil)
	// Before silence counts: checking a password takes etcd some time.
	if err := s.pool.cfg.Connect.Login.Ready(s.ctx, s.node.Conn, s.pool.cfg.AttemptTimeout); err != nil {
		return fmt.Errorf("%s: watch: %w", s.node.Addr, err)
	}
	s.heardNow()
	g.Go(s.listen)
	rpc, err := pb.NewCacheServiceClient(s.node.Conn).Watch(s.ctx)
	if err == nil {
		g.Go(func() { s.send(rpc) })
		for {
			var r *pb.WatchResponse
			if r, err = rpc.Recv(); err != nil {
				break
			}
			s.heardNow()
			s.Handle(r)
		}
	}
	switch cause := context.Cause(s.ctx); {
	case cause != nil:
		return fmt.Errorf("%s: %w", s.node.Addr, cause)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: %w", s.node.Addr, outcome.ErrEnded)
	}
	return fmt.Errorf("%s: watch: %w", s.node.Addr, err)
}

// send sends the requests, in order.
func (s *Stream) send(rpc pb.CacheService_WatchClient) {
	for {
		s.mu.Lock()
		out := s.out
		s.out = nil
		s.mu.Unlock()
		for _, r := range out {
			if rpc.Send(r) != nil {
				return // Recv returns the reason
			}
		}
		select {
		case <-s.wake:
		case <-rpc.Context().Done():
			return
		}
	}
}

// listen ends the stream when the node is silent for too long, and the wait of watches
// that the node does not start.
func (s *Stream) listen() {
	for retry.Sleep(s.ctx, s.pool.cfg.Silence/6) {
		if s.pool.cfg.Pulse.Ran()-time.Duration(s.heard.Load()) > s.pool.cfg.Silence {
			s.cancel(outcome.ErrSilent)
			return
		}
		for id, w := range s.overdue() {
			w.Lost(s, id, outcome.Verdict{Err: fmt.Errorf("%s: %w", s.node.Addr, outcome.ErrNoStart)}, 0)
		}
	}
}

// overdue returns the watches that have not started in time.
func (s *Stream) overdue() map[int64]Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.pool.cfg.Pulse.Ran()
	var out map[int64]Watch
	for id, p := range s.pending {
		if now > p.until {
			if out == nil {
				out = map[int64]Watch{}
			}
			out[id] = s.watches[id]
		}
	}
	return out
}

func (s *Stream) heardNow() { s.heard.Store(int64(s.pool.cfg.Pulse.Ran())) }

// Handle passes a response to its watchers. It never waits for a consumer.
func (s *Stream) Handle(m *pb.WatchResponse) {
	r := &Response{WatchResponse: m}
	s.told = s.about(m, s.told[:0])
	for _, t := range s.told {
		t.w.Handle(s, t.id, r)
	}
	clear(s.told)
}

// about appends the watchers that a response is for. The response may name one that has left.
func (s *Stream) about(r *pb.WatchResponse, to []target) []target {
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
	case len(ids) == 0 && r.GetProgress() != nil: // for the whole stream
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

// Response is a message of a node, for one watch or for several.
type Response struct {
	*pb.WatchResponse
	// Decoded is set by the first watch that decodes the message, for the others.
	Decoded any
}

// Began returns when the stream was opened.
func (s *Stream) Began() time.Time { return s.began }

// Addr returns the address of the node.
func (s *Stream) Addr() string { return s.node.Addr }

// Unsent returns the requests that have not been sent to the node.
func (s *Stream) Unsent() []*pb.WatchRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.out)
}
