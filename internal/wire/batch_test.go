package wire_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// addressed is a message to a watch.
type addressed struct {
	id int64
	m  *wire.Shared
}

// randomMessages returns messages of all sizes; most of them are small, as
// events are.
func randomMessages(r *rand.Rand, n int) []addressed {
	var f wire.Fan
	var out []addressed
	for len(out) < n {
		size := r.IntN(600)
		if r.IntN(20) == 0 {
			size = r.IntN(40_000)
		}
		revision := kv.Revision(1 + len(out))
		m := f.EtcdShared(wire.Header{Cluster: 1, Member: 2, Term: 3, Revision: revision}, false, []*kv.Event{{KV: item("/k", size, revision)}}, false)
		for range 1 + r.IntN(30) {
			out = append(out, addressed{id: r.Int64N(1 << 40), m: m})
		}
	}
	return out
}

// sends is a stream that counts what goes through grpc-go message by message.
type sends struct {
	grpc.ServerStream
	n int
}

func (s *sends) SendMsg(m any) error {
	s.n++
	return s.ServerStream.SendMsg(m)
}

// batching is a server that sends messages in batches.
type batching struct {
	etcdserverpb.UnimplementedWatchServer
	watch func(grpc.ServerStream) error
}

func (b *batching) Watch(gs grpc.BidiStreamingServer[etcdserverpb.WatchRequest, etcdserverpb.WatchResponse]) error {
	return b.watch(gs)
}

// serveBatches returns a client's stream to a server that does watch.
func serveBatches(ctx context.Context, t *testing.T, watch func(grpc.ServerStream) error) grpc.ClientStream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(wire.NewCodec()))
	etcdserverpb.RegisterWatchServer(s, &batching{watch: watch})
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewCodec())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		running.Wait()
	})
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, etcdserverpb.Watch_Watch_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// What is sent in batches is what is sent one by one. Through the transport of
// grpc-go it goes together: a new version of it that does otherwise fails here.
func TestBatch(t *testing.T) {
	for name, known := range map[string]bool{"grpc-go's transport": true, "another one": false} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			all := randomMessages(r, 3000)
			var out sends
			stream := serveBatches(t.Context(), t, func(gs grpc.ServerStream) error {
				ctx := context.Background()
				if known {
					ctx = gs.Context()
				}
				out.ServerStream = gs
				var b wire.Batch
				b.Init(ctx, &out)
				for _, a := range all {
					if err := b.Add(a.id, a.m); err != nil {
						return err
					}
					if r.IntN(100) == 0 {
						if err := b.Flush(); err != nil {
							return err
						}
					}
				}
				return b.Flush()
			})
			for i, a := range all {
				var got wire.Encoded
				if err := stream.RecvMsg(&got); err != nil {
					t.Fatalf("message %d: %v", i, err)
				}
				if want := a.m.To(wire.NewEtcdRecipient(a.id)); string(got.Buffers.Materialize()) != string(want.Buffers.Materialize()) {
					t.Fatalf("message %d is another one", i)
				}
				got.Buffers.Free()
			}
			if err := stream.RecvMsg(new(wire.Encoded)); !errors.Is(err, io.EOF) {
				t.Errorf("the end is %v", err)
			}
			if known != (out.n < len(all)/4) {
				t.Errorf("%d of %d messages went one by one", out.n, len(all))
			}
		})
	}
}

// Who sends to a client that has gone is told so.
func TestBatchFails(t *testing.T) {
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	stream := serveBatches(ctx, t, func(gs grpc.ServerStream) error {
		var b wire.Batch
		b.Init(gs.Context(), &sends{ServerStream: gs})
		for small := randomMessages(rand.New(rand.NewPCG(1, 1)), 1)[0]; ; {
			if err := b.Add(small.id, small.m); err != nil {
				failed <- err
				return err
			}
		}
	})
	if err := stream.RecvMsg(new(wire.Encoded)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-failed; err == nil {
		t.Error("sent to nobody")
	}
}
