package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// scripted is a node whose streams and heartbeats the test controls.
type scripted struct {
	*beater
	opened  chan *opened
	reports chan *peerv1.BeatResponse
	asked   chan kv.Revision
}

// opened is a Follow stream at the node.
type opened struct {
	req  *peerv1.FollowRequest
	send chan *peerv1.FollowResponse // closed: the stream ends
}

// scriptedNode makes b send the reports of the test. It reports on the first heartbeat, so that the first report
// needs a request before it.
func scriptedNode(b *beater) *scripted {
	s := &scripted{beater: b, opened: make(chan *opened, 16), reports: make(chan *peerv1.BeatResponse, 1), asked: make(chan kv.Revision, 1024)}
	b.follow = func(first *peerv1.FollowRequest, send func(*peerv1.FollowResponse), stream grpc.ServerStreamingServer[peerv1.FollowResponse]) error {
		o := &opened{req: first, send: make(chan *peerv1.FollowResponse)}
		s.opened <- o
		for {
			select {
			case m, more := <-o.send:
				if !more {
					return errGone
				}
				send(m)
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		}
	}
	b.reports = s.reports
	b.asked = func(want kv.Revision) { s.asked <- want }
	return s
}

// questions returns the revisions that were requested since the last call.
func (s *scripted) questions() (out []kv.Revision) {
	synctest.Wait()
	for len(s.asked) > 0 {
		out = append(out, <-s.asked)
	}
	return out
}

// report sends a report that a stream has no events after since and up to upTo. It waits until the follower has
// the report.
func (s *scripted) report(id uint64, since, upTo kv.Revision) {
	s.reports <- &peerv1.BeatResponse{Progress: int64(upTo), FollowIds: []uint64{id}, Behind: []int64{0}, Quiet: []int64{int64(upTo - since)}}
	synctest.Wait()
}

// taker follows one shard, and records its updates.
type taker struct {
	updates []kv.Update
	direct  int // number of updates that came directly
	want    *kv.Demand
	stop    context.CancelFunc
	done    chan error
}

// take follows a shard at the node from a revision on.
func take(ctx context.Context, l *Link, lineage uint64, from kv.Revision) *taker {
	return takeIdle(ctx, l, lineage, from, nil)
}

// takeIdle is take for a follower that reports its idle times.
func takeIdle(ctx context.Context, l *Link, lineage uint64, from kv.Revision, idle func(func()) bool) *taker {
	return new(taker).begin(ctx, l, kv.FollowRequest{Range: abc, From: from, Lineage: lineage, Idle: idle})
}

// takeDirectly is take for a follower that takes progress directly.
func takeDirectly(ctx context.Context, l *Link, lineage uint64, from kv.Revision) *taker {
	x := new(taker)
	return x.begin(ctx, l, kv.FollowRequest{Range: abc, From: from, Lineage: lineage, Progress: func(revision kv.Revision) bool {
		x.direct++
		x.updates = append(x.updates, progress(revision))
		return true
	}})
}

func (x *taker) begin(ctx context.Context, l *Link, req kv.FollowRequest) *taker {
	ctx, x.stop = context.WithCancel(ctx)
	x.want, x.done = new(kv.Demand), make(chan error, 1)
	req.Want = x.want
	go func() {
		var last error
		for u, err := range (&Peer{Link: l, Shard: 7}).Follow(ctx, req) {
			if last = err; err == nil {
				x.updates = append(x.updates, u)
			}
		}
		x.done <- last
	}()
	return x
}

// took returns the updates since the last call. It is called while the bubble is idle.
func (x *taker) took() (out []string) {
	synctest.Wait()
	for _, u := range x.updates {
		switch u.Kind {
		case kv.UpdateBatch, kv.UpdateProgress:
			out = append(out, fmt.Sprint(words[u.Kind], " ", u.Revision))
		default:
			out = append(out, words[u.Kind])
		}
	}
	x.updates = nil
	return out
}

// Progress arrives on another stream than events. Progress that overtakes its events is taken with the last of
// these events, and not before.
func TestProgressThatOvertakesEvents(t *testing.T) {
	overtakes(t, take, 0)
}

// A follower that waits for its next update gets progress from the heartbeat's goroutine, under the same rules.
// Progress that waits for events arrives with these events.
func TestProgressIsReportedDirectly(t *testing.T) {
	overtakes(t, takeDirectly, 1)
}

func overtakes(t *testing.T, take func(context.Context, *Link, uint64, kv.Revision) *taker, directly int) {
	t.Helper()
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		s := scriptedNode(b)
		x := take(t.Context(), NewLink(conn, nil), 3, 11)
		is := func(when string, want ...string) {
			t.Helper()
			if got := x.took(); !slices.Equal(got, want) {
				t.Fatalf("%s: took %q, want %q", when, got, want)
			}
		}
		o := <-s.opened
		id := o.req.GetFollowId()
		s.report(id, 10, 30)
		is("before the stream has begun")
		o.send <- beginOf(3, 10)
		is("before the state is there", "begin")
		o.send <- readyNow()
		is("with the state", "ready", "progress 30")
		s.report(id, 35, 40)
		is("before the events")
		o.send <- putOf("a", 34, 34)
		is("with some of the events", "batch 34")
		s.report(id, 45, 50)
		o.send <- putOf("a", 35, 35)
		is("with events before the newest ones", "batch 35")
		o.send <- fragmentOf(putOf("a", 45, 45))
		is("with a part of the newest ones")
		o.send <- putOf("b", 45, 45)
		is("with all events", "batch 45", "progress 50")
		s.report(id, 45, 50)
		s.report(id, 45, 48)
		is("when nothing is new")
		s.report(id, 45, 51)
		is("when it is quiet", "progress 51")
		if x.direct != directly {
			t.Errorf("%d progress updates came directly, want %d", x.direct, directly)
		}
		x.stop()
		if err := <-x.done; err != nil {
			t.Error(err)
		}
	})
}

