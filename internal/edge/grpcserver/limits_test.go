package grpcserver_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
)

// pipes is a listener with in-memory connections, for tests in fake time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }
func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

// inBubble runs a test in fake time, with a client that has completed the HTTP/2 handshake.
func inBubble(t *testing.T, cfg grpcserver.Config, service pb.TestServiceServer, do func(t *testing.T, r *raw)) {
	synctest.Test(t, func(t *testing.T) {
		s, err := grpcserver.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		pb.RegisterTestServiceServer(s, service)
		l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := s.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
				t.Errorf("Serve: %v", err)
			}
		})
		here, there := net.Pipe()
		l.conns <- there
		r := newRaw(t, here)
		_ = here.SetDeadline(time.Time{})
		go r.write([]byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
		for acked := false; !acked; {
			f, ok := r.next().(*http2.SettingsFrame)
			acked = ok && f.IsAck()
		}
		do(t, r)
		s.Stop()
		_ = here.Close()
		serving.Wait()
	})
}

// until reads frames up to the next frame of type T; it returns nil if the connection ends before.
func until[T http2.Frame](r *raw) (f T) {
	for {
		got, err := r.ReadFrame()
		if err != nil {
			r.t.Logf("read: %v", err)
			return f
		}
		if f, ok := got.(T); ok {
			return f
		}
	}
}

// The server pings a silent client. A client that does not answer is disconnected.
func TestKeepalive(t *testing.T) {
	cfg := config()
	cfg.PingAfter, cfg.PingTimeout = 30*time.Second, 10*time.Second
	inBubble(t, cfg, &testService{}, func(t *testing.T, r *raw) {
		begun := time.Now()
		for n := range 3 {
			f := until[*http2.PingFrame](r)
			if took := time.Since(begun); f.IsAck() || took != time.Duration(n+1)*30*time.Second {
				t.Fatalf("%v after %v", f, took)
			}
			r.must(r.WritePing(true, f.Data))
		}
		until[*http2.PingFrame](r)
		begun = time.Now()
		if _, err := r.ReadFrame(); err == nil || time.Since(begun) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// A connection that has had no stream for too long ends gracefully, with two GOAWAY frames. The
// second names the last stream; streams opened between the two are served.
func TestIdle(t *testing.T) {
	cfg := config()
	cfg.Idle = 5 * time.Minute
	inBubble(t, cfg, &testService{}, func(t *testing.T, r *raw) {
		begun := time.Now()
		time.Sleep(4 * time.Minute)
		r.open(1, false, call(duplexMethod)...)
		time.Sleep(4 * time.Minute)
		r.must(r.WriteData(1, true, nil))
		r.answer(1)
		if f := until[*http2.GoAwayFrame](r); f.LastStreamID != 1<<31-1 || f.ErrCode != http2.ErrCodeNo || time.Since(begun) != 13*time.Minute {
			t.Errorf("%v after %v", f, time.Since(begun))
		}
		ping := until[*http2.PingFrame](r)
		r.open(3, false, call(duplexMethod)...)
		r.must(r.WritePing(true, ping.Data))
		if f := until[*http2.GoAwayFrame](r); f.LastStreamID != 3 {
			t.Errorf("%v", f)
		}
		r.open(5, false, call(duplexMethod)...) // too late: after the second GOAWAY
		r.must(r.WriteData(3, true, nil))
		if h, _, _ := r.answer(3); h["grpc-status"] != "0" {
			t.Errorf("%v", h)
		}
		if _, err := r.ReadFrame(); !errors.Is(err, io.EOF) {
			t.Errorf("%v", err)
		}
	})
}

// A client that does not answer the ping between the two GOAWAY frames is sent the second one all the same.
func TestIdleWithoutAnswer(t *testing.T) {
	cfg := config()
	cfg.Idle, cfg.PingAfter, cfg.PingTimeout = 5*time.Minute, 30*time.Second, 10*time.Second
	inBubble(t, cfg, &testService{}, func(t *testing.T, r *raw) {
		r.open(1, true, call(duplexMethod)...)
		r.answer(1)
		for range 2 {
			for {
				f, err := r.ReadFrame()
				if p, ok := f.(*http2.PingFrame); ok && p.Data == [8]byte{} {
					r.must(r.WritePing(true, p.Data))
				}
				if _, ok := f.(*http2.GoAwayFrame); ok {
					break
				}
				r.must(err)
			}
		}
		if _, err := r.ReadFrame(); !errors.Is(err, io.EOF) {
			t.Errorf("%v", err)
		}
	})
}

// A connection ends gracefully at the maximum age, which varies by at most a tenth from connection
// to connection. Calls that do not end in time are reset.
func TestAge(t *testing.T) {
	cfg := config()
	cfg.Age, cfg.Grace, cfg.PingAfter = time.Hour, 30*time.Second, 24*time.Hour
	ages := make(map[time.Duration]bool)
	for n := range 8 {
		inBubble(t, cfg, &testService{}, func(t *testing.T, r *raw) {
			begun := time.Now()
			r.open(1, false, call(duplexMethod)...)
			until[*http2.GoAwayFrame](r)
			age := time.Since(begun)
			if ages[age] = true; age < 54*time.Minute || age > 66*time.Minute {
				t.Errorf("GOAWAY after %v", age)
			}
			r.must(r.WritePing(true, until[*http2.PingFrame](r).Data))
			if f := until[*http2.GoAwayFrame](r); f.LastStreamID != 1 {
				t.Errorf("%v", f)
			}
			if n == 0 { // ends the call, and thereby the connection
				r.must(r.WriteData(1, true, nil))
				r.answer(1)
			}
			_, err := r.ReadFrame()
			want := age
			if n > 0 {
				want += cfg.Grace
			}
			if got := time.Since(begun); !errors.Is(err, io.EOF) || got != want {
				t.Errorf("%v after %v, want the end after %v", err, got, want)
			}
		})
	}
	if len(ages) == 1 {
		t.Error("all connections ended at the same age")
	}
}

// Clients may ping at the permitted interval, and after each message.
func TestTooManyPings(t *testing.T) {
	cfg := config()
	cfg.PingLeast = 5 * time.Second
	inBubble(t, cfg, &testService{}, func(t *testing.T, r *raw) {
		for range 10 {
			r.alive()
			time.Sleep(5 * time.Second)
		}
		for id := uint32(1); id < 20; id += 2 {
			r.alive()
			r.open(id, true, call(duplexMethod)...)
			r.answer(id)
			r.alive()
		}
		for range 3 {
			r.must(r.WritePing(false, [8]byte{}))
		}
		f := until[*http2.GoAwayFrame](r)
		if f == nil || f.ErrCode != http2.ErrCodeEnhanceYourCalm || string(f.DebugData()) != "too_many_pings" {
			t.Errorf("%v", f)
		}
	})
}

// The server stops reading a client that does not read its answers, and so holds a bounded output
// for it. It disconnects the client if that does not change.
func TestAnswersThatAreNotTaken(t *testing.T) {
	frames := map[string]func(r *raw) error{
		"HEADERS": func(r *raw) error {
			return r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(call("/x")...), EndStream: true, EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 1}})
		},
	}
	for name, write := range frames {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.PingAfter, cfg.PingTimeout = 30*time.Second, 10*time.Second
			inBubble(t, cfg, &testService{}, func(t *testing.T, r *raw) {
				var sent atomic.Int64
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for write(r) == nil {
						sent.Add(1)
					}
				}()
				synctest.Wait()
				// An answer has at least 9 bytes. The server holds two output buffers, and the frames read.
				if n := sent.Load(); n < 100 || n > 2*96<<10/9+1000 {
					t.Errorf("%d frames were read", n)
				}
				<-ended
			})
		})
	}
}

