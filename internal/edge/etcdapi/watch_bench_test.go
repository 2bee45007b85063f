package etcdapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// BenchmarkWatch delivers events of 256 bytes to watches through etcd's API, to
// a client in a separate process. It measures this process's CPU time for each
// delivery, and its memory for each idle watch. For comparison it measures grpc-go
// alone: bytes that are encoded once, one goroutine for each connection.
// Paced: each event is sent after all watches have received the event before.
// Saturated: 64 events are in flight.
//
//	go test ./internal/edge/etcdapi -run '^$' -bench BenchmarkWatch/ -benchtime 1000x
func BenchmarkWatch(b *testing.B) {
	modes := map[string]func(int) crowd{
		"shared":     func(n int) crowd { return crowd{Connections: (n + 999) / 1000, Streams: 10, Watches: 100} },
		"stream":     func(n int) crowd { return crowd{Connections: n / 100, Streams: 100, Watches: 1} },
		"connection": func(n int) crowd { return crowd{Connections: n, Streams: 1, Watches: 1} },
	}
	for _, mode := range []string{"shared", "stream", "connection"} {
		for _, watches := range []int{1_000, 10_000} {
			for _, load := range []string{"paced", "saturated"} {
				for _, server := range []string{"api", "bare"} {
					b.Run(fmt.Sprintf("mode=%s/watches=%d/load=%s/server=%s", mode, watches, load, server), func(b *testing.B) {
						ahead := 1
						if load == "saturated" {
							ahead = 64
						}
						benchWatches(b, server, modes[mode](watches), ahead)
					})
				}
			}
		}
	}
}

func benchWatches(b *testing.B, server string, c crowd, ahead int) {
	start := startWatched
	if server == "bare" {
		start = startBare
	}
	event := start(b, &c)
	idle := held()
	received := c.join(b)
	watches := c.Connections * c.Streams * c.Watches
	holds := held() - idle
	before, allocated := used(b), mallocs()
	sent, got := 0, 0
	wait := func(upTo int) {
		for ; got < upTo; got++ {
			if _, err := received.ReadByte(); err != nil {
				b.Fatal(err)
			}
		}
	}
	for b.Loop() {
		wait(sent - ahead + 1)
		event()
		sent++
	}
	wait(sent)
	delivered := float64(sent) * float64(watches)
	b.ReportMetric(float64(used(b)-before)/delivered, "cpu-ns/delivery")
	b.ReportMetric(float64(mallocs()-allocated)/delivered, "allocs/delivery")
	b.ReportMetric(float64(holds)/float64(watches), "B/watch")
	b.ReportMetric(0, "ns/op") // of a machine that the client shares
}

// used returns the CPU time of this process.
func used(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Skip(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// held returns the bytes of the heap and of stacks that are in use.
func held() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second collection frees pooled memory
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

const (
	benchKey   = "/bench/watched/key"
	benchBytes = 256
)

// startWatched serves watches as a node does, and returns the function that sends them
// an event.
func startWatched(b *testing.B, c *crowd) (event func()) {
	r := startWatches(b, rigOptions{shards: cachetest.Map(1, nil, "here")})
	c.Address = r.conn.Target()
	value := strings.Repeat("v", benchBytes)
	return func() { r.h.Commit(cachetest.Put(benchKey, value)) }
}

// startBare serves watches with grpc-go alone.
func startBare(b *testing.B, c *crowd) (event func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	h := cachetest.New()
	h.Commit(cachetest.Put(benchKey, strings.Repeat("v", benchBytes)))
	events := []*kv.Event{&h.Batches(kv.Range{}, cachetest.Start, h.Now())[0].Events[0]}
	m := new(wire.Fan).EtcdWatchEvents(wire.NewEtcdRecipient(1), wire.Header{Cluster: 7, Member: 1, Term: 3, Revision: h.Now()}, false, events, false)
	bare := &bareServer{message: m.Buffers.Materialize(), connections: make(map[net.Addr]*bareConnection)}
	s := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.WaitForHandlers(true))
	etcdserverpb.RegisterWatchServer(s, bare)
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Serve(l); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(func() {
		s.Stop()
		for _, c := range bare.connections {
			close(c.events)
		}
		bare.running.Wait()
		running.Wait()
	})
	c.Address = l.Addr().String()
	return bare.event
}

// bareServer is a minimal server of watches.
type bareServer struct {
	etcdserverpb.UnimplementedWatchServer
	message []byte
	running sync.WaitGroup

	mu          sync.Mutex
	connections map[net.Addr]*bareConnection // guarded by mu
}

type bareConnection struct {
	events  chan struct{}
	mu      sync.Mutex
	watches []grpc.ServerStream // guarded by mu; each as often as it has watches
}

func (s *bareServer) Watch(gs grpc.BidiStreamingServer[etcdserverpb.WatchRequest, etcdserverpb.WatchResponse]) error {
	p, _ := peer.FromContext(gs.Context())
	s.mu.Lock()
	c := s.connections[p.Addr]
	if c == nil {
		c = &bareConnection{events: make(chan struct{}, 1000)}
		s.connections[p.Addr] = c
		s.running.Go(func() { c.send(s.message) })
	}
	s.mu.Unlock()
	for {
		if _, err := gs.Recv(); err != nil {
			return err
		}
		if err := gs.Send(&etcdserverpb.WatchResponse{Created: true}); err != nil {
			return err
		}
		c.mu.Lock()
		c.watches = append(c.watches, gs)
		c.mu.Unlock()
	}
}

func (s *bareServer) event() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.connections {
		c.events <- struct{}{}
	}
}