// A node reports its position when a follower begins, even if it is not ahead of the follower. The follower thus
// learns that the node lacks the missing events.
func TestTheFirstProgressIsTaken(t *testing.T) {
	for _, upTo := range []kv.Revision{7, 10, 11} {
		linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
			s := scriptedNode(b)
			x := take(t.Context(), NewLink(conn, nil), 3, 11)
			o := <-s.opened
			o.send <- beginOf(3, 10)
			o.send <- readyNow()
			for range 2 {
				s.report(o.req.GetFollowId(), 5, upTo)
			}
			if got, want := x.took(), []string{"begin", "ready", fmt.Sprint("progress ", max(10, upTo))}; !slices.Equal(got, want) {
				t.Errorf("updates %q, want %q", got, want)
			}
			x.stop()
			<-x.done
		})
	}
}

// A report for a stream that has ended does not reach the next stream of the same shard, which may be of another
// copy.
func TestProgressOfAnEndedStreamIsIgnored(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		s := scriptedNode(b)
		l := NewLink(conn, nil)
		other := take(t.Context(), l, 3, 11) // keeps the heartbeat open
		<-s.opened
		x := take(t.Context(), l, 3, 11)
		old := <-s.opened
		old.send <- beginOf(3, 10)
		old.send <- readyNow()
		close(old.send)
		if err := <-x.done; err == nil {
			t.Error("the stream did not end")
		}
		x = take(t.Context(), l, 3, 11)
		o := <-s.opened
		o.send <- beginOf(3, 10)
		o.send <- readyNow()
		s.report(old.req.GetFollowId(), 10, 20)
		if got := x.took(); !slices.Equal(got, []string{"begin", "ready"}) {
			t.Errorf("updates %q, want no progress of the old stream", got)
		}
		if old.req.GetSession() != o.req.GetSession() {
			t.Error("a new heartbeat has begun, want the same session")
		}
		for _, x := range []*taker{x, other} {
			x.stop()
			<-x.done
		}
	})
}

// One request covers all shards of a pair that wait for a revision.
func TestOneQuestionForAllShardsOfAPair(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		s := scriptedNode(b)
		l := NewLink(conn, nil)
		var all []*taker
		for range 16 {
			all = append(all, take(t.Context(), l, 3, 11))
		}
		synctest.Wait()
		var asked []kv.Revision
		for _, round := range []kv.Revision{20, 30, 25, 30, 31} {
			for _, x := range all {
				x.want.Ask(round)
			}
			time.Sleep(pushPatience) // this node reports only on request
			synctest.Wait()
			asked = append(asked, s.questions()...)
		}
		if !slices.Equal(asked, []kv.Revision{20, 30, 31}) {
			t.Errorf("requested revisions %v, want 20, 30 and 31", asked)
		}
		for _, x := range all {
			x.stop()
			<-x.done
		}
	})
}

