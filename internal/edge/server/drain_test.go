package server_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// A node that goes away moves its clients one after the other, through whichever
// API they came: when the first has left, others are still served, and know the
// map, while nobody new is let in.
func TestDrainIsPaced(t *testing.T) {
	r := startBoth(t)
	r.server.SetPace(1) // all of them take minutes
	const clients, each = 4, 100
	var gone sync.WaitGroup
	for client := range clients {
		conn := dial(t, r.clients)
		if client%2 == 0 {
			s := watchOn(t, conn)
			for id := range int64(each) {
				s.create(all(id+1, 100))
				s.created(id + 1)
			}
			gone.Go(func() {
				for range each {
					m, err := s.rpc.Recv()
					if err != nil || m.GetEnded().GetReason() != pb.EndReason_END_REASON_DRAINING || m.GetEnded().GetResumeRevision() != 100 {
						t.Errorf("got %v, %v", m, err)
					}
				}
			})
			continue
		}
		s, err := etcdserverpb.NewWatchClient(conn).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range each {
			if err := s.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
				CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}},
			}}); err != nil {
				t.Fatal(err)
			}
			if m, err := s.Recv(); err != nil || !m.GetCreated() {
				t.Fatal(m, err)
			}
		}
		gone.Go(func() {
			var err error
			for err == nil {
				_, err = s.Recv()
			}
		})
	}
	shards, err := pb.NewClusterServiceClient(r.conn).WatchShardMap(t.Context(), &pb.WatchShardMapRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shards.Recv(); err != nil {
		t.Fatal(err)
	}
	knows := make(chan error, 1)
	go func() {
		_, err := shards.Recv()
		knows <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*deadline)
	defer cancel()
	drained := make(chan struct{})
	go func() { r.server.Drain(ctx); close(drained) }()
	testkit.Eventually(t, "the first is gone", func() bool { return r.server.Status().GetWatches() < clients*each })
	if left := r.server.Status().GetWatches(); left < each {
		t.Errorf("%d watches are left when the first has gone", left)
	}
	select {
	case err := <-knows:
		t.Errorf("the map is not told any more: %v", err)
	case <-drained:
		t.Error("drained at once")
	default:
	}
	if _, err := r.watch().rpc.Recv(); err == nil {
		t.Error("a new stream is let in")
	}
	cancel() // no time is left: all go
	<-drained
	gone.Wait()
	if err := <-knows; err == nil {
		t.Error("the map is still told")
	}
}

// A node that an operator has drained sends its clients on one after the other,
// by either API, and stops when that is undone; who comes to it is served.
func TestClientsAreSentOn(t *testing.T) {
	r := startBoth(t)
	r.server.SetPace(1) // each watch waits for a second
	const clients = 20
	var native []*stream
	for range clients {
		s := watchOn(t, dial(t, r.clients))
		s.create(all(1, first))
		s.created(1)
		native = append(native, s)
	}
	watches := func() int64 { return r.server.Status().GetWatches() }

	ctx, undrain := context.WithCancel(t.Context())
	told := make(chan int, 1)
	go func() { told <- r.server.SendOn(ctx) }()
	testkit.Eventually(t, "the first is told", func() bool { return watches() < clients })
	undrain()
	n := <-told
	testkit.Eventually(t, "those who were told are gone", func() bool { return watches() <= int64(clients-n) })
	if left := watches(); n == clients || left != int64(clients-n) {
		t.Errorf("%d of %d are told, and %d are left", n, clients, left)
	}
	s := watchOn(t, r.conn)
	s.create(all(1, first))
	s.created(1)

	r.server.SetPace(1_000_000)
	etcd, err := etcdserverpb.NewWatchClient(r.conn).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := etcd.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}},
	}}); err != nil {
		t.Fatal(err)
	}
	if m, err := etcd.Recv(); err != nil || !m.GetCreated() {
		t.Fatal(m, err)
	}
	shards, err := pb.NewClusterServiceClient(r.conn).WatchShardMap(t.Context(), &pb.WatchShardMapRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shards.Recv(); err != nil {
		t.Fatal(err)
	}
	r.server.SendOn(t.Context())
	for _, s := range append(native, s) {
		m, err := s.rpc.Recv()
		for err == nil && m.GetProgress() != nil { // a slow machine
			m, err = s.rpc.Recv()
		}
		if e := m.GetEnded(); err != nil || e.GetReason() != pb.EndReason_END_REASON_DRAINING || e.GetResumeRevision() != first {
			t.Errorf("a watch got %v, %v", m, err)
		}
	}
	if _, err := etcd.Recv(); !errors.Is(err, rpctypes.ErrGRPCStopped) {
		t.Errorf("a stream of etcd's API ended with %v", err)
	}
	if _, err := shards.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("who follows the map got %v", err)
	}
	s.create(all(2, first))
	s.created(2)
	if n := r.server.SendOn(t.Context()); n != 1 { // it may be drained again
		t.Errorf("%d watches the second time", n)
	}
}

