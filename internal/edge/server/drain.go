package server

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/edge/farewell"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// cutUnread waits until all have ended, and cuts the connections of those whose clients
// do not read: nothing else ends their streams. The caller of Drain ends them when ctx
// ends before.
func (s *Server) cutUnread(ctx context.Context, all []farewell.Farewell) {
	unread, cut := farewell.Unread(ctx, all), 0
	for _, f := range unread {
		if s.conns.cut(f.Client) {
			cut++
		}
	}
	if cut > 0 {
		s.cfg.Logger.Warn("connections closed: their clients do not read", "connections", cut, "streams", len(unread))
	}
}

// Drain asks every watch to resume on another node, at a pace that the
// other nodes bear and within half of the time that ctx leaves; the other half
// is for clients to read it. It refuses new watches at once, and returns when
// none is left or ctx ends. Clients are asked to make all next calls on other
// connections. Call Finish afterwards.
func (s *Server) Drain(ctx context.Context) {
	native := s.native.Drain()
	s.mu.Lock()
	first := !s.draining
	s.draining = true
	s.mu.Unlock()
	if first {
		close(s.stopping)
		s.health.Shutdown()
		defer close(s.left)
	}
	if s.cfg.Etcd != nil {
		s.cfg.Etcd.Drain()
	}
	all := s.farewells(kv.ShuttingDown())
	told, late := farewell.Send(ctx, slices.Clone(all), s.pace)
	told += farewell.EndAll(late)
	if c, ok := s.clients.(away); ok {
		c.GoAway() // those without a watch
	}
	s.cutUnread(ctx, all)
	poll := time.NewTicker(farewell.Tick)
	defer poll.Stop()
	for {
		left := s.etcdWatches() + native()
		if left == 0 {
			s.cfg.Logger.Info("watches sent to other nodes", "watches", told)
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			s.cfg.Logger.Warn("watches closed: their clients did not read in time", "watches", left, "of", told)
			return
		}
	}
}

// lastCalls is how long the calls of clients may take after Drain. Streams that never end by themselves
// wait for all of it: those that renew leases, or watch the node's health.
const lastCalls = 2 * time.Second

// Finish takes no more connections of clients, and waits until their calls have ended, for lastCalls and
// until ctx ends at most. Writes and reads that have begun get their answers so: call it while
// etcd and the caches can still give them.
func (s *Server) Finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastCalls)
	defer cancel()
	var all errgroup.Group
	all.Go(func() error { return s.clients.Drain(ctx) })
	if s.gateway != nil {
		all.Go(func() error { return s.gateway.Drain(ctx) })
	}
	if all.Wait() != nil {
		s.cfg.Logger.Info("connections closed: some calls of their clients have not ended", "waited", lastCalls)
	}
}

// away is a call, or a server, that has clients make their next calls on other connections (GOAWAY:
// RFC 9113, 6.8). grpc-go's server cannot.
type away interface{ GoAway() }

// farewells returns the watches and streams that have to end, of either API. Their clients leave the
// connection, too: where one address stands for several nodes, as that of a Service of Kubernetes does, they
// would come back to this node by it.
func (s *Server) farewells(why error) []farewell.Farewell {
	out := s.native.Farewells([]kv.Range{{}}, why)
	if s.cfg.Etcd != nil {
		out = append(out, s.cfg.Etcd.Farewells()...)
	}
	for i := range out {
		if call, ok := grpc.ServerTransportStreamFromContext(out[i].Call).(away); ok {
			end := out[i].End
			out[i].End = func() { call.GoAway(); end() }
		}
	}
	return farewell.ByClient(out)
}

// Abandon asks the native watches whose range overlaps one of ranges to resume on
// another node from their positions, because nothing arrives here for these ranges;
// at Drain's pace, and within ctx. It returns how many there were. New watches are
// accepted: a client that reaches no other node is no worse off here. Watches of
// etcd's API stay: with WithRequireLeader they are notified when data is too old, as by
// etcd.
func (s *Server) Abandon(ctx context.Context, ranges []kv.Range, why error) (watches int) {
	told, late := farewell.Send(ctx, farewell.ByClient(s.native.Farewells(ranges, why)), s.pace)
	return told + farewell.EndAll(late)
}

// SendOn sends every watch, of either API, to another node with its position,
// and then followers of the shard map, because this node is to have no
// clients; at Drain's pace, and no more of them once ctx ends. New ones are let
// in, and those that come back: they may reach no other node.
func (s *Server) SendOn(ctx context.Context) (watches int) {
	all := s.farewells(kv.SentOn())
	told, left := farewell.Send(ctx, slices.Clone(all), s.pace)
	if len(left) > 0 {
		return told
	}
	s.cutUnread(ctx, all)
	s.moved.Notify()
	return told
}

// goOn is closed when SendOn has sent on all watches of that time.
func (s *Server) goOn() <-chan struct{} { return s.moved.Wait() }