// After the first request, the node reports later revisions without requests. A revision is requested only if its
// progress does not arrive in time. The next ones are then requested at once. The pings report whether revisions
// are still awaited.
func TestPushedProgressIsNotAskedFor(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		s := scriptedNode(b)
		var mu sync.Mutex
		var push []bool
		b.pinged = func(m *peerv1.BeatRequest) {
			mu.Lock()
			defer mu.Unlock()
			push = append(push, m.GetPush())
		}
		x := take(t.Context(), NewLink(conn, nil), 3, 11)
		time.Sleep(Heartbeat + time.Millisecond)
		ask := func(revision kv.Revision, after time.Duration, want ...kv.Revision) {
			t.Helper()
			x.want.Ask(revision)
			time.Sleep(after)
			if got := s.questions(); !slices.Equal(got, want) {
				t.Fatalf("after demand for %d: requested revisions %v, want %v", revision, got, want)
			}
		}
		reached := func(revision kv.Revision) {
			s.reports <- &peerv1.BeatResponse{Reached: int64(revision)}
			synctest.Wait()
		}
		ask(20, 0, 20)
		ask(21, pushPatience-1)
		reached(21)
		ask(22, pushPatience-1)
		ask(23, 0)
		reached(22)
		ask(23, pushPatience-1)
		reached(23)
		ask(24, pushPatience-1)
		reached(23)
		ask(24, 1, 24)
		ask(25, 0, 25)
		ask(26, pushPatience, 26)
		ask(27, 0, 27)
		ask(28, 0, 28)
		ask(29, 0, 29)
		ask(30, pushPatience-1)
		reached(30)
		ask(31, 0)
		ask(32, 0)
		reached(31)
		ask(32, pushPatience-1)
		ask(32, 1, 32) // awaited since progress 31
		time.Sleep(3 * Heartbeat)
		ask(33, 0, 33)
		mu.Lock()
		if want := []bool{false, false, true, false, false}; !slices.Equal(push, want) {
			t.Errorf("push flags of the pings: %v, want %v", push, want)
		}
		mu.Unlock()
		x.stop()
		<-x.done
	})
}

// A report may arrive before the event of the next awaited revision. That revision needs neither a request nor a
// wait for another report, but the node continues to report.
func TestReportedProgressIsNotAwaited(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		s := scriptedNode(b)
		var push atomic.Bool
		b.pinged = func(m *peerv1.BeatRequest) { push.Store(m.GetPush()) }
		x := take(t.Context(), NewLink(conn, nil), 3, 11)
		o := <-s.opened
		o.send <- beginOf(3, 10)
		o.send <- readyNow()
		time.Sleep(Heartbeat + time.Millisecond)
		x.want.Ask(20)
		synctest.Wait()
		for revision := kv.Revision(20); revision < 30; revision++ {
			s.reports <- &peerv1.BeatResponse{
				Reached: int64(revision), Progress: int64(revision),
				FollowIds: []uint64{o.req.GetFollowId()}, Behind: []int64{0}, Quiet: []int64{0}, // the event of this revision follows
			}
			synctest.Wait()
			x.want.Ask(revision)
			time.Sleep(Heartbeat / 4)
			o.send <- putOf("a", int64(revision), int64(revision))
		}
		synctest.Wait()
		if got, want := s.questions(), []kv.Revision{20}; !slices.Equal(got, want) {
			t.Errorf("requested revisions %v, want %v", got, want)
		}
		if !push.Load() {
			t.Error("the pings no longer request reports")
		}
		x.stop()
		<-x.done
	})
}

// The other node holds back the events of an idle shard until a request. The shard is therefore requested at once,
// even for a revision that the node should report without a request.
func TestIdleShardsAreAskedFor(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		s := scriptedNode(b)
		l := NewLink(conn, nil)
		var idle atomic.Bool
		idle.Store(true)
		begun := func(idle func(func()) bool) *taker {
			x := takeIdle(t.Context(), l, 3, 11, idle)
			o := <-s.opened
			o.send <- beginOf(3, 10)
			o.send <- readyNow()
			return x
		}
		watched := begun(func(func()) bool { return false })
		read := begun(func(func()) bool { return idle.Load() })
		time.Sleep(Heartbeat + time.Millisecond)
		for i, x := range []struct {
			by       *taker
			revision kv.Revision
			wait     time.Duration
			want     []kv.Revision
		}{
			{watched, 20, 0, []kv.Revision{20}},
			{watched, 21, 0, nil},
			{read, 21, 0, []kv.Revision{21}},
			{read, 21, 0, nil},
			{read, 22, 0, []kv.Revision{22}},
			{watched, 22, pushPatience, nil},
			{watched, 23, 0, nil},
		} {
			if x.by.want.Ask(x.revision); x.wait > 0 {
				time.Sleep(x.wait)
			}
			if got := s.questions(); !slices.Equal(got, x.want) {
				t.Errorf("step %d: requested revisions %v, want %v", i, got, x.want)
			}
		}
		s.reports <- &peerv1.BeatResponse{Reached: 23}
		idle.Store(false)
		time.Sleep(Heartbeat)
		synctest.Wait()
		if read.want.Ask(24); len(s.questions()) > 0 {
			t.Error("a shard that is no longer idle is requested at once")
		}
		// The next ping, before progress 24, reports that the shard is idle.
		s.reports <- &peerv1.BeatResponse{Reached: 24}
		time.Sleep(Heartbeat - pushPatience)
		idle.Store(true)
		time.Sleep(beat.Until(Heartbeat) - 1)
		read.want.Ask(25)
		time.Sleep(time.Nanosecond)
		if got := s.questions(); !slices.Equal(got, []kv.Revision{25}) {
			t.Errorf("after the ping that reports the shard as idle: requested revisions %v, want 25", got)
		}
		for _, x := range []*taker{watched, read} {
			x.stop()
			<-x.done
		}
	})
}

