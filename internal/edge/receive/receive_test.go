package receive_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
	"github.com/shardwatch/shardwatch/internal/edge/receive"
	"github.com/shardwatch/shardwatch/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers each request with the request's watch ID, from the goroutine that handles the request.
type echo struct {
	etcdserverpb.UnimplementedWatchServer
	begun chan *stream
	over  chan error // receives the reason with which each stream ends
}

type stream struct {
	of       *echo
	gs       grpc.BidiStreamingServer[etcdserverpb.WatchRequest, etcdserverpb.WatchResponse]
	requests *receive.Requests[etcdserverpb.WatchRequest]
	half     chan struct{}
}

func (e *echo) Watch(gs grpc.BidiStreamingServer[etcdserverpb.WatchRequest, etcdserverpb.WatchResponse]) error {
	s := &stream{of: e, gs: gs, requests: receive.New(gs), half: make(chan struct{})}
	e.begun <- s
	return s.requests.Serve(s)
}

var errRefused = status.Error(codes.DataLoss, "refused")

func (s *stream) Handle(m *etcdserverpb.WatchRequest) error {
	id := m.GetCancelRequest().GetWatchId()
	if id < 0 {
		return errRefused
	}
	return s.gs.Send(&etcdserverpb.WatchResponse{WatchId: id})
}

func (s *stream) HalfClosed() { close(s.half) }

func (s *stream) End(reason error) error {
	s.of.over <- reason
	return reason
}

func ask(id int64) *etcdserverpb.WatchRequest {
	return &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: id}}}
}

type server interface {
	grpc.ServiceRegistrar
	Serve(l net.Listener) error
	Stop()
}

// serve serves echo with our server, or with grpc-go's.
func serve(t *testing.T, own bool) (*echo, etcdserverpb.WatchClient) {
	t.Helper()
	var s server = grpc.NewServer(grpc.ForceServerCodecV2(wire.NewCodec()), grpc.WaitForHandlers(true))
	if own {
		ours, err := grpcserver.New(grpcserver.Config{
			Credentials: insecure.NewCredentials(), Codec: wire.NewCodec(),
			MaxReceive: 1 << 20, MaxStreams: 2000, MaxHeader: 64 << 10, StreamWindow: 64 << 10, ConnWindow: 1 << 20,
			HandshakeTimeout: time.Minute, PingAfter: time.Hour, PingTimeout: time.Minute, PingLeast: time.Nanosecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		s = ours
	}
	e := &echo{begun: make(chan *stream, 2000), over: make(chan error, 2000)}
	etcdserverpb.RegisterWatchServer(s, e)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(l) }) // ends with Stop
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		running.Wait()
	})
	return e, etcdserverpb.NewWatchClient(conn)
}

func servers(t *testing.T, test func(*testing.T, *echo, etcdserverpb.WatchClient)) {
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("own=%v", own), func(t *testing.T) {
			e, client := serve(t, own)
			test(t, e, client)
		})
	}
}

func open(ctx context.Context, t *testing.T, client etcdserverpb.WatchClient) etcdserverpb.Watch_WatchClient {
	t.Helper()
	w, err := client.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// exchange sends requests and receives their answers.
func exchange(t *testing.T, w etcdserverpb.Watch_WatchClient, ids ...int64) {
	t.Helper()
	for _, id := range ids {
		if err := w.Send(ask(id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if m, err := w.Recv(); err != nil || m.GetWatchId() != id {
			t.Fatalf("answer %v, %v, want %d", m, err, id)
		}
	}
}

// Requests are handled in order, whether they arrive together or separately.
func TestRequestsInOrder(t *testing.T) {
	servers(t, func(t *testing.T, _ *echo, client etcdserverpb.WatchClient) {
		w := open(t.Context(), t, client)
		var ids []int64
		for id := range int64(300) {
			exchange(t, w, id)
			ids = append(ids, id)
		}
		exchange(t, w, ids...)
	})
}

// A stream continues after its client has closed the sending side, until the stream is stopped.
func TestHalfClosedStreamIsStopped(t *testing.T) {
	servers(t, func(t *testing.T, e *echo, client etcdserverpb.WatchClient) {
		for _, reason := range []error{nil, status.Error(codes.Aborted, "stopped")} {
			w := open(t.Context(), t, client)
			s := <-e.begun
			exchange(t, w, 7)
			if err := w.CloseSend(); err != nil {
				t.Fatal(err)
			}
			<-s.half
			if err := s.gs.Send(&etcdserverpb.WatchResponse{WatchId: 8}); err != nil {
				t.Fatal(err)
			}
			if m, err := w.Recv(); err != nil || m.GetWatchId() != 8 {
				t.Fatalf("%v, %v", m, err)
			}
			s.requests.Stop(reason)
			s.requests.Stop(errRefused) // has no effect: the first reason counts
			if got := <-e.over; !errors.Is(got, reason) {
				t.Errorf("the stream ended with %v, want %v", got, reason)
			}
			if _, err := w.Recv(); reason != nil && status.Code(err) != codes.Aborted || reason == nil && err == nil {
				t.Errorf("the client got %v", err)
			}
		}
	})
}

// A stream ends when its client disconnects, when a request ends it, and when it is stopped at rest.
func TestStreamsEnd(t *testing.T) {
	servers(t, func(t *testing.T, e *echo, client etcdserverpb.WatchClient) {
		ctx, cancel := context.WithCancel(t.Context())
		w := open(ctx, t, client)
		exchange(t, w, 1)
		<-e.begun
		cancel()
		if err := <-e.over; status.Code(err) != codes.Canceled && !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}

		w = open(t.Context(), t, client)
		<-e.begun
		if err := w.Send(ask(-1)); err != nil {
			t.Fatal(err)
		}
		if err := <-e.over; !errors.Is(err, errRefused) {
			t.Errorf("refused: %v", err)
		}
		if _, err := w.Recv(); status.Code(err) != codes.DataLoss {
			t.Errorf("the client got %v", err)
		}

		w = open(t.Context(), t, client)
		exchange(t, w, 1)
		(<-e.begun).requests.Stop(errRefused)
		if err := <-e.over; !errors.Is(err, errRefused) {
			t.Errorf("stopped: %v", err)
		}
		if _, err := w.Recv(); status.Code(err) != codes.DataLoss {
			t.Errorf("the client got %v", err)
		}
	})
}

// A stream that was stopped before it is served ends at once.
func TestStoppedBefore(t *testing.T) {
	servers(t, func(t *testing.T, e *echo, client etcdserverpb.WatchClient) {
		for range 100 {
			w := open(t.Context(), t, client)
			go (<-e.begun).requests.Stop(errRefused)
			if _, err := w.Recv(); status.Code(err) != codes.DataLoss {
				t.Errorf("the client got %v", err)
			}
			<-e.over
		}
	})
}

// With our server, a stream at rest has no goroutine.
func TestRestingStreamsHaveNoGoroutine(t *testing.T) {
	const streams = 1000
	e, client := serve(t, true)
	first := open(t.Context(), t, client)
	exchange(t, first, 1)
	<-e.begun
	all := make([]etcdserverpb.Watch_WatchClient, streams)
	for i := range all {
		all[i] = open(t.Context(), t, client)
		exchange(t, all[i], int64(i))
	}
	// Each stream has one goroutine of its client. Goroutines that have handled a request end.
	limit, end := streams+200, time.Now().Add(time.Minute)
	for runtime.NumGoroutine() > limit {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines for %d streams at rest", runtime.NumGoroutine(), streams)
		}
		runtime.Gosched()
	}
	for i, w := range all {
		exchange(t, w, int64(i))
	}
}
