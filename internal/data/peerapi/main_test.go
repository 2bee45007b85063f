package peerapi_test

import (
	"context"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/peerapi"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline bounds the wait for an expected event.
const deadline = 60 * time.Second

// node is a peerapi.Node with caches that follow a history.
type node struct {
	*cachetest.Node
}

func (node) Changes() <-chan struct{}                        { return nil }
func (node) Arrival(shard.ID) <-chan struct{}                { return nil }
func (node) Direct(shard.ID) (bool, <-chan struct{})         { return true, nil }
func (node) Looked() (replica.Look, bool)                    { return looked, true }
func (node) Propose(context.Context, []byte) (uint64, error) { return 0, nil }

// looked is the last read of etcd by the nodes.
var looked = replica.Look{Lineage: 1, Revision: cachetest.Start, At: time.Now().Add(-time.Minute)}

// running is a service on loopback.
type running struct {
	service *peerapi.Service
	tb      testing.TB
	h       *cachetest.Script
	node    *cachetest.Node
	peers   string // address of the service
}

// options configure start.
type options struct {
	shards  *shard.Map
	service func(*peerapi.Config)
	cache   func(*cache.Config)
}

// start runs the service of a node with h until the test ends.
func start(tb testing.TB, h *cachetest.Script, o options) *running {
	tb.Helper()
	if o.shards == nil {
		o.shards = cachetest.Map(1, []string{"h"}, "here")
	}
	n := cachetest.NewNode("here", h, o.cache)
	n.Use(o.shards)
	for i := range o.shards.Shards {
		if c := n.Replica(o.shards.Shards[i].ID); c != nil {
			<-c.Ready()
		}
	}
	cfg := peerapi.Config{Node: node{n}, Self: "here", FragmentBytes: 512 << 10}
	if o.service != nil {
		o.service(&cfg)
	}
	service := peerapi.New(cfg)
	server := grpc.NewServer(append(service.Options(), grpc.ForceServerCodecV2(wire.NewCodec()), grpc.WaitForHandlers(true))...)
	peerv1.RegisterPeerServiceServer(server, service)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	tb.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			tb.Error(err)
		}
		n.Stop()
	})
	return &running{tb: tb, h: h, node: n, service: service, peers: l.Addr().String()}
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

// aged makes the cache complete as of the given time ago.
func aged(c *cache.Cache, age time.Duration) { c.Observe(time.Now().Add(-age), cachetest.Start) }

// around reports whether an age is close to the configured one. The margin allows for slow tests.
func around(got *durationpb.Duration, want time.Duration) bool {
	return got != nil && got.AsDuration() >= want && got.AsDuration() < want+10*time.Minute
}

// follows opens a peer's stream of a shard, and returns its first message.
func (r *running) follows(ctx context.Context, change func(*peerv1.FollowRequest)) (peerv1.PeerService_FollowClient, *peerv1.FollowResponse, error) {
	req := &peerv1.FollowRequest{ShardId: 1, Node: "there", Lineage: 1, FromRevision: int64(r.h.Now()) + 1}
	req.Key, req.RangeEnd = r.node.Map().Shards[0].Range.Etcd()
	change(req)
	s, err := peerv1.NewPeerServiceClient(dial(r.tb, r.peers)).Follow(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.Recv()
	return s, m, wire.Error(err)
}
