package grpcserver_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
)

// fan is a service that sends messages on its duplex streams on demand, as watches do.
type fan struct {
	testService
	opened  atomic.Int64
	mu      sync.Mutex
	streams []pb.TestService_FullDuplexCallServer // guarded by mu
}

func (f *fan) FullDuplexCall(both pb.TestService_FullDuplexCallServer) error {
	if err := both.SendHeader(nil); err != nil {
		return err
	}
	f.mu.Lock()
	f.streams = append(f.streams, both)
	f.mu.Unlock()
	f.opened.Add(1)
	<-both.Context().Done()
	return nil
}

// benchServer starts our server or grpc-go's, with the node's settings.
func benchServer(b *testing.B, own bool, creds credentials.TransportCredentials, service pb.TestServiceServer) (address string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var s interface {
		grpc.ServiceRegistrar
		Serve(l net.Listener) error
		Stop()
	}
	if own {
		cfg := config()
		cfg.Credentials = creds
		if s, err = grpcserver.New(cfg); err != nil {
			b.Fatal(err)
		}
	} else {
		s = grpc.NewServer(grpc.Creds(creds), grpc.ForceServerCodecV2(encoding.GetCodecV2("proto")),
			grpc.InitialWindowSize(64<<10), grpc.InitialConnWindowSize(4<<20), grpc.ReadBufferSize(4<<10),
			grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}))
	}
	pb.RegisterTestServiceServer(s, service)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	b.Cleanup(func() { s.Stop(); serving.Wait() })
	return l.Addr().String()
}

// crowd connects clients that open one stream each and discard all input. They are minimal HTTP/2
// clients, cheap but able to count bytes.
func crowd(b *testing.B, address string, n int, secure *tls.Config, heard func(bytes int)) {
	b.Helper()
	var readers sync.WaitGroup
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		if secure != nil {
			c = tls.Client(c, secure)
		}
		var out bytes.Buffer
		out.WriteString(http2.ClientPreface)
		f := http2.NewFramer(&out, nil)
		r := &raw{t: b, Framer: f}
		r.enc = newEncoder(&r.buf)
		r.must(f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1}))
		r.must(f.WriteWindowUpdate(0, 1<<30))
		r.open(1, false, call(duplexMethod)...)
		if _, err := c.Write(out.Bytes()); err != nil {
			b.Fatal(err)
		}
		conns[i] = c
	}
	for _, c := range conns {
		readers.Go(func() {
			buf := make([]byte, 4<<10)
			for {
				n, err := c.Read(buf)
				heard(n)
				if err != nil {
					return
				}
			}
		})
	}
	b.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
		readers.Wait()
	})
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFanout sends a message of 256 bytes to each of many connections with one stream each. It
// measures the CPU time of server and clients per delivery; the clients' part is a read(2). The raw
// row replaces the server with a write(2) to each connection.
func BenchmarkFanout(b *testing.B) {
	const conns = 500
	forServer, forClient := certificates(b)
	for _, secure := range []bool{false, true} {
		for _, own := range []bool{false, true} {
			b.Run(fmt.Sprintf("tls=%v/own=%v", secure, own), func(b *testing.B) {
				creds, client := insecure.NewCredentials(), (*tls.Config)(nil)
				if secure {
					creds, client = credentials.NewTLS(forServer), forClient
				}
				f := new(fan)
				var got, want atomic.Int64
				var waiting atomic.Bool
				all := make(chan struct{}, 1)
				crowd(b, benchServer(b, own, creds, f), conns, client, func(n int) {
					if w := want.Load(); w > 0 && got.Add(int64(n)) >= w && waiting.CompareAndSwap(true, false) {
						all <- struct{}{}
					}
				})
				for f.opened.Load() < conns {
					runtime.Gosched()
				}
				time.Sleep(100 * time.Millisecond) // until the headers are sent, which do not count
				m := &pb.StreamingOutputCallResponse{Payload: payload(256)}
				begun := cpu(b)
				for b.Loop() {
					want.Add(int64(conns * (9 + len(message(m)))))
					waiting.Store(true)
					for _, s := range f.streams {
						if err := s.Send(m); err != nil {
							b.Fatal(err)
						}
					}
					<-all
				}
				spent := cpu(b) - begun
				b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N*conns), "cpu-ns/delivery")
			})
		}
	}
}

// BenchmarkUnary calls an empty method of one connection from 16 goroutines.
func BenchmarkUnary(b *testing.B) {
	for _, own := range []bool{false, true} {
		b.Run(fmt.Sprintf("own=%v", own), func(b *testing.B) {
			client := pb.NewTestServiceClient(dial(b, benchServer(b, own, insecure.NewCredentials(), new(testService))))
			begun := cpu(b)
			b.SetParallelism(8)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if _, err := client.EmptyCall(b.Context(), new(pb.Empty)); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64((cpu(b)-begun).Nanoseconds())/float64(b.N), "cpu-ns/call")
		})
	}
}

// BenchmarkLargeRequest sends requests of 1 MiB, plain and compressed.
func BenchmarkLargeRequest(b *testing.B) {
	for _, own := range []bool{false, true} {
		for _, packed := range []bool{false, true} {
			b.Run(fmt.Sprintf("own=%v/gzip=%v", own, packed), func(b *testing.B) {
				client := pb.NewTestServiceClient(dial(b, benchServer(b, own, insecure.NewCredentials(), new(testService))))
				var opts []grpc.CallOption
				if packed {
					opts = append(opts, grpc.UseCompressor(gzip.Name))
				}
				request := &pb.SimpleRequest{Payload: &pb.Payload{Body: make([]byte, 1<<20)}}
				b.ReportAllocs()
				begun := cpu(b)
				for b.Loop() {
					if _, err := client.UnaryCall(b.Context(), request, opts...); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((cpu(b)-begun).Nanoseconds())/float64(b.N), "cpu-ns/call")
			})
		}
	}
}

// BenchmarkConnection holds idle connections with one stream each. It measures the additional bytes
// of the process for each of them, including the client's end, which is the same for both servers.
func BenchmarkConnection(b *testing.B) {
	const conns = 1000
	forServer, forClient := certificates(b)
	for _, secure := range []bool{false, true} {
		for _, own := range []bool{false, true} {
			b.Run(fmt.Sprintf("tls=%v/own=%v", secure, own), func(b *testing.B) {
				creds, client := insecure.NewCredentials(), (*tls.Config)(nil)
				if secure {
					creds, client = credentials.NewTLS(forServer), forClient
				}
				for b.Loop() {
					base := held()
					f := new(fan)
					address := benchServer(b, own, creds, f)
					crowd(b, address, conns, client, func(int) {})
					for f.opened.Load() < conns {
						runtime.Gosched()
					}
					b.ReportMetric(float64(held()-base)/conns, "B/conn-and-client")
				}
			})
		}
	}
}

// held returns the bytes of heap and stacks in use, after garbage collections, which also shrink stacks.
func held() int64 {
	for range 4 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