// Revisions of two lineages cannot be compared. After a change of lineage, the node gets requests for revisions of
// the new lineage, although they are lower.
func TestLineagesAreAskedApart(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		s := scriptedNode(b)
		l := NewLink(conn, nil)
		old := take(t.Context(), l, 3, 11)
		old.want.Ask(1000)
		if got := <-s.asked; got != 1000 {
			t.Errorf("requested revision %d, want 1000", got)
		}
		next := take(t.Context(), l, 4, 11)
		next.want.Ask(20)
		synctest.Wait()
		if len(s.asked) == 0 {
			t.Error("no request for progress in the new lineage")
		}
		if a, b := <-s.opened, <-s.opened; a.req.GetSession() == b.req.GetSession() {
			t.Error("two lineages share a session")
		}
		old.stop()
		<-old.done
		time.Sleep(10 * Heartbeat)
		b.note(func() {
			if b.begun != 2 || b.open != 1 {
				t.Errorf("%d heartbeats have begun, want 2; %d are open, want 1", b.begun, b.open)
			}
		})
		next.stop()
		<-next.done
	})
}

// A report that contradicts itself ends the heartbeat and its streams: the node's memory or its network is faulty.
func TestReportsThatContradictThemselves(t *testing.T) {
	for name, m := range map[string]*peerv1.BeatResponse{
		"no lag":        {Progress: 9, FollowIds: []uint64{1}, Quiet: []int64{0}},
		"no events":     {Progress: 9, FollowIds: []uint64{1}, Behind: []int64{0}},
		"ahead":         {Progress: 9, FollowIds: []uint64{1}, Behind: []int64{-1}, Quiet: []int64{0}},
		"no revision":   {Progress: 9, FollowIds: []uint64{1}, Behind: []int64{9}, Quiet: []int64{0}},
		"later events":  {Progress: 9, FollowIds: []uint64{1}, Behind: []int64{0}, Quiet: []int64{-1}},
		"before all":    {Progress: 9, FollowIds: []uint64{1}, Behind: []int64{0}, Quiet: []int64{10}},
		"lower than 64": {Progress: -1 << 63, FollowIds: []uint64{1}, Behind: []int64{1}, Quiet: []int64{0}},
	} {
		t.Run(name, func(t *testing.T) {
			linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
				s := scriptedNode(b)
				x := take(t.Context(), NewLink(conn, nil), 3, 11)
				o := <-s.opened
				o.send <- beginOf(3, 10)
				o.send <- readyNow()
				s.reports <- m
				if err := <-x.done; !errors.Is(err, kv.ErrMalformed) {
					t.Error(err)
				}
			})
		})
	}
}

// model is a shard at a node. Its streams and reports are delivered in any order that two connections allow.
type model struct {
	t      *testing.T
	o      *opened
	events []kv.Revision // the history, in order
	sent   int           // number of events sent on the stream
	has    kv.Revision   // the node has all revisions up to this one
	first  kv.Revision   // the stream's first revision
	x      *taker
}

// since returns the newest revision with events that the node has.
func (m *model) since() kv.Revision {
	at := m.first - 1
	for _, e := range m.events {
		if e <= m.has {
			at = max(at, e)
		}
	}
	return at
}

// check fails if progress was taken before events at or below it.
func (m *model) check() {
	m.t.Helper()
	next := 0 // index of the next expected event
	for next < len(m.events) && m.events[next] < m.first {
		next++
	}
	for _, u := range m.x.updates {
		switch u.Kind {
		case kv.UpdateBatch:
			if u.Revision != m.events[next] {
				m.t.Fatalf("got events of revision %d, want %d", u.Revision, m.events[next])
			}
			next++
		case kv.UpdateProgress:
			if next < len(m.events) && m.events[next] <= u.Revision {
				m.t.Fatalf("progress %d precedes the events of revision %d", u.Revision, m.events[next])
			}
		}
	}
}

