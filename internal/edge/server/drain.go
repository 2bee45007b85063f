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

// cutUnread waits until all streams have ended, and closes the connections of clients that
// do not read: nothing else ends their streams. If ctx ends before, it leaves them to the
// caller of Drain.
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

// Drain asks every watch to resume on another node, at a pace that does not overload the
// other nodes, and within half of the time until the deadline of ctx; the other half
// is for clients to read the request. It refuses new watches at once, asks clients to make
// all further calls on other connections, and returns when no watch is left or ctx ends.
// Call Finish afterwards.
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
		c.GoAway() // reaches connections without a watch, too
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

// lastCalls bounds how long the calls of clients may take after Drain. Streams that never end on their own,
// such as lease renewals and watches of the node's health, use all of it.
const lastCalls = 2 * time.Second

// Finish accepts no more connections of clients, and waits until their calls have ended, for at most
// lastCalls and until ctx ends. So pending reads and writes still get their answers: call Finish while
// etcd and the caches are available.
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

// away is a call or a server that can ask clients to make their next calls on other connections (GOAWAY:
// RFC 9113, 6.8). grpc-go's server cannot.
type away interface{ GoAway() }

// farewells returns the watches and streams of both APIs, which must end. Their clients are also asked to
// leave the connection: if one address serves several nodes, such as a Kubernetes Service, they would
// return to this node over the open connection.
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
// another node from their positions, because this node receives no events for these ranges.
// It does so at Drain's pace and until ctx ends, and returns the number of these watches. New
// watches are accepted: a client that reaches no other node is no worse off here. Watches of
// etcd's API stay: with WithRequireLeader they get "no leader" when data is too old, as by
// etcd.
func (s *Server) Abandon(ctx context.Context, ranges []kv.Range, why error) (watches int) {
	told, late := farewell.Send(ctx, farewell.ByClient(s.native.Farewells(ranges, why)), s.pace)
	return told + farewell.EndAll(late)
}

// SendOn asks every watch of both APIs to resume on another node from its position, and
// then the followers of the shard map to reconnect, because this node is to have no clients.
// It works at Drain's pace and stops when ctx ends. It accepts new and returning
// watches: their clients may reach no other node.
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

// goOn returns a channel that the next complete SendOn closes, for followers of the shard map.
func (s *Server) goOn() <-chan struct{} { return s.moved.Wait() }