// A stream ends with a drain though its client does not read it, by either API: of a node
// that shuts down, and of one that goes on.
func TestDrainsEndStreamsThatAreNotRead(t *testing.T) {
	for what, drain := range map[string]func(*server.Server, context.Context){
		"shuts down": func(s *server.Server, ctx context.Context) { s.Drain(ctx) },
		"goes on":    func(s *server.Server, ctx context.Context) { s.SendOn(ctx) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := startBoth(t)
			unread := func() *grpc.ClientConn {
				conn, err := grpc.NewClient(r.clients, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = conn.Close() })
				return conn
			}
			native := watchOn(t, unread())
			native.create(all(1, first))
			native.created(1)
			etcd, err := etcdserverpb.NewWatchClient(unread()).Watch(t.Context())
			if err == nil {
				err = etcd.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
					CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}},
				}})
			}
			if err != nil {
				t.Fatal(err)
			}
			if m, err := etcd.Recv(); err != nil || !m.GetCreated() {
				t.Fatal(m, err)
			}
			value := strings.Repeat("v", 100<<10)
			for range 20 {
				r.h.Commit(cachetest.Put("a", value))
			}
			if err := r.node.Replica(1).WaitProgress(t.Context(), r.h.Now()); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the node is about to send a third one, and waits for its client
				if m, err := native.rpc.Recv(); err != nil || len(m.GetEvents()) == 0 {
					t.Fatal(m, err)
				}
				if m, err := etcd.Recv(); err != nil || len(m.GetEvents()) == 0 {
					t.Fatal(m, err)
				}
			}
			reader := r.watch() // who reads is not cut
			reader.create(all(1, int64(r.h.Now())+1))
			reader.created(1)
			ctx, cancel := context.WithTimeout(t.Context(), 10*deadline)
			defer cancel()
			drained := make(chan struct{})
			go func() { drain(r.server, ctx); close(drained) }()
			reader.ended(1)
			select {
			case <-drained:
			case <-time.After(deadline):
				t.Fatal("the drain waits for streams that are not read")
			}
			for name, read := range map[string]func() error{
				"native": func() error { _, err := native.rpc.Recv(); return err }, "etcd": func() error { _, err := etcd.Recv(); return err },
			} {
				var err error
				for err == nil {
					err = read()
				}
				if status.Code(err) != codes.Unavailable {
					t.Errorf("%s: %v", name, err)
				}
			}
			testkit.Eventually(t, "the connections are closed", func() bool { return r.server.Status().GetConnections() == 1 })
		})
	}
}

// A node has sent its watches elsewhere when their clients have been told, and
// no earlier: with a client that does not read, Drain waits for as long as it may.
func TestDrainWaitsForClientsThatDoNotRead(t *testing.T) {
	for name, reads := range map[string]bool{"reads": true, "does not read": false} {
		t.Run(name, func(t *testing.T) {
			var log written
			r := start(t, cachetest.New(), options{server: func(c *server.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }})
			created := make(chan struct{}, 1)
			said := func() {
				select {
				case created <- struct{}{}:
				default:
				}
			}
			p := &held{sent: func(*wire.Encoded) { said() }, all: func(any) { said() }}
			r.hand(p)
			p.in <- &pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: all(1, first)}}
			<-created
			release := p.hold()
			r.h.Commit(cachetest.Put("a", "1"))
			<-p.at
			ctx, cancel := context.WithTimeout(t.Context(), map[bool]time.Duration{true: deadline, false: time.Second}[reads])
			defer cancel()
			if reads {
				release()
			}
			r.server.Drain(ctx)
			told, left := log.take(), r.server.Status().GetWatches()
			if reads && (left != 0 || !strings.Contains(told, "watches sent to other nodes") || ctx.Err() != nil) {
				t.Errorf("%d watches are left: %s", left, told)
			}
			if !reads {
				if left != 1 || !strings.Contains(told, "watches closed") || strings.Contains(told, "sent to other nodes") {
					t.Errorf("%d watches are left: %s", left, told)
				}
				release()
			}
		})
	}
}
