package pump_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// addressed is a message to a watch.
type addressed struct {
	id int64
	m  *wire.Shared
}

// randomMessages returns messages of all sizes, most of them as small as events.
func randomMessages(r *rand.Rand, n int) []addressed {
	var f wire.Fan
	var out []addressed
	for len(out) < n {
		size := r.IntN(600)
		if r.IntN(20) == 0 {
			size = r.IntN(40_000)
		}
		revision := kv.Revision(1 + len(out))
		item := kv.NewKeyValue(kv.Fields{Key: []byte("/k"), Value: make([]byte, size), CreateRevision: 2, ModRevision: revision, Version: 3})
		m := f.EtcdShared(wire.Header{Cluster: 1, Member: 2, Term: 3, Revision: revision}, false, []*kv.Event{{KV: item}}, false)
		for range 1 + r.IntN(30) {
			out = append(out, addressed{id: r.Int64N(1 << 40), m: m})
		}
	}
	return out
}

// watching implements etcd's Watch service with a function.
type watching struct {
	etcdserverpb.UnimplementedWatchServer
	watch func(grpc.ServerStream) error
}

func (w *watching) Watch(gs grpc.BidiStreamingServer[etcdserverpb.WatchRequest, etcdserverpb.WatchResponse]) error {
	return w.watch(gs)
}

// serve starts our server, or grpc-go's, with the watch function, and returns a connection to it.
func serve(t *testing.T, own bool, watch func(grpc.ServerStream) error) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var s interface {
		grpc.ServiceRegistrar
		Serve(l net.Listener) error
		Stop()
	} = grpc.NewServer(grpc.ForceServerCodecV2(wire.NewCodec()), grpc.WaitForHandlers(true))
	if own {
		if s, err = grpcserver.New(grpcserver.Config{
			Credentials: insecure.NewCredentials(), Codec: wire.NewCodec(),
			MaxReceive: 1 << 20, MaxStreams: 100, MaxHeader: 64 << 10, StreamWindow: 64 << 10, ConnWindow: 1 << 20,
			HandshakeTimeout: time.Minute, PingAfter: time.Minute, PingTimeout: time.Minute, PingLeast: time.Minute,
		}); err != nil {
			t.Fatal(err)
		}
	}
	etcdserverpb.RegisterWatchServer(s, &watching{watch: watch})
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(l) }) // ends with Stop
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(4<<20), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewCodec())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		running.Wait()
	})
	return conn
}

func openWatch(ctx context.Context, t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, etcdserverpb.Watch_Watch_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// Messages of all sizes arrive unchanged, in any number per turn, through our server and through
// grpc-go's.
func TestSend(t *testing.T) {
	for name, own := range map[string]bool{"own": true, "grpc-go": false} {
		t.Run(name, func(t *testing.T) {
			r := testseed.Rand(t)
			all := randomMessages(r, 3000)
			var pumps pump.Pumps
			stream := openWatch(t.Context(), t, serve(t, own, func(gs grpc.ServerStream) error {
				s := pumps.Open(gs.Context(), "", gs)
				defer s.Close()
				done := make(chan error, 1)
				var task pump.Task
				left := all
				task.Init(s, func(*pump.Scratch) bool {
					for range r.IntN(100) {
						if len(left) == 0 {
							done <- nil
							return false
						}
						a := left[0]
						left = left[1:]
						err := s.SendShared(a.m, a.id)
						if len(left)%10 == 0 {
							err = errors.Join(err, s.Send(&etcdserverpb.WatchResponse{WatchId: a.id}))
						}
						if err != nil {
							done <- err
							return false
						}
					}
					return true
				})
				task.Start()
				return <-done
			}))
			for i, a := range all {
				var got wire.Encoded
				if err := stream.RecvMsg(&got); err != nil {
					t.Fatalf("message %d: %v", i, err)
				}
				if want := a.m.To(wire.NewEtcdRecipient(a.id)); string(got.Buffers.Materialize()) != string(want.Buffers.Materialize()) {
					t.Fatalf("message %d differs from the message sent", i)
				}
				got.Buffers.Free()
				if (len(all)-i-1)%10 == 0 {
					if m := new(etcdserverpb.WatchResponse); stream.RecvMsg(m) != nil || m.GetWatchId() != a.id {
						t.Fatalf("after message %d: %v", i, m)
					}
				}
			}
			if err := stream.RecvMsg(new(wire.Encoded)); !errors.Is(err, io.EOF) {
				t.Errorf("the stream ended with %v", err)
			}
			pumps.Wait()
		})
	}
}

// A send to a client that has disconnected fails, and so do all later sends.
func TestSendFails(t *testing.T) {
	for name, own := range map[string]bool{"own": true, "grpc-go": false} {
		t.Run(name, func(t *testing.T) {
			var pumps pump.Pumps
			failed := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			small := randomMessages(rand.New(rand.NewPCG(1, 1)), 1)[0]
			stream := openWatch(ctx, t, serve(t, own, func(gs grpc.ServerStream) error {
				s := pumps.Open(gs.Context(), "", gs)
				defer s.Close()
				var task pump.Task
				task.Init(s, func(*pump.Scratch) bool {
					err := s.SendShared(small.m, small.id)
					if err != nil && s.Send(new(etcdserverpb.WatchResponse)) != nil {
						failed <- err
					}
					return err == nil
				})
				task.Start()
				return <-failed
			}))
			if err := stream.RecvMsg(new(wire.Encoded)); err != nil {
				t.Fatal(err)
			}
			cancel()
			pumps.Wait()
		})
	}
}

// A stream whose client does not read blocks neither the other streams of its connection nor other
// connections.
func TestAStreamThatIsNotRead(t *testing.T) {
	for name, own := range map[string]bool{"own": true, "grpc-go": false} {
		t.Run(name, func(t *testing.T) {
			const messages = 100
			var pumps pump.Pumps
			conn := serve(t, own, func(gs grpc.ServerStream) error {
				s := pumps.Open(gs.Context(), "", gs)
				defer s.Close()
				done := make(chan error, 1)
				var task pump.Task
				left := messages
				task.Init(s, func(*pump.Scratch) bool {
					if left--; left < 0 {
						done <- nil
						return false
					}
					if err := s.Send(message(10_000)); err != nil {
						done <- err
						return false
					}
					return true
				})
				task.Start()
				return <-done
			})
			var streams []grpc.ClientStream
			for range 9 {
				streams = append(streams, openWatch(t.Context(), t, conn))
			}
			for _, s := range slices.Backward(streams) { // the other streams are not read meanwhile
				for range messages {
					if err := s.RecvMsg(new(wire.Encoded)); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
