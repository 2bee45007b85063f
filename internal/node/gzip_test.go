package node_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/stats"

	"github.com/shardwatch/shardwatch/internal/node"
)

// received counts what a client receives, and how much of it was compressed.
type received struct {
	messages, compressed atomic.Int64
}

func (*received) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*received) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*received) HandleConn(context.Context, stats.ConnStats)                       {}
func (r *received) HandleRPC(_ context.Context, s stats.RPCStats) {
	if m, ok := s.(*stats.InPayload); ok {
		r.messages.Add(1)
		if m.CompressedLength != m.Length {
			r.compressed.Add(1)
		}
	}
}

// A client that compresses its requests receives nothing compressed: neither responses
// nor the events of a stream of a thousand watches.
func TestNothingIsCompressedForClientsWithGzip(t *testing.T) {
	for _, grpcGo := range []bool{false, true} {
		t.Run(fmt.Sprintf("grpc-go=%t", grpcGo), func(t *testing.T) {
			t.Parallel()
			nothingIsCompressed(t, grpcGo)
		})
	}
}

func nothingIsCompressed(t *testing.T, grpcGo bool) {
	c := startCluster(t, 1, 1, func(cfg *node.Config) {
		shards(1, 1)(cfg)
		cfg.Server.GRPCGo = grpcGo
	})
	c.ready()
	got := &received{}
	conn, err := grpc.NewClient(c.nodes[0].clients, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(got), grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const watches = 1000
	stream, err := etcdserverpb.NewWatchClient(conn).Watch(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for range watches {
		if err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte("/a"), PrevKv: true}}}); err != nil {
			t.Fatal(err)
		}
	}
	for created := 0; created < watches; created++ {
		if m, err := stream.Recv(); err != nil || !m.GetCreated() || m.GetCanceled() {
			t.Fatalf("%v, %v", m, err)
		}
	}
	value := bytes.Repeat([]byte("x"), 1000)
	kv := etcdserverpb.NewKVClient(conn)
	if _, err := kv.Put(within(t), &etcdserverpb.PutRequest{Key: []byte("/a"), Value: value}); err != nil {
		t.Fatal(err)
	}
	for events := 0; events < watches; {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		events += len(m.GetEvents())
	}
	if r, err := kv.Range(within(t), &etcdserverpb.RangeRequest{Key: []byte("/a")}); err != nil || !bytes.Equal(r.GetKvs()[0].GetValue(), value) {
		t.Fatalf("%v, %v", r, err)
	}
	if n := got.messages.Load(); n < 2*watches+2 {
		t.Errorf("%d messages", n)
	}
	if n := got.compressed.Load(); n != 0 {
		t.Errorf("%d of %d messages are compressed", n, got.messages.Load())
	}
}
