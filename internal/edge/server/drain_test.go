package server_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// A node that drains sends its clients to other nodes one after the other, in all APIs. While it
// does, it still serves the remaining clients and sends them the shard map, but refuses new
// clients.
func TestDrainIsPaced(t *testing.T) {
	r := startBoth(t)
	r.server.SetPace(1) // the whole drain would take minutes
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
	testkit.Eventually(t, "the first client has left", func() bool { return r.server.Status().GetWatches() < clients*each })
	if left := r.server.Status().GetWatches(); left < each {
		t.Errorf("%d watches are left after the first client", left)
	}
	select {
	case err := <-knows:
		t.Errorf("the shard map stream ended early: %v", err)
	case <-drained:
		t.Error("the drain ended at once")
	default:
	}
	if _, err := r.watch().rpc.Recv(); err == nil {
		t.Error("a new stream was accepted")
	}
	cancel() // the time is over: all clients are sent away
	<-drained
	gone.Wait()
	if err := <-knows; err == nil {
		t.Error("the shard map stream continues after the drain")
	}
}

// slowEtcd is a connection to etcd whose answers wait until the test releases them.
type slowEtcd struct {
	grpc.ClientConnInterface
	begun, released chan struct{}
}

func (c slowEtcd) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	c.begun <- struct{}{}
	select {
	case <-c.released:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// holding is an upstream with such a connection.
type holding struct {
	upstream
	conn slowEtcd
}

func (h holding) ProxyConn() grpc.ClientConnInterface { return h.conn }

// A call that has begun when the node shuts down gets its answer, even if a stream of the same client does
// not end: a write whose connection is cut may or may not have happened.
func TestCallsEndBeforeTheServer(t *testing.T) {
	conn := slowEtcd{begun: make(chan struct{}), released: make(chan struct{})}
	r := startBoth(t, func(c *server.Config) {
		ac := etcdapi.Defaults()
		ac.Router, ac.Etcd, ac.Self = c.Router, holding{upstream{cachetest.New()}, conn}, c.Self
		var err error
		if c.Etcd, err = etcdapi.New(ac); err != nil {
			t.Fatal(err)
		}
	})
	health, err := healthgrpc.NewHealthClient(r.conn).Watch(t.Context(), &healthgrpc.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := health.Recv(); err != nil {
		t.Fatal(err)
	}
	put := make(chan error, 2)
	go func() {
		_, err := etcdserverpb.NewKVClient(r.conn).Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("a")})
		put <- err
	}()
	go func() { // HTTP/1
		resp, err := http.Post("http://"+r.clients+"/v3/kv/put", "application/json", strings.NewReader(`{"key":"YQ=="}`))
		if err == nil {
			err = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
		}
		put <- err
	}()
	<-conn.begun
	<-conn.begun
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		r.server.Drain(t.Context())
		r.server.Finish(t.Context())
		r.stop()
	}()
	testkit.Eventually(t, "the node accepts no more connections", func() bool {
		c, err := net.Dial("tcp", r.clients)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	close(conn.released)
	for range 2 {
		if err := <-put; err != nil {
			t.Errorf("a put that began before the drain: %v", err)
		}
	}
	<-stopped
	for err == nil {
		_, err = health.Recv()
	}
}

// An etcd client may have one address for several nodes, such as a Kubernetes Service. When a node drains, the
// client leaves its connection, which would lead back to that node, and resumes on another node.
func TestADrainingNodeEndsTheConnectionsOfClients(t *testing.T) {
	if os.Getenv("CACHENODE_CLIENT_SERVER") == "grpc-go" {
		t.Skip("grpc-go's server sends no GOAWAY while it accepts connections")
	}
	a, b := startBoth(t), startBoth(t)
	var to atomic.Pointer[string]
	to.Store(&a.clients)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var copies sync.WaitGroup
	t.Cleanup(copies.Wait)
	t.Cleanup(func() { _ = l.Close() })
	copies.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			node, err := net.Dial("tcp", *to.Load())
			if err != nil {
				_ = client.Close()
				continue
			}
			for _, c := range [][2]net.Conn{{client, node}, {node, client}} {
				copies.Go(func() {
					_, _ = io.Copy(c[0], c[1]) // until either side closes
					_, _ = client.Close(), node.Close()
				})
			}
		}
	})
	const clients, each = 3, 100
	var events [clients]clientv3.WatchChan
	for i := range clients {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{l.Addr().String()}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		for range each {
			events[i] = client.Watch(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
			if m := <-events[i]; !m.Created {
				t.Fatal(m)
			}
		}
	}
	to.Store(&b.clients)
	a.server.SetPace(1) // the whole drain would take minutes
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var drained sync.WaitGroup
	drained.Go(func() { a.server.Drain(ctx) })
	testkit.Eventually(t, "the watches of the first client continue on the other node", func() bool { return b.server.Status().GetWatches() == each })
	if left := a.server.Status().GetWatches(); left != (clients-1)*each {
		t.Errorf("%d watches are left, want those of %d clients, %d each", left, clients-1, each)
	}
	cancel() // the time is over: all watches are ended
	drained.Wait()
	testkit.Eventually(t, "all watches continue on the other node", func() bool { return b.server.Status().GetWatches() == clients*each })
	b.h.Commit(cachetest.Put("a", "new"))
	for i := range events {
		got := ""
		for got != "new" {
			m, open := <-events[i]
			if !open {
				t.Fatalf("a watch of client %d has ended", i)
			}
			for _, e := range m.Events {
				got = string(e.Kv.Value)
			}
		}
	}
}

// A node that an operator drains ends its clients' watches one after the other, in both APIs, and
// stops when the drain is undone. Clients that connect are served.
func TestADrainedNodeEndsItsWatchesInTurn(t *testing.T) {
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
	testkit.Eventually(t, "the first watch has ended", func() bool { return watches() < clients })
	undrain()
	n := <-told
	testkit.Eventually(t, "all watches reported as ended are gone", func() bool { return watches() <= int64(clients-n) })
	if left := watches(); n == clients || left != int64(clients-n) {
		t.Errorf("%d of %d watches were ended, and %d are left", n, clients, left)
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
			t.Errorf("a watch of the native API got %v, %v", m, err)
		}
	}
	if _, err := etcd.Recv(); !errors.Is(err, rpctypes.ErrGRPCStopped) {
		t.Errorf("a stream of etcd's API ended with %v", err)
	}
	if _, err := shards.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the shard map stream ended with %v", err)
	}
	s.create(all(2, first))
	s.created(2)
	if n := r.server.SendOn(t.Context()); n != 1 { // it may be drained again
		t.Errorf("the second drain ended %d watches, want 1", n)
	}
}

// A drain ends a stream that its client does not read, in either API, both when the node shuts down
// and when it continues to run.
func TestDrainsEndStreamsThatAreNotRead(t *testing.T) {
	for what, drain := range map[string]func(*server.Server, context.Context){
		"shuts down": func(s *server.Server, ctx context.Context) { s.Drain(ctx) },
		"continues":  func(s *server.Server, ctx context.Context) { s.SendOn(ctx) },
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
			for range 2 { // the node tries to send the third event, and waits for the client
				if m, err := native.rpc.Recv(); err != nil || len(m.GetEvents()) == 0 {
					t.Fatal(m, err)
				}
				if m, err := etcd.Recv(); err != nil || len(m.GetEvents()) == 0 {
					t.Fatal(m, err)
				}
			}
			reader := r.watch() // a client that reads keeps its connection
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

// A drained watch counts as sent elsewhere only once the end has been sent to its client. If the
// client does not read, Drain waits until its deadline.
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