// A client that keeps resetting its streams, making the server reset them, or changing its settings is
// disconnected, and its address is reported. A client that resets streams later, or only a few, is not.
func TestFloodsOfResetsAndSettings(t *testing.T) {
	var flooded atomic.Bool
	cfg := config()
	id := uint32(1)
	resets := func(t *testing.T, r *raw, n int, after time.Duration) {
		t.Helper()
		for range n {
			r.open(id, false, call(duplexMethod)...)
			r.alive()
			time.Sleep(after) // of fake time
			r.must(r.WriteRSTStream(id, http2.ErrCodeCancel))
			id += 2
		}
	}
	ends := func(t *testing.T, r *raw) {
		t.Helper()
		if f := until[*http2.GoAwayFrame](r); f == nil || f.ErrCode != http2.ErrCodeEnhanceYourCalm {
			t.Errorf("%v", f)
		}
		if synctest.Wait(); !flooded.Swap(false) {
			t.Error("the connection was not reported")
		}
	}
	for name, flood := range map[string]func(t *testing.T, r *raw){
		"resets": func(t *testing.T, r *raw) {
			resets(t, r, 260, 100*time.Millisecond)
			resets(t, r, 245, time.Millisecond)
			time.Sleep(time.Second) // of fake time
			r.alive()
			go func() {
				for n := id; r.WriteHeaders(http2.HeadersFrameParam{StreamID: n, BlockFragment: r.block(call(duplexMethod)...), EndHeaders: true}) == nil &&
					r.WriteRSTStream(n, http2.ErrCodeCancel) == nil; n += 2 {
				}
			}()
			ends(t, r)
		},
		"resets by the server": func(t *testing.T, r *raw) {
			go func() {
				for n := id; n < 2000 && r.WriteHeaders(http2.HeadersFrameParam{StreamID: n, BlockFragment: r.block(call(duplexMethod)...), EndHeaders: true}) == nil &&
					r.WriteRawFrame(http2.FrameWindowUpdate, 0, n, make([]byte, 4)) == nil; n += 2 { // RFC 9113, 6.9: an error
				}
			}()
			ends(t, r)
		},
		"settings": func(t *testing.T, r *raw) {
			for range 3 {
				for range 99 {
					r.must(r.WriteSettings())
				}
				r.alive()
				time.Sleep(time.Minute) // of fake time
			}
			go func() {
				for range 101 {
					_ = r.WriteSettings() // ends the connection
				}
			}()
			ends(t, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			id = 1
			cfg.Flooded = func(c net.Conn) { flooded.Store(c != nil) }
			inBubble(t, cfg, &testService{}, flood)
		})
	}
}

