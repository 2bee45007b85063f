package replica

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// beater is a node that answers pings, until it hangs.
type beater struct {
	askedOf [][2]uint64 // guarded by mu; the stream and the revision of each request for progress
	peerv1.UnimplementedPeerServiceServer
	mu    sync.Mutex
	hung  bool // guarded by mu
	open  int  // guarded by mu; heartbeats
	begun int  // guarded by mu
	beats int  // guarded by mu; number of answered pings
	// breaks is the number of heartbeats that break at their first ping. An ignorant node has not read etcd. Both
	// are set before the first heartbeat.
	breaks   int
	ignorant bool
	// follow answers a Follow call. It is set before the first call.
	follow func(first *peerv1.FollowRequest, send func(*peerv1.FollowResponse), s grpc.ServerStreamingServer[peerv1.FollowResponse]) error
	// reports are sent between answers, and set before the first heartbeat; nil: none.
	reports chan *peerv1.BeatResponse
	// asked is called with each request, and set before the first one.
	asked func(want kv.Revision)
	// pinged is called with each ping, and set before the first one.
	pinged func(m *peerv1.BeatRequest)
}

func (b *beater) Follow(first *peerv1.FollowRequest, s grpc.ServerStreamingServer[peerv1.FollowResponse]) error {
	return b.follow(first, func(m *peerv1.FollowResponse) { _ = s.Send(m) }, s)
}

func (b *beater) Beat(s grpc.BidiStreamingServer[peerv1.BeatRequest, peerv1.BeatResponse]) error {
	var broken bool
	b.note(func() { b.open++; b.begun++; broken = b.begun <= b.breaks })
	defer b.note(func() { b.open-- })
	var mu sync.Mutex // one message is sent at a time
	send := func(m *peerv1.BeatResponse) error {
		mu.Lock()
		defer mu.Unlock()
		return s.Send(m)
	}
	if b.reports != nil {
		var sending sync.WaitGroup
		defer sending.Wait()
		ended := make(chan struct{})
		defer close(ended)
		sending.Go(func() {
			for {
				select {
				case m := <-b.reports:
					_ = send(m)
				case <-ended:
					return
				}
			}
		})
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if want := m.GetWantProgress(); want > 0 {
			if b.asked != nil {
				b.asked(kv.Revision(want))
			}
			b.note(func() { b.askedOf = append(b.askedOf, [2]uint64{m.GetWantFollowId(), uint64(want)}) })
			continue
		}
		if b.pinged != nil {
			b.pinged(m)
		}
		for b.hangs() && s.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		b.note(func() { b.beats++ })
		answer := &peerv1.BeatResponse{PongNanos: m.GetPingNanos(), EtcdRevision: 7, EtcdAge: durationpb.New(time.Second), Lineage: 3}
		switch {
		case broken:
			return status.Error(codes.Unavailable, "broken")
		case b.ignorant:
			answer = &peerv1.BeatResponse{PongNanos: m.GetPingNanos()}
		}
		if err := send(answer); err != nil {
			return err
		}
	}
}

func (b *beater) hangs() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hung
}

func (b *beater) note(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// linked runs a test with a link to a node, on fake time.
func linked(t *testing.T, test func(t *testing.T, b *beater, conn *grpc.ClientConn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, l := &beater{}, bufconn.Listen(1<<20)
		server := grpc.NewServer(grpc.WaitForHandlers(true))
		peerv1.RegisterPeerServiceServer(server, b)
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(l) })
		conn, err := grpc.NewClient("passthrough:///node", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		test(t, b, conn)
		_ = conn.Close()
		server.Stop()
		serving.Wait()
	})
}

// All followers over a link share its heartbeat, which ends with the last of them.
func TestOneHeartbeatForALink(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		l := NewLink(conn, nil)
		var releases []func()
		for range 64 {
			_, h := l.hold(t.Context(), Silence, 3)
			releases = append(releases, h.release)
		}
		const beats = 50
		time.Sleep(beats * Heartbeat)
		b.note(func() {
			if b.begun != 1 || b.beats < beats || b.beats > beats+1 {
				t.Errorf("%d heartbeats for 64 followers, want 1; %d answers in %d intervals", b.begun, b.beats, beats)
			}
		})
		for i, release := range releases {
			if b.note(func() {
				if b.open != 1 {
					t.Errorf("%d open heartbeats with %d followers, want 1", b.open, len(releases)-i)
				}
			}); t.Failed() {
				break
			}
			release()
			synctest.Wait()
		}
		b.note(func() {
			if b.open != 0 {
				t.Errorf("%d open heartbeats without followers", b.open)
			}
		})
		_, h := l.hold(t.Context(), Silence, 3)
		time.Sleep(Heartbeat)
		h.release()
		if b.begun != 2 {
			t.Errorf("%d heartbeats have begun, want 2", b.begun)
		}
	})
}

