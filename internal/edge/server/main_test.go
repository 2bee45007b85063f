package server_test

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline is the time limit for everything that a test waits for.
const deadline = 60 * time.Second

// node is a server.Node with caches that follow a history.
type node struct {
	*cachetest.Node
}

func (node) Changes() <-chan struct{}                { return nil }
func (node) Members() []*pb.Member                   { return nil }
func (node) Status() *pb.StatusResponse              { return &pb.StatusResponse{} }
func (node) Arrival(shard.ID) <-chan struct{}        { return nil }
func (node) Direct(shard.ID) (bool, <-chan struct{}) { return true, nil }
func (node) StatusOf(context.Context, shard.NodeID) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{}, nil
}
func (node) Looked() (replica.Look, bool)                    { return looked, true }
func (node) Propose(context.Context, []byte) (uint64, error) { return 0, nil }

// looked is the state of etcd that the nodes have read.
var looked = replica.Look{Lineage: 1, Revision: cachetest.Start, At: time.Now().Add(-time.Minute)}

// running is a server on loopback.
type running struct {
	tb      testing.TB
	h       *cachetest.Script
	node    *cachetest.Node
	router  *router.Router
	server  *server.Server
	clients string // its address
	peers   string
	conn    *grpc.ClientConn // of a client
	stop    func()
}

// options change the server that start runs.
type options struct {
	self   shard.NodeID
	shards *shard.Map
	server func(*server.Config)
	cache  func(*cache.Config)
	// founding makes the node begin without the shard map; see node.Use.
	founding bool
}

// start runs a server of h until the test ends.
func start(tb testing.TB, h *cachetest.Script, o options) *running {
	tb.Helper()
	return startStopped(tb, h, o, func(*server.Server) {})
}

// startStopped is start with a change of the server before it runs.
func startStopped(tb testing.TB, h *cachetest.Script, o options, change func(*server.Server)) *running {
	tb.Helper()
	if o.self == "" {
		o.self = "here"
	}
	if o.shards == nil {
		o.shards = cachetest.Map(1, []string{"h"}, "here")
	}
	n := cachetest.NewNode(o.self, h, o.cache)
	if !o.founding {
		n.Use(o.shards)
	}
	for i := range o.shards.Shards {
		if c := n.Replica(o.shards.Shards[i].ID); c != nil && o.cache == nil {
			<-c.Ready()
		}
	}
	r := router.New(router.Config{Shards: n, Clock: h, Self: o.self, MaxStaleness: time.Minute})
	cfg := server.Defaults()
	cfg.ProgressInterval = 10 * time.Minute // so that a slow test gets no progress that it has not requested
	cfg.Node, cfg.Router, cfg.Self = node{n}, r, o.self
	cfg.GRPCGo = os.Getenv("CACHENODE_CLIENT_SERVER") == "grpc-go" // .ci/run grpcgo
	if o.server != nil {
		o.server(&cfg)
	}
	s, err := server.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	change(s)
	clients, peers := listen(tb), listen(tb)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx, clients, peers); err != nil {
			tb.Error(err)
		}
	})
	wg.Go(func() { _ = r.Run(ctx) }) // ends with ctx only
	out := &running{
		tb: tb, h: h, node: n, router: r, server: s, clients: clients.Addr().String(), peers: peers.Addr().String(),
		stop: sync.OnceFunc(func() { cancel(); wg.Wait(); n.Stop() }),
	}
	tb.Cleanup(out.stop)
	out.conn = dial(tb, out.clients)
	return out
}

func listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func dial(tb testing.TB, address string) *grpc.ClientConn {
	tb.Helper()
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// stream is a client's Watch stream.
type stream struct {
	tb  testing.TB
	rpc grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse]
	end context.CancelFunc
}

func (r *running) watch() *stream { return watchOn(r.tb, r.conn) }

func watchOn(tb testing.TB, conn *grpc.ClientConn) *stream {
	tb.Helper()
	return watchWithin(tb, conn, deadline)
}

// watchWithin is watchOn with a longer deadline for the stream.
func watchWithin(tb testing.TB, conn *grpc.ClientConn, limit time.Duration) *stream {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	tb.Cleanup(cancel)
	rpc, err := pb.NewCacheServiceClient(conn).Watch(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return &stream{tb: tb, rpc: rpc, end: cancel}
}

func (s *stream) send(m *pb.WatchRequest) {
	s.tb.Helper()
	if err := s.rpc.Send(m); err != nil {
		s.tb.Fatalf("send: %v", err)
	}
}

func (s *stream) create(c *pb.CreateWatch) {
	s.tb.Helper()
	s.send(&pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: c}})
}

func (s *stream) cancel(id int64) {
	s.tb.Helper()
	s.send(&pb.WatchRequest{Request: &pb.WatchRequest_Cancel{Cancel: &pb.CancelWatch{WatchId: id}}})
}

func (s *stream) requestProgress() {
	s.tb.Helper()
	s.send(&pb.WatchRequest{Request: &pb.WatchRequest_Progress{Progress: &pb.RequestProgress{}}})
}

// next returns the next response.
func (s *stream) next() *pb.WatchResponse {
	s.tb.Helper()
	m, err := s.rpc.Recv()
	if err != nil {
		s.tb.Fatalf("receive: %v", err)
	}
	return m
}

// created expects the next response to create the watch, and returns it. Periodic progress with
// revision 0 may precede it.
func (s *stream) created(id int64) *pb.Created {
	s.tb.Helper()
	m := s.next()
	for m.GetProgress() != nil && m.GetProgress().GetRevision() == 0 {
		m = s.next()
	}
	if m.GetCreated() == nil || m.GetWatchId() != id {
		s.tb.Fatalf("got %v, want watch %d to be created", m, id)
	}
	return m.GetCreated()
}

// ended expects the next response to end the watch, and returns it. Periodic progress may precede
// it.
func (s *stream) ended(id int64) *pb.Ended {
	s.tb.Helper()
	m := s.next()
	for m.GetProgress() != nil {
		m = s.next()
	}
	if m.GetEnded() == nil || m.GetWatchId() != id {
		s.tb.Fatalf("got %v, want watch %d to be ended", m, id)
	}
	return m.GetEnded()
}

// all returns a request for all keys from a revision on.
func all(id int64, from int64) *pb.CreateWatch {
	return &pb.CreateWatch{WatchId: id, Key: []byte{0}, RangeEnd: []byte{0}, Start: &pb.CreateWatch_StartRevision{StartRevision: from}}
}

// first is the first revision with an event.
const first = int64(cachetest.Start) + 1