// A header block in very many small frames ends the connection.
func TestFloodOfContinuation(t *testing.T) {
	address, _ := serve(t, config())
	for name, fragment := range map[string][]byte{"empty": nil, "small": {0x80 | 2}} {
		r := greet(t, address)
		r.frame(http2.FrameHeaders, 0, 1, 0x82)
		go func() {
			for r.WriteContinuation(1, false, fragment) == nil {
			}
		}()
		f := until[*http2.GoAwayFrame](r)
		if f == nil || f.ErrCode != http2.ErrCodeEnhanceYourCalm && f.ErrCode != http2.ErrCodeProtocol {
			t.Errorf("%s: %v", name, f)
		}
		_ = r.conn.Close()
	}
}

// A header list above the limit is refused, and the connection continues. One far above it ends the
// connection.
func TestLargeHeaders(t *testing.T) {
	address, _ := serve(t, config())
	r := greet(t, address)
	big := make([]byte, 15<<10)
	for i := range big {
		big[i] = 'a'
	}
	r.open(1, false, call(duplexMethod, "x", string(big))...)
	r.alive()
	b := r.block(call(duplexMethod, "x", string(big), "y", string(big))...)
	r.must(r.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: b[:16<<10], EndHeaders: false}))
	r.must(r.WriteContinuation(3, true, b[16<<10:]))
	r.expectReset(3, http2.ErrCodeFrameSize)
}

// A flood of DATA frames without content ends the connection.
func TestFloodOfEmptyData(t *testing.T) {
	address, _ := serve(t, config())
	r := greet(t, address)
	r.open(1, false, call(duplexMethod)...)
	for range 100 {
		r.must(r.WriteData(1, false, nil))
	}
	r.alive()
	r.must(r.WriteData(1, false, nil))
	r.expectGoAway(http2.ErrCodeEnhanceYourCalm)
}

// stubborn is a service whose calls do not end with their context.
type stubborn struct {
	testService
	running, most atomic.Int64
	release       chan struct{}
}

func (s *stubborn) FullDuplexCall(pb.TestService_FullDuplexCallServer) error {
	n := s.running.Add(1)
	for m := s.most.Load(); n > m && !s.most.CompareAndSwap(m, n); m = s.most.Load() {
	}
	<-s.release
	s.running.Add(-1)
	return nil
}

// Streams that are reset at once keep their slots until their handlers return (CVE-2023-44487).
// Meanwhile the server does not read the connection.
func TestRapidReset(t *testing.T) {
	cfg := config()
	cfg.MaxStreams = 10
	s := new(stubborn)
	inBubble(t, cfg, s, func(t *testing.T, r *raw) {
		s.release = make(chan struct{}) // of fake time
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for id := uint32(1); id < 2000; id += 2 {
				r.open(id, false, call(duplexMethod)...)
				r.must(r.WriteRSTStream(id, http2.ErrCodeCancel))
			}
		}()
		synctest.Wait()
		if n := s.running.Load(); n != 10 {
			t.Errorf("%d handlers run", n)
		}
		go func() { // reads the answers
			for {
				if _, err := r.ReadFrame(); err != nil {
					return
				}
			}
		}()
		close(s.release)
		<-ended
		if n := s.most.Load(); n > 10 {
			t.Errorf("%d handlers ran at a time", n)
		}
	})
}