func (c *bareConnection) send(message []byte) {
	for range c.events {
		c.mu.Lock()
		for _, s := range c.watches {
			_ = s.SendMsg(&wire.Encoded{Buffers: mem.BufferSlice{mem.SliceBuffer(message)}})
		}
		c.mu.Unlock()
	}
}

// crowd is a client with many watches: a number of watches on each stream, and of streams on each
// connection.
type crowd struct {
	Address                       string
	Connections, Streams, Watches int
}

// benchCrowd is the variable that makes this test binary run as a crowd.
const benchCrowd = "SHARDWATCH_BENCH_CROWD"

// join starts the crowd in a separate process. When all watches are created, it returns a reader
// that gets one byte for each event that all watches have received.
func (c *crowd) join(b *testing.B) *bufio.Reader {
	b.Helper()
	config, err := json.Marshal(c)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestBenchCrowd$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), benchCrowd+"="+string(config))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	received := bufio.NewReader(out)
	if _, err := received.ReadByte(); err != nil {
		b.Fatal(err)
	}
	return received
}

// TestBenchCrowd is the client process of BenchmarkWatch.
func TestBenchCrowd(t *testing.T) {
	config := os.Getenv(benchCrowd)
	if config == "" {
		t.Skip("for BenchmarkWatch")
	}
	var c crowd
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // ends with the benchmark, which kills the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := c.run(ctx); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
}

// run opens the watches. It reports when they are open, and when all of them have received another
// event.
func (c *crowd) run(ctx context.Context) error {
	watches := int64(c.Connections * c.Streams * c.Watches)
	var created, delivered atomic.Int64
	count := func(total *atomic.Int64, n int64) {
		if n == 0 {
			return
		}
		now := total.Add(n)
		for range now/watches - (now-n)/watches {
			_, _ = os.Stdout.Write([]byte{'.'})
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	opening := make(chan struct{}, 100)
	for range c.Connections {
		conn, err := grpc.NewClient(c.Address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(countingCodec{})),
			grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(16<<20))
		if err != nil {
			return err
		}
		defer conn.Close()
		for range c.Streams {
			opening <- struct{}{}
			s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, etcdserverpb.Watch_Watch_FullMethodName)
			if err != nil {
				return err
			}
			g.Go(func() error {
				for range c.Watches {
					if err := s.SendMsg(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
						CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte("/bench/watched/"), RangeEnd: []byte("/bench/watched0")},
					}}); err != nil {
						return err
					}
					if err := s.RecvMsg(new(counted)); err != nil {
						return err
					}
				}
				<-opening
				count(&created, int64(c.Watches))
				for {
					var m counted
					if err := s.RecvMsg(&m); err != nil {
						return err
					}
					count(&delivered, m.events)
				}
			})
		}
	}
	return g.Wait()
}

// counted is a WatchResponse whose events are only counted.
type counted struct{ events int64 }

// countingCodec is a codec that receives a *counted.
type countingCodec struct{}

func (countingCodec) Name() string { return "proto" }

func (countingCodec) Marshal(m any) (mem.BufferSlice, error) {
	return encoding.GetCodecV2("proto").Marshal(m)
}

func (countingCodec) Unmarshal(data mem.BufferSlice, m any) error {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	for b := buf.ReadOnlyData(); len(b) > 0; {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(field, kind, b); n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if field == 11 {
			m.(*counted).events++
		}
	}
	return nil
}