// All followers lose a hung node within Silence, patient ones later. Followers that begin meanwhile also get the
// error.
func TestSilence(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		l := NewLink(conn, nil)
		one, h1 := l.hold(t.Context(), Silence, 3)
		defer h1.release()
		other, h2 := l.hold(t.Context(), Silence, 3)
		defer h2.release()
		patient, h3 := l.hold(t.Context(), 2*time.Second, 3)
		defer h3.release()
		time.Sleep(time.Hour + 70*time.Millisecond)
		if one.Err() != nil {
			t.Fatal(context.Cause(one))
		}
		b.note(func() { b.hung = true })
		hung := time.Now()
		for _, ctx := range []context.Context{one, other} {
			noticed(ctx, t)
			if took := time.Since(hung); took > Silence || took < Silence-Heartbeat || !errors.Is(context.Cause(ctx), ErrSilent) {
				t.Errorf("silence detected after %v with cause %v", took, context.Cause(ctx))
			}
		}
		late, h4 := l.hold(t.Context(), Silence, 3)
		defer h4.release()
		noticed(late, t)
		if took := time.Since(hung); took > Silence+Heartbeat || patient.Err() != nil {
			t.Errorf("a later follower detects the silence after %v; error of the patient one: %v, want none yet", took, patient.Err())
		}
		noticed(patient, t)
		if took := time.Since(hung); took > 2*time.Second || took < 2*time.Second-Heartbeat || !errors.Is(context.Cause(patient), ErrSilent) {
			t.Errorf("the patient follower detects the silence after %v with cause %v", took, context.Cause(patient))
		}
	})
}

// noticed waits, on fake time, until ctx ends.
func noticed(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("the silence was not detected within a minute")
	}
}

// A node that hangs for less than Silence is not lost.
func TestShortSilence(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		ctx, h := NewLink(conn, nil).hold(t.Context(), Silence, 3)
		defer h.release()
		for range 100 {
			b.note(func() { b.hung = true })
			time.Sleep(Silence - Heartbeat - time.Millisecond)
			b.note(func() { b.hung = false })
			time.Sleep(Heartbeat + 7*time.Millisecond)
		}
		if ctx.Err() != nil {
			t.Error(context.Cause(ctx))
		}
	})
}

// A broken link reports its failure at once. Later followers begin another heartbeat.
func TestBrokenLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, err := grpc.NewClient("passthrough:///node", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, io.ErrClosedPipe }))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		l := NewLink(conn, nil)
		for range 3 {
			began := time.Now()
			ctx, h := l.hold(t.Context(), Silence, 3)
			<-ctx.Done()
			if !wire.IsUnavailable(context.Cause(ctx)) || time.Since(began) >= Silence {
				t.Errorf("ended after %v with cause %v", time.Since(began), context.Cause(ctx))
			}
			h.release()
		}
	})
}

// A node's read of etcd is dated with the clock of the requesting node.
func TestReadsOfEtcdAreDated(t *testing.T) {
	linked(t, func(t *testing.T, _ *beater, conn *grpc.ClientConn) {
		looks := make(chan Look, 1)
		_, h := NewLink(conn, func(l Look) {
			select {
			case looks <- l:
			default:
			}
		}).hold(t.Context(), Silence, 3)
		defer h.release()
		l := <-looks
		if l.Lineage != 3 || l.Revision != 7 || !l.At.Equal(time.Now().Add(-time.Second)) {
			t.Errorf("got %+v at %v, want a read of one second ago", l, time.Now())
		}
	})
}

// Streams with revisions of their own send separate requests, each for its highest revision. The other streams
// share one request.
func TestStreamsWithTheirOwnRevisionsSendTheirOwnRequests(t *testing.T) {
	linked(t, func(t *testing.T, b *beater, conn *grpc.ClientConn) {
		l := NewLink(conn, nil)
		var held []*holder
		for i := range 4 {
			_, h := l.hold(t.Context(), Silence, 3)
			defer h.release()
			if held = append(held, h); i < 2 {
				h.setApart()
			}
		}
		for i, revision := range []kv.Revision{5, 3, 8, 9} {
			held[i].want(revision)
			synctest.Wait()
			held[i].want(revision - 1)
		}
		time.Sleep(2 * Heartbeat)
		b.note(func() {
			slices.SortFunc(b.askedOf, func(a, b [2]uint64) int { return int(a[1]) - int(b[1]) })
			want := [][2]uint64{{2, 3}, {1, 5}, {0, 8}, {0, 9}}
			if !slices.Equal(b.askedOf, want) {
				t.Errorf("requests for progress: %v, want %v", b.askedOf, want)
			}
		})
	})
}