// If the headers of an answer exceed the client's limit, the server resets the stream.
func TestHeadersAboveTheClientsLimit(t *testing.T) {
	address, _ := serve(t, config())
	r := greet(t, address, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 200})
	r.open(1, false, call("/"+string(make([]byte, 0))+"grpc.testing.TestService/"+longName)...)
	if _, _, code := r.answer(1); code != http2.ErrCodeInternal {
		t.Errorf("%v", code)
	}
	r.open(3, true, call(duplexMethod)...)
	if h, _, _ := r.answer(3); h["grpc-status"] != "0" {
		t.Errorf("%v", h)
	}
}

const longName = "AMethodWhoseNameIsSoLongThatTheAnswerThatItIsNotKnownHasALongerHeaderListThanTheClientTakesAMethodWhoseNameIsSoLong"

// A connection that does not complete its handshake in time ends.
func TestHandshakeTimeout(t *testing.T) {
	cfg := config()
	cfg.HandshakeTimeout = 10 * time.Second
	for name, said := range map[string]string{"nothing": "", "half a preface": "PRI * HTTP", "no settings": http2.ClientPreface, "half a frame": http2.ClientPreface + "\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := grpcserver.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				l := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
				go func() { _ = s.Serve(l) }()
				here, there := net.Pipe()
				l.conns <- there
				begun := time.Now()
				go func() { _, _ = here.Write([]byte(said)) }()
				_, _ = io.Copy(io.Discard, here)
				if took := time.Since(begun); took != 10*time.Second {
					t.Errorf("ended after %v", took)
				}
				s.Stop()
			})
		})
	}
}

// New rejects every invalid field of a Config.
func TestConfig(t *testing.T) {
	if _, err := grpcserver.New(config()); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*grpcserver.Config){
		"Credentials":      func(c *grpcserver.Config) { c.Credentials = nil },
		"Codec":            func(c *grpcserver.Config) { c.Codec = nil },
		"MaxReceive":       func(c *grpcserver.Config) { c.MaxReceive = 0 },
		"MaxStreams":       func(c *grpcserver.Config) { c.MaxStreams = 1 << 31 },
		"MaxHeader":        func(c *grpcserver.Config) { c.MaxHeader = -1 },
		"StreamWindow":     func(c *grpcserver.Config) { c.StreamWindow = 65534 },
		"ConnWindow":       func(c *grpcserver.Config) { c.ConnWindow = 1 << 31 },
		"HandshakeTimeout": func(c *grpcserver.Config) { c.HandshakeTimeout = 0 },
		"Idle":             func(c *grpcserver.Config) { c.Idle = -1 },
		"Age":              func(c *grpcserver.Config) { c.Age = -1 },
		"Grace":            func(c *grpcserver.Config) { c.Grace = -1 },
		"PingAfter":        func(c *grpcserver.Config) { c.PingAfter = 0 },
		"PingTimeout":      func(c *grpcserver.Config) { c.PingTimeout = 0 },
		"PingLeast":        func(c *grpcserver.Config) { c.PingLeast = 0 },
	} {
		cfg := config()
		spoil(&cfg)
		if _, err := grpcserver.New(cfg); err == nil {
			t.Errorf("an invalid %s was accepted", name)
		}
	}
}

// A message is decompressed only in a turn of its client.
func TestDecompressionTakesTurns(t *testing.T) {
	var in, out atomic.Int64
	cfg := config()
	fail := make(chan struct{})
	cfg.Turn = func(ctx context.Context, client net.Addr) (func(), error) {
		if client == nil {
			t.Error("Turn is called without the client's address")
		}
		in.Add(1)
		select {
		case <-fail:
			<-ctx.Done()
			return nil, ctx.Err()
		default:
			return func() { out.Add(1) }, nil
		}
	}
	address, _ := serve(t, cfg)
	c := pb.NewTestServiceClient(dial(t, address))
	call := func(ctx context.Context, opts ...grpc.CallOption) error {
		_, err := c.UnaryCall(ctx, &pb.SimpleRequest{Payload: payload(64 << 10)}, opts...)
		return err
	}
	if err := call(t.Context()); err != nil || in.Load() != 0 {
		t.Errorf("%d turns for an uncompressed message: %v", in.Load(), err)
	}
	if err := call(t.Context(), grpc.UseCompressor(gzip.Name)); err != nil || in.Load() != 1 || out.Load() != 1 {
		t.Errorf("%d turns for a compressed message, %d of them ended: %v", in.Load(), out.Load(), err)
	}
	close(fail)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := call(ctx, grpc.UseCompressor(gzip.Name)); status.Code(err) != codes.DeadlineExceeded || out.Load() != 1 {
		t.Errorf("a message that gets no turn: %v; %d turns have ended", err, out.Load())
	}
}
