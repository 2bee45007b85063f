package replica

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// slowConn is a connection whose calls return some time after they were cancelled: Recv after one second, Send
// after two.
type slowConn struct {
	grpc.ClientConnInterface
	inside atomic.Int64 // number of calls that have not returned
}

func (c *slowConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &slowStream{conn: c, ctx: ctx}, nil
}

type slowStream struct {
	grpc.ClientStream
	conn *slowConn
	ctx  context.Context
	sent atomic.Int64
}

func (s *slowStream) Context() context.Context { return s.ctx }

func (s *slowStream) wait(after time.Duration) error {
	s.conn.inside.Add(1)
	defer s.conn.inside.Add(-1)
	<-s.ctx.Done()
	time.Sleep(after)
	return status.FromContextError(s.ctx.Err()).Err()
}

func (s *slowStream) RecvMsg(any) error { return s.wait(time.Second) }
func (s *slowStream) CloseSend() error  { return nil }

func (s *slowStream) SendMsg(any) error {
	if s.sent.Add(1) == 1 {
		return nil // the request
	}
	return s.wait(2 * time.Second)
}

// Following a peer waits for its calls before it returns: a running call would use a connection that is being
// closed.
func TestFollowWaitsForItsCalls(t *testing.T) {
	t.Run("the heartbeat", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			conn := &slowConn{}
			_, h := NewLink(conn, nil).hold(t.Context(), time.Hour, 3)
			time.Sleep(3 * Heartbeat)
			if n := conn.inside.Load(); n != 2 {
				t.Fatalf("%d calls are running, want 2: a ping and the wait for its answer", n)
			}
			h.release()
			if n := conn.inside.Load(); n != 0 {
				t.Errorf("%d calls are still open", n)
			}
		})
	})
	t.Run("the stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			conn := &slowConn{}
			ctx, cancel := context.WithCancel(t.Context())
			want := new(kv.Demand)
			want.Ask(20)
			go func() {
				time.Sleep(time.Second)
				cancel()
			}()
			p := &Peer{Link: NewLink(conn, nil), Silence: time.Hour}
			for _, err := range p.Follow(ctx, kv.FollowRequest{Range: abc, From: 11, Want: want}) {
				t.Errorf("the cancelled caller gets the error %v", err)
			}
			if n := conn.inside.Load(); n != 0 {
				t.Errorf("%d calls are still open", n)
			}
		})
	})
}

// A broken heartbeat is dropped, and later holders begin another one. The holders of the first one do not end it
// when they release theirs.
func TestABrokenHeartbeatIsReplaced(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		b.breaks = 1
		l := NewLink(conn, nil)
		first, h1 := l.hold(t.Context(), Silence, 3)
		<-first.Done()
		if errors.Is(context.Cause(first), ErrSilent) {
			t.Errorf("a broken heartbeat counts as silent: %v", context.Cause(first))
		}
		second, h2 := l.hold(t.Context(), Silence, 3)
		time.Sleep(Heartbeat)
		h1.release()
		third, h3 := l.hold(t.Context(), Silence, 3)
		time.Sleep(10 * Heartbeat)
		b.note(func() {
			if b.begun != 2 || b.open != 1 || second.Err() != nil || third.Err() != nil {
				t.Errorf("%d heartbeats have begun, want 2; %d are open, want 1; causes %v, %v", b.begun, b.open, context.Cause(second), context.Cause(third))
			}
		})
		h2.release()
		h3.release()
		synctest.Wait()
		b.note(func() {
			if b.open != 0 {
				t.Errorf("%d heartbeats are still open", b.open)
			}
		})
	})
}

// A node that has not read etcd's revision reports none.
func TestAPeerWithoutARevisionReportsNone(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		b.ignorant = true
		_, h := NewLink(conn, func(l Look) { t.Errorf("got %+v from a node that has not read etcd", l) }).hold(t.Context(), Silence, 3)
		time.Sleep(10 * Heartbeat)
		h.release()
	})
}

