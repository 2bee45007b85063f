package server

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// drainPace is how many watches a second are sent elsewhere, unless there is
// too little time: a herd would come down on the other nodes all at once.
const drainPace = 1000

// drainTick is how often some are.
const drainTick = 10 * time.Millisecond

// farewell is what ends together: a watch, or a stream of etcd's API, which has
// no other way to say it.
type farewell struct {
	client  net.Addr
	watches int
	end     func()
	open    func() bool // it has not ended yet
}

// unreadTimeout is how long a stream that was told to end may take to write that. A
// client that does not read for so long is cut off: nothing else ends its stream.
const unreadTimeout = 5 * time.Second

// cutUnread waits until all have ended, and cuts the connections of those whose clients
// do not read. It returns the number of connections; none when ctx ends before.
func (s *Server) cutUnread(ctx context.Context, all []farewell) (cut int) {
	tick, late := time.NewTicker(drainTick), time.NewTimer(unreadTimeout)
	defer tick.Stop()
	defer late.Stop()
	for {
		if all = slices.DeleteFunc(all, func(f farewell) bool { return !f.open() }); len(all) == 0 {
			return 0
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
			return 0 // the caller of Drain ends the rest
		case <-late.C:
		}
		for _, f := range all {
			if s.conns.cut(f.client) {
				cut++
			}
		}
		if cut > 0 {
			s.cfg.Logger.Warn("connections closed: their clients do not read", "connections", cut, "streams", len(all))
		}
		return cut
	}
}

// Drain tells every watch to go elsewhere with its position, at a pace that the
// other nodes bear and within half of the time that ctx leaves; the other half
// is for clients to read it. It refuses new watches at once, and returns when
// none is left or ctx ends.
func (s *Server) Drain(ctx context.Context) {
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
	streams := s.allStreams()
	all := s.farewells(streams, kv.ShuttingDown())
	told, late := s.sayGoodbye(ctx, slices.Clone(all))
	told += endAll(late)
	s.cutUnread(ctx, all)
	poll := time.NewTicker(drainTick)
	defer poll.Stop()
	for {
		left := s.etcdWatches()
		for _, st := range streams {
			left += st.count()
		}
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

// farewells returns what has to end by either API, one client's after the
// other's, so that each moves once.
func (s *Server) farewells(streams []*stream, why error) []farewell {
	out := nativeFarewells(streams, []kv.Range{{}}, why)
	if s.cfg.Etcd != nil {
		for _, f := range s.cfg.Etcd.Farewells() {
			out = append(out, farewell{f.Client, f.Watches, f.End, f.Open})
		}
	}
	return clientByClient(out)
}

// nativeFarewells returns the native watches whose range overlaps one of ranges.
func nativeFarewells(streams []*stream, ranges []kv.Range, why error) (out []farewell) {
	for _, st := range streams {
		for _, w := range st.list() {
			if !slices.ContainsFunc(ranges, w.rng.Overlaps) {
				continue
			}
			out = append(out, farewell{st.from, 1, func() { w.sendElsewhere(why) }, func() bool { return st.has(w) }})
		}
	}
	return out
}

// clientByClient returns all in a random order of clients.
func clientByClient(all []farewell) []farewell {
	place := make(map[net.Addr]int64)
	for i := range all {
		if _, ok := place[all[i].client]; !ok {
			place[all[i].client] = rand.Int64()
		}
	}
	slices.SortStableFunc(all, func(a, b farewell) int { return cmp.Compare(place[a.client], place[b.client]) })
	return all
}

// sayGoodbye ends them, in their order, until ctx ends. It returns how many
// watches that were, and what is left.
func (s *Server) sayGoodbye(ctx context.Context, all []farewell) (told int, left []farewell) {
	watches := 0
	for i := range all {
		watches += all[i].watches
	}
	took := time.Duration(float64(watches) / float64(s.pace) * float64(time.Second))
	if end, ok := ctx.Deadline(); ok {
		took = min(took, time.Until(end)/2)
	}
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	began := time.Now()
	for len(all) > 0 {
		for due := dueBy(watches, time.Since(began), took); len(all) > 0 && told <= due; all = all[1:] {
			told += all[0].watches
			all[0].end()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return told, all
		}
	}
	return told, nil
}

// endAll ends them at once, and returns how many watches that were.
func endAll(all []farewell) (watches int) {
	for i := range all {
		watches += all[i].watches
		all[i].end()
	}
	return watches
}

// dueBy returns how many of all are due when some of the time is over.
func dueBy(all int, elapsed, took time.Duration) int {
	if elapsed >= took {
		return all
	}
	return int(float64(all) * (float64(elapsed) / float64(took)))
}

// Abandon tells the native watches whose range overlaps one of ranges to resume on
// another node from their positions, because nothing arrives here for these ranges;
// at Drain's pace, and within ctx. It returns how many there were. New watches are
// accepted: a client that reaches no other node is no worse off here. Watches of
// etcd's API stay: with WithRequireLeader they are notified when data is too old, as by
// etcd.
func (s *Server) Abandon(ctx context.Context, ranges []kv.Range, why error) (watches int) {
	told, late := s.sayGoodbye(ctx, clientByClient(nativeFarewells(s.allStreams(), ranges, why)))
	return told + endAll(late)
}

// SendOn sends every watch, of either API, to another node with its position,
// and then followers of the shard map, because this node is to have no
// clients; at Drain's pace, and no more of them once ctx ends. New ones are let
// in, and those that come back: they may reach no other node.
func (s *Server) SendOn(ctx context.Context) (watches int) {
	all := s.farewells(s.allStreams(), kv.SentOn())
	told, left := s.sayGoodbye(ctx, slices.Clone(all))
	if len(left) > 0 {
		return told
	}
	s.cutUnread(ctx, all)
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.moved)
	s.moved = make(chan struct{})
	return told
}

// goOn is closed when SendOn has sent on all watches of that time.
func (s *Server) goOn() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved
}

// sendElsewhere ends the watch because any other node will do better for a while.
func (w *watch) sendElsewhere(why error) {
	w.end(&shardwatchv1.Ended{
		Reason: shardwatchv1.EndReason_END_REASON_DRAINING, Message: why.Error(),
		Endpoints: w.s.srv.cfg.Router.Elsewhere(w.rng), RetryAfter: durationpb.New(time.Millisecond),
	})
}