// In any order of progress and events, no follower takes progress before the events that it includes. Each
// follower has all events in the end.
func TestProgressAndEventsInAnyOrder(t *testing.T) {
	rnd := testseed.Rand(t)
	for range 50 {
		linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
			s := scriptedNode(b)
			l := NewLink(conn, nil)
			var all []*model
			now := kv.Revision(10)
			for range 3 {
				m := &model{t: t, first: now + 1, has: now, x: take(t.Context(), l, 3, now+1)}
				m.o = <-s.opened
				all = append(all, m)
			}
			var late []*peerv1.BeatResponse // reports in transit, in order
			report := func() {
				r := &peerv1.BeatResponse{Progress: int64(now)}
				for _, m := range all {
					r.FollowIds = append(r.FollowIds, m.o.req.GetFollowId())
					r.Behind, r.Quiet = append(r.Behind, int64(now-m.has)), append(r.Quiet, int64(m.has-m.since()))
				}
				late = append(late, r)
			}
			begun := 0
			for range 200 {
				m := all[rnd.IntN(len(all))]
				switch rnd.IntN(6) {
				case 0: // an event of this shard or of another one
					now++
					if rnd.IntN(2) == 0 {
						m.events = append(m.events, now)
					}
				case 1:
					m.has = now
				case 2:
					report()
				case 3:
					if len(late) > 0 {
						s.reports <- late[0]
						late = late[1:]
					}
				case 4, 5:
					switch {
					case begun < len(all):
						all[begun].o.send <- beginOf(3, int64(all[begun].first)-1)
						all[begun].o.send <- readyNow()
						begun++
					case m.sent < len(m.events) && m.events[m.sent] <= m.has:
						m.o.send <- putOf("a", int64(m.events[m.sent]), int64(m.events[m.sent]))
						m.sent++
					}
				}
				if rnd.IntN(4) == 0 {
					synctest.Wait()
					m.check()
				}
			}
			for ; begun < len(all); begun++ {
				all[begun].o.send <- beginOf(3, int64(all[begun].first)-1)
				all[begun].o.send <- readyNow()
			}
			for _, m := range all {
				m.has = now
			}
			report()
			for _, r := range late {
				s.reports <- r
			}
			for _, m := range all {
				for ; m.sent < len(m.events); m.sent++ {
					m.o.send <- putOf("a", int64(m.events[m.sent]), int64(m.events[m.sent]))
				}
				synctest.Wait()
				m.check()
				if last := m.x.updates[len(m.x.updates)-1]; last.Revision != now {
					t.Fatalf("the last update is of revision %d, want %d", last.Revision, now)
				}
				m.x.stop()
				<-m.x.done
			}
		})
	}
}

// A ping lists the shards without readers on this node, once their state is complete. When such a shard is read
// again, the next ping, without its ID, is sent at once.
func TestPingsNameIdleShards(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		s := scriptedNode(b)
		var mu sync.Mutex
		idle, arrived := true, func() {}
		var pings [][]uint64
		b.pinged = func(m *peerv1.BeatRequest) {
			mu.Lock()
			defer mu.Unlock()
			pings = append(pings, m.GetIdleFollowIds())
		}
		is := func(when string, want ...[]uint64) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.EqualFunc(pings, want, slices.Equal[[]uint64]) {
				t.Fatalf("%s: pings list the streams %v, want %v", when, pings, want)
			}
			pings = nil
		}
		x := takeIdle(t.Context(), NewLink(conn, nil), 3, 11, func(f func()) bool {
			mu.Lock()
			defer mu.Unlock()
			arrived = f
			return idle
		})
		o := <-s.opened
		id := o.req.GetFollowId()
		is("at the beginning", nil)
		o.send <- beginOf(3, 10)
		time.Sleep(Heartbeat)
		is("before the state is complete", nil)
		o.send <- readyNow()
		time.Sleep(Heartbeat)
		is("with the state", []uint64{id})
		mu.Lock()
		idle = false
		f := arrived
		mu.Unlock()
		f()
		is("when it is read", nil)
		time.Sleep(Heartbeat)
		is("while it is read", nil)
		mu.Lock()
		idle = true
		mu.Unlock()
		time.Sleep(2 * Heartbeat)
		is("when it is not read any more", []uint64{id}, []uint64{id})
		x.stop()
		if err := <-x.done; err != nil {
			t.Error(err)
		}
	})
}