// A follower of a peer may tolerate a longer silence than usual.
func TestSilenceOfAPatientFollower(t *testing.T) {
	for silence, want := range map[time.Duration]time.Duration{0: Silence, 2 * time.Second: 2 * time.Second} {
		linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
			b.follow = func(_ *peerv1.FollowRequest, send func(*peerv1.FollowResponse), s grpc.ServerStreamingServer[peerv1.FollowResponse]) error {
				send(beginOf(3, 10))
				<-s.Context().Done()
				return s.Context().Err()
			}
			p := &Peer{Link: NewLink(conn, nil), Silence: silence}
			var hung time.Time
			for _, err := range p.Follow(t.Context(), kv.FollowRequest{Range: abc, From: 11, Lineage: 3}) {
				if err == nil {
					b.note(func() { b.hung = true })
					hung = time.Now()
					continue
				}
				if took := time.Since(hung); !errors.Is(err, ErrSilent) || took > want || took < want-2*Heartbeat {
					t.Errorf("ended after %v with %v, want ErrSilent in time", took, err)
				}
			}
		})
	}
}

// A relay takes the window with previous values, and no state. Its progress requests reach the node.
func TestARelayTakesNoState(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		var asked *peerv1.FollowRequest
		wished := make(chan kv.Revision, 1)
		b.asked = func(want kv.Revision) { wished <- want }
		b.follow = func(first *peerv1.FollowRequest, send func(*peerv1.FollowResponse), s grpc.ServerStreamingServer[peerv1.FollowResponse]) error {
			asked = first
			send(beginOf(3, 10))
			select {
			case got := <-wished:
				if got != 17 {
					t.Errorf("progress was requested up to %d, want 17", got)
				}
			case <-s.Context().Done():
			}
			return errGone
		}
		p := &Peer{Link: NewLink(conn, nil), Stateless: true}
		want := new(kv.Demand)
		want.Ask(17)
		for range p.Follow(t.Context(), kv.FollowRequest{Range: abc, Lineage: 3, Want: want}) {
		}
		if asked.GetWantState() || !asked.GetWantHistory() || !asked.GetPrevKv() {
			t.Errorf("got the request %v, want history and previous values without state", asked)
		}
	})
}

