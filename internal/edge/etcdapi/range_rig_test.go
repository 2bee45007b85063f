package etcdapi_test

import (
	"context"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// served is the range of keys that the nodes of the tests serve.
func served() kv.Range { return kv.Prefix("/") }

// serving returns a map of the served range, cut into shards that are assigned to the given nodes
// in turn.
func serving(cuts []string, nodes ...shard.NodeID) *shard.Map {
	m := cachetest.Map(1, cuts, nodes[0])
	m.Spec.Ranges = []kv.Range{served()}
	for i := range m.Shards {
		s := &m.Shards[i]
		s.Range, _ = s.Range.Intersect(served())
		s.Replicas = []shard.NodeID{nodes[i%len(nodes)]}
	}
	return m
}

// counting is an etcd that counts the reads that are forwarded to it.
type counting struct {
	etcdapi.Upstream
	reads atomic.Int64
}

func (c *counting) ProxyConn() grpc.ClientConnInterface {
	return countingConn{ClientConnInterface: c.Upstream.ProxyConn(), reads: &c.reads}
}

type countingConn struct {
	grpc.ClientConnInterface
	reads *atomic.Int64
}

func (c countingConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if method == etcdserverpb.KV_Range_FullMethodName {
		c.reads.Add(1)
	}
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

func (c countingConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if method == etcdserverpb.KV_RangeStream_FullMethodName {
		c.reads.Add(1)
	}
	return c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

// readNode is a node with caches of an etcd, and an API.
type readNode struct {
	etcd *counting
	node *cachetest.Node
	api  *etcdapi.API
	addr string
	kv   etcdserverpb.KVClient // client of the API
	peer string                // address of the peer port
}

// peerNode has the methods of a node that the native API needs.
type peerNode struct{ *cachetest.Node }

func (peerNode) Changes() <-chan struct{}                { return nil }
func (peerNode) Members() []*pb.Member                   { return nil }
func (peerNode) Status() *pb.StatusResponse              { return &pb.StatusResponse{} }
func (peerNode) Arrival(shard.ID) <-chan struct{}        { return nil }
func (peerNode) Direct(shard.ID) (bool, <-chan struct{}) { return true, nil }
func (peerNode) StatusOf(context.Context, shard.NodeID) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{}, nil
}
func (peerNode) Looked() (replica.Look, bool)                    { return replica.Look{}, false }
func (peerNode) Propose(context.Context, []byte) (uint64, error) { return 0, nil }

// startReads runs a node of the map, in front of the etcd at endpoint, until the test ends.
func startReads(tb testing.TB, self shard.NodeID, m *shard.Map, endpoint string, tune ...func(*etcdapi.Config)) *readNode {
	tb.Helper()
	return startReadsOf(tb, self, m, endpoint, func(*cache.Config) {}, tune...)
}

// startReadsOf is startReads with tuned caches.
func startReadsOf(tb testing.TB, self shard.NodeID, m *shard.Map, endpoint string, caches func(*cache.Config), tune ...func(*etcdapi.Config)) *readNode {
	tb.Helper()
	ec := etcd.Defaults()
	ec.Endpoints, ec.Logger = []string{endpoint}, slog.New(slog.DiscardHandler)
	up, err := etcd.New(ec)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = up.Close() })
	n := cachetest.NewNode(self, cachetest.New(), func(c *cache.Config) { c.Source = up; caches(c) })
	tb.Cleanup(n.Stop)
	n.Use(m)
	now := time.Now()
	revision, err := up.Revision(within(tb))
	if err != nil {
		tb.Fatal(err)
	}
	for i := range m.Shards {
		if c := n.Replica(m.Shards[i].ID); c != nil {
			<-c.Ready()
			c.Observe(now, revision)
		}
	}
	return startAPI(tb, n, up, router.Config{Shards: n, Clock: up, Self: self, MaxStaleness: time.Minute}, tune...)
}

// startAPI runs an API over a router, and a server for other nodes.
func startAPI(tb testing.TB, n *cachetest.Node, up etcdapi.Upstream, rc router.Config, tune ...func(*etcdapi.Config)) *readNode {
	tb.Helper()
	r, counted := router.New(rc), &counting{Upstream: up}
	cfg := etcdapi.Defaults()
	cfg.Router, cfg.Etcd, cfg.Self, cfg.MaxStaleness = r, counted, rc.Self, time.Minute
	for _, t := range tune {
		t(&cfg)
	}
	api, err := etcdapi.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	sc := server.Defaults()
	sc.Node, sc.Router, sc.Self = peerNode{n}, r, rc.Self
	sc.GRPCGo = os.Getenv("CACHENODE_CLIENT_SERVER") == "grpc-go" // .ci/run grpcgo
	native, err := server.New(sc)
	if err != nil {
		tb.Fatal(err)
	}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		return l
	}
	clients, peers, unused := listen(), listen(), listen()
	var pumps pump.Pumps
	var running sync.WaitGroup
	s := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.WaitForHandlers(true))
	api.Register(s, &pumps)
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() {
		if err := s.Serve(clients); err != nil {
			tb.Error(err)
		}
	})
	running.Go(func() {
		if err := native.Run(ctx, unused, peers); err != nil {
			tb.Error(err)
		}
	})
	running.Go(func() { _ = r.Run(ctx) }) // ends with ctx only
	tb.Cleanup(func() {
		s.Stop()
		cancel()
		running.Wait()
		pumps.Wait()
	})
	out := &readNode{etcd: counted, node: n, api: api, addr: clients.Addr().String(), peer: peers.Addr().String()}
	out.kv = etcdserverpb.NewKVClient(dialLarge(tb, out.addr))
	return out
}

// dialLarge is dialPlain for answers of any size.
func dialLarge(tb testing.TB, address string) *grpc.ClientConn {
	tb.Helper()
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
