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
	streams := s.allStreams()
	told := s.sayGoodbye(ctx, s.farewells(streams))
	poll := time.NewTicker(drainTick)
	defer poll.Stop()
	for {
		left := s.etcdWatches()
		for _, st := range streams {
			left += st.count()
		}
		if left == 0 {
			s.cfg.Logger.Info("watches sent elsewhere", "watches", told)
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			s.cfg.Logger.Warn("watches cut: their clients did not read in time", "watches", left, "of", told)
			return
		}
	}
}

// farewells returns what has to end, one client's after the other's, so that
// each moves once.
func (s *Server) farewells(streams []*stream) (out []farewell) {
	for _, st := range streams {
		for _, w := range st.list() {
			out = append(out, farewell{st.from, 1, func() { w.sendElsewhere(s.goodbye()) }})
		}
	}
	if s.cfg.Etcd != nil {
		for _, f := range s.cfg.Etcd.Drain() {
			out = append(out, farewell{f.Client, f.Watches, f.End})
		}
	}
	return clientByClient(out)
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

// sayGoodbye ends them, in their order, and returns how many watches that were.
func (s *Server) sayGoodbye(ctx context.Context, all []farewell) (watches int) {
	for i := range all {
		watches += all[i].watches
	}
	took := time.Duration(float64(watches) / float64(s.pace) * float64(time.Second))
	if end, ok := ctx.Deadline(); ok {
		took = min(took, time.Until(end)/2)
	}
	tick := time.NewTicker(drainTick)
	defer tick.Stop()
	began, told := time.Now(), 0
	for at := 0; at < len(all); {
		due := dueBy(watches, time.Since(began), took)
		for ; at < len(all) && told <= due; at++ {
			told += all[at].watches
			all[at].end()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			took = 0
		}
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

// Abandon tells every watch of the native API to go on elsewhere, with its
// position, because this node is cut off; at Drain's pace, and within ctx. New
// ones are let in: who finds no other node is no worse off here. Watches of
// etcd's API stay: with WithRequireLeader they are told when data is too old, as
// by etcd.
func (s *Server) Abandon(ctx context.Context, why error) (watches int) {
	var all []farewell
	for _, st := range s.allStreams() {
		for _, w := range st.list() {
			all = append(all, farewell{st.from, 1, func() { w.sendElsewhere(why) }})
		}
	}
	return s.sayGoodbye(ctx, clientByClient(all))
}

// sendElsewhere ends the watch because any other node will do better for a while.
func (w *watch) sendElsewhere(why error) {
	w.end(&shardwatchv1.Ended{
		Reason: shardwatchv1.EndReason_END_REASON_DRAINING, Message: why.Error(),
		Endpoints: w.s.srv.cfg.Router.Elsewhere(w.rng), RetryAfter: durationpb.New(time.Millisecond),
	})
}