// decode accepts the messages of a peer unchanged, and rejects messages that violate the protocol.
func TestMessagesOfAPeer(t *testing.T) {
	full := putOf("a", 12, 12)
	full.Events[0].PrevKv = &pb.KeyValue{Key: []byte("a"), ModRevision: 9}
	history := putOf("a", 12, 12)
	history.History = true
	t.Run("events", func(t *testing.T) {
		for _, c := range []struct {
			m    *peerv1.FollowResponse
			kind kv.UpdateKind
			prev kv.Revision
		}{{full, kv.UpdateBatch, 9}, {putOf("a", 12, 12), kv.UpdateBatch, 0}, {history, kv.UpdateHistory, 0}} {
			var assembling kv.Batch
			all, err := decode(c.m, &assembling)
			if err != nil || len(all) != 1 {
				t.Fatalf("%v: %+v, %v", c.m, all, err)
			}
			u := all[0]
			if u.Kind != c.kind || u.Revision != 12 || len(u.Batch.Events) != 1 || u.Batch.Received.IsZero() {
				t.Fatalf("%v: %+v", c.m, u)
			}
			var prev kv.Revision
			if p := u.Batch.Events[0].Prev; p != nil {
				prev = p.ModRevision()
			}
			if prev != c.prev || assembling.Revision != 0 || assembling.Events != nil {
				t.Errorf("%v: previous value of %d, want %d; left over %+v", c.m, prev, c.prev, assembling)
			}
		}
	})
	t.Run("fragments", func(t *testing.T) {
		var assembling kv.Batch
		if all, err := decode(fragmentOf(putOf("a", 12, 12)), &assembling); len(all) > 0 || err != nil {
			t.Fatal(all, err)
		}
		for _, other := range []int64{11, 13} {
			torn := kv.Batch{Revision: 12, Events: slices.Clone(assembling.Events)}
			for _, several := range []bool{false, true} {
				m := putOf("b", other, other)
				m.Several = several
				if _, err := decode(m, &torn); err == nil {
					t.Errorf("revision %d within fragments of 12 is accepted; several: %v", other, several)
				}
			}
		}
		all, err := decode(putOf("b", 12, 12), &assembling)
		if err != nil || len(all) != 1 || len(all[0].Batch.Events) != 2 {
			t.Errorf("%+v, %v", all, err)
		}
	})
	t.Run("several revisions", func(t *testing.T) {
		m := &peerv1.FollowResponse{Revision: 15, Several: true}
		for _, e := range []*peerv1.FollowResponse{putOf("a", 12, 12), putOf("b", 12, 12), putOf("a", 13, 13), putOf("a", 15, 15)} {
			m.Events = append(m.Events, e.GetEvents()...)
		}
		var assembling kv.Batch
		all, err := decode(m, &assembling)
		if err != nil || len(all) != 3 || assembling.Revision != 0 {
			t.Fatalf("%+v, %v; left over %+v", all, err, assembling)
		}
		for i, want := range []struct {
			revision kv.Revision
			events   int
		}{{12, 2}, {13, 1}, {15, 1}} {
			u := all[i]
			if u.Kind != kv.UpdateBatch || u.Revision != want.revision || u.Batch.Revision != want.revision || len(u.Batch.Events) != want.events || u.Batch.Received.IsZero() {
				t.Errorf("%+v, want %+v", u, want)
			}
			if err := plausible(&u, abc); err != nil {
				t.Error(err)
			}
		}
		for _, revisions := range [][]int64{{13, 12}, {12, 13, 12}, {12, 0}, {-1}} {
			wrong := &peerv1.FollowResponse{Revision: 15, Several: true}
			for _, r := range revisions {
				wrong.Events = append(wrong.Events, putOf("a", r, r).GetEvents()...)
			}
			if all, err := decode(wrong, &kv.Batch{}); err == nil {
				t.Errorf("the sequence of revisions %v is accepted as %+v", revisions, all)
			}
		}
	})
	t.Run("malformed messages", func(t *testing.T) {
		for name, m := range map[string]*peerv1.FollowResponse{
			"nothing":             {},
			"a revision alone":    {Revision: 12},
			"events alone":        {Events: full.GetEvents()},
			"a revision below 0":  {Revision: -1, Events: full.GetEvents()},
			"an event of no key":  {Revision: 12, Events: []*pb.Event{{Kv: &pb.KeyValue{}}}},
			"an event of nothing": {Revision: 12, Events: []*pb.Event{{}}},
		} {
			if _, err := decode(m, &kv.Batch{}); !errors.Is(err, kv.ErrMalformed) {
				t.Errorf("%s: %v, want ErrMalformed", name, err)
			}
		}
	})
	t.Run("an event of another revision, above or below", func(t *testing.T) {
		for mod, ok := range map[int64]bool{11: false, 12: true, 13: false} {
			all, err := decode(putOf("a", mod, 12), &kv.Batch{})
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			if err := plausible(&all[0], abc); (err == nil) != ok {
				t.Errorf("an event of revision %d in a batch of 12: %v", mod, err)
			}
		}
	})
}

// If a peer fails, its own error is returned.
func TestAPeersErrorIsItsOwn(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		b.follow = func(*peerv1.FollowRequest, func(*peerv1.FollowResponse), grpc.ServerStreamingServer[peerv1.FollowResponse]) error {
			return status.Error(codes.PermissionDenied, "no node of this cluster")
		}
		var last error
		for _, err := range (&Peer{Link: NewLink(conn, nil)}).Follow(t.Context(), kv.FollowRequest{Range: abc, From: 11}) {
			last = err
		}
		if last == nil || errors.Is(last, context.Canceled) || errors.Is(last, ErrSilent) {
			t.Errorf("ended with %v, want the peer's error", last)
		}
	})
}
