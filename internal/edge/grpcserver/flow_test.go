package grpcserver_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
)

// ask returns a request for duplex answers of the given sizes.
func ask(n ...int32) []byte {
	return message(&pb.StreamingOutputCallRequest{ResponseParameters: sizes(n...)})
}

// data reads DATA frames of a stream until it has n bytes, and returns the lengths of the frames.
func (r *raw) data(id uint32, n int) (lengths []int) {
	r.t.Helper()
	for n > 0 {
		switch f := r.next().(type) {
		case *http2.DataFrame:
			if f.StreamID == id {
				n -= len(f.Data())
				lengths = append(lengths, len(f.Data()))
			}
		case *http2.RSTStreamFrame:
			r.t.Fatalf("stream %d: reset with %v", f.StreamID, f.ErrCode)
		case *http2.GoAwayFrame:
			r.t.Fatalf("GOAWAY: %v", f.ErrCode)
		}
	}
	if n < 0 {
		r.t.Fatalf("%d bytes more than requested: %v", -n, lengths)
	}
	return lengths
}

// RFC 9113, 6.9.1: a frame is never larger than the window, even if the window is one byte.
func TestWindowOfOneByte(t *testing.T) {
	address, _ := serve(t, config())
	r := greet(t, address, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	r.open(1, false, call(duplexMethod)...)
	r.must(r.WriteData(1, true, ask(10)))
	if got := r.data(1, 1); len(got) != 1 {
		t.Errorf("%v", got)
	}
	r.alive() // and no more DATA has arrived
	r.must(r.WriteWindowUpdate(1, 2))
	if got := r.data(1, 2); len(got) != 1 {
		t.Errorf("%v", got)
	}
	r.must(r.WriteWindowUpdate(1, 100))
	if h, rest, _ := r.answer(1); h["grpc-status"] != "0" || len(rest) == 0 {
		t.Errorf("%v, %d bytes", h, len(rest))
	}
}

// RFC 9113, 6.9.2: SETTINGS change the windows of open streams. A window may become negative, and
// the last value in a frame counts (6.5.3).
func TestInitialWindowChanges(t *testing.T) {
	address, _ := serve(t, config())
	window := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingInitialWindowSize, Val: n} }
	r := greet(t, address, window(1), window(10))
	r.open(1, false, call(duplexMethod)...)
	r.must(r.WriteData(1, true, ask(100)))
	r.data(1, 10)
	r.must(r.WriteSettings(window(4))) // the window of the stream becomes -6
	r.alive()
	r.must(r.WriteWindowUpdate(1, 6))
	r.alive()
	r.must(r.WriteWindowUpdate(1, 1))
	r.data(1, 1)
	r.must(r.WriteSettings(window(9)))
	r.data(1, 5)
	r.must(r.WriteSettings(window(1 << 20)))
	if h, _, _ := r.answer(1); h["grpc-status"] != "0" {
		t.Errorf("%v", h)
	}
}

// Streams share the connection's window in turn: a stream with much to send does not exclude the
// others.
func TestConnectionWindowIsShared(t *testing.T) {
	address, _ := serve(t, config())
	r := greet(t, address, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	r.open(1, false, call(duplexMethod)...)
	r.must(r.WriteData(1, true, ask(500_000)))
	r.data(1, 65535) // uses up the connection's window
	r.open(3, false, call(duplexMethod)...)
	r.must(r.WriteData(3, true, ask(20_000)))
	for waits := false; !waits; { // stream 3 has sent its headers, and needs a window to continue
		f, ok := r.next().(*http2.MetaHeadersFrame)
		waits = ok && f.StreamID == 3
	}
	r.alive()
	seen, ended := map[uint32]int{}, map[uint32]bool{}
	for more := 0; !ended[3] && !ended[1]; {
		if more == 0 {
			more = 4 * 16384
			r.must(r.WriteWindowUpdate(0, uint32(more)))
		}
		switch f := r.next().(type) {
		case *http2.DataFrame:
			seen[f.StreamID] += len(f.Data())
			more -= len(f.Data())
		case *http2.MetaHeadersFrame:
			ended[f.StreamID] = f.StreamEnded()
		}
	}
	if !ended[3] || seen[1] > 300_000 {
		t.Fatalf("stream 1 got %d bytes before stream 3 got its 20,000", seen[1])
	}
	// A call whose answer has no content needs no window.
	r.open(5, false, call("/grpc.testing.TestService/Other")...)
	if h, _, _ := r.answer(5); h["grpc-status"] != "12" {
		t.Errorf("%v", h)
	}
	r.must(r.WriteWindowUpdate(0, 1<<20))
	if h, _, _ := r.answer(1); h["grpc-status"] != "0" {
		t.Errorf("%v", h)
	}
}

// If a stream that waits for the window is canceled, the next stream gets its turn.
func TestCanceledSenderPassesItsTurn(t *testing.T) {
	address, _ := serve(t, config())
	r := greet(t, address, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	for id := uint32(1); id < 20; id += 2 {
		r.open(id, false, call(duplexMethod)...)
		r.must(r.WriteData(id, true, ask(100_000)))
	}
	for n := 0; n < 65535; {
		if f, ok := r.next().(*http2.DataFrame); ok {
			n += len(f.Data())
		}
	}
	r.alive()
	for id := uint32(1); id < 19; id += 2 {
		r.must(r.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	r.must(r.WriteWindowUpdate(0, 1<<20))
	for {
		if f, ok := r.next().(*http2.MetaHeadersFrame); ok && f.StreamEnded() && f.StreamID == 19 {
			return
		}
	}
}

// waits is a service whose duplex calls read nothing until read is closed.
type waits struct {
	testService
	read chan struct{}
}

func (w *waits) FullDuplexCall(both pb.TestService_FullDuplexCallServer) error {
	select {
	case <-w.read:
	case <-both.Context().Done():
		return nil
	}
	return w.testService.FullDuplexCall(both)
}

// Before the handler reads, a client may not send more than the stream's window, nor more than the
// connection's.
func TestReceiveWindows(t *testing.T) {
	w := &waits{read: make(chan struct{})}
	address, _ := serve(t, config(), func(s *server) { pb.RegisterTestServiceServer(s, w) })
	big := message(&pb.StreamingOutputCallRequest{Payload: payload(200_000)})
	r := greet(t, address)
	r.open(1, false, call(duplexMethod)...)
	for n := 0; n < 64<<10; n += 16 << 10 {
		r.must(r.WriteData(1, false, big[n:n+16<<10]))
	}
	r.alive() // no window update, as the handler does not read
	r.open(3, false, call(duplexMethod)...)
	for n := 0; n < 64<<10; n += 16 << 10 {
		r.must(r.WriteData(3, false, big[n:n+16<<10]))
	}
	r.must(r.WriteData(3, false, []byte{1}))
	r.expectReset(3, http2.ErrCodeFlowControl)

	// The handler reads: the server may grant a window for the rest of the message.
	close(w.read)
	var allowed int
	for allowed < len(big)-64<<10 {
		if f, ok := r.next().(*http2.WindowUpdateFrame); ok && f.StreamID == 1 {
			allowed += int(f.Increment)
		}
	}
	for rest := big[64<<10:]; len(rest) > 0; {
		n := min(len(rest), 16<<10)
		r.must(r.WriteData(1, n == len(rest), rest[:n]))
		rest = rest[n:]
	}
	if h, _, _ := r.answer(1); h["grpc-status"] != "0" {
		t.Errorf("%v", h)
	}
}

// Bytes that handlers have not read are kept only if Hold grants them. They are released when they
// are read or their stream ends. A small request needs no grant.
func TestUnreadBytesAreGranted(t *testing.T) {
	w := &waits{read: make(chan struct{})}
	var held atomic.Int64
	cfg := config()
	const most = 100_000
	cfg.Hold = func(from net.Addr, n int) bool {
		if from == nil {
			t.Error("Hold is called without the client's address")
		}
		if held.Add(int64(n)) > most {
			held.Add(int64(-n))
			return false
		}
		return true
	}
	address, _ := serve(t, cfg, func(s *server) { pb.RegisterTestServiceServer(s, w) })
	big := message(&pb.StreamingOutputCallRequest{Payload: payload(60_000)})
	r := greet(t, address)
	send := func(id uint32, all []byte) {
		r.open(id, false, call(duplexMethod)...)
		for rest := all; len(rest) > 0; {
			n := min(len(rest), 16<<10)
			r.must(r.WriteData(id, false, rest[:n]))
			rest = rest[n:]
		}
	}
	expect := func(when string, want int) {
		t.Helper()
		r.alive()
		if got := held.Load(); got != int64(want) {
			t.Errorf("%s: %d bytes are held, want %d", when, got, want)
		}
	}
	unread := len(big) - 8<<10
	send(1, message(&pb.StreamingOutputCallRequest{Payload: payload(8000)}))
	expect("a small request", 0)
	send(3, big)
	expect("a large one", unread)
	send(5, big)
	r.expectReset(5, http2.ErrCodeEnhanceYourCalm)
	expect("a large request beyond the limit", unread)
	r.must(r.WriteRSTStream(3, http2.ErrCodeCancel))
	expect("the client cancels", 0)
	send(7, big)
	expect("another large one", unread)
	close(w.read)
	for held.Load() != 0 { // until the handler has read the request; its stream stays open
		r.alive()
	}
	r.must(r.WriteData(7, true, nil))
	if h, _, _ := r.answer(7); h["grpc-status"] != "0" {
		t.Errorf("%v", h)
	}
	expect("the stream has ended", 0)
}

// A message header that announces a large message does not make the server allocate memory for the whole message.
func TestLargeMessagesAreAllocatedAsTheyArrive(t *testing.T) {
	address, _ := serve(t, config())
	r := greet(t, address)
	const size, streams = 4 << 20, 50
	arrive := func(n int) (allocated uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for id := uint32(1); id < 2*streams; id += 2 {
			if n == 0 {
				r.open(id, false, call(duplexMethod)...)
				r.must(r.WriteData(id, false, binary.BigEndian.AppendUint32([]byte{0}, size)))
				continue
			}
			r.must(r.WriteData(id, false, make([]byte, n)))
		}
		for waits := streams; n == 0 && waits > 0; { // until the handlers wait for the messages
			if f, ok := r.next().(*http2.WindowUpdateFrame); ok && f.StreamID != 0 {
				waits--
			}
		}
		r.alive()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if got := arrive(0); got > streams*size/4 {
		t.Errorf("%d bytes allocated for the headers of %d messages of %d bytes", got, streams, size)
	}
	if got := arrive(8 << 10); got > streams*size/4 {
		t.Errorf("%d bytes allocated for the first 8 KiB of %d messages of %d bytes", got, streams, size)
	}
}

// The window for padding is returned at once, so padding does not exhaust the window of a stream that is not read.
func TestPaddingIsGivenBack(t *testing.T) {
	w := &waits{read: make(chan struct{})}
	address, _ := serve(t, config(), func(s *server) { pb.RegisterTestServiceServer(s, w) })
	r := greet(t, address)
	r.open(1, false, call(duplexMethod)...)
	got := 0
	for range 2000 { // 512 KiB, of which only 2 KiB are content
		r.must(r.WriteDataPadded(1, false, []byte{0}, make([]byte, 255)))
		got += 257
		for got > 40<<10 {
			if f, ok := r.next().(*http2.WindowUpdateFrame); ok && f.StreamID == 1 {
				got -= int(f.Increment)
			}
		}
	}
	r.alive()
}

// The window of the connection is 1 MiB, even if no stream exceeds its own window.
func TestReceiveWindowOfConnection(t *testing.T) {
	w := &waits{read: make(chan struct{})}
	address, _ := serve(t, config(), func(s *server) { pb.RegisterTestServiceServer(s, w) })
	r := greet(t, address)
	// The server returns window as bytes arrive, so only a burst that it cannot have answered exceeds it. The
	// server may fail to detect that, but then either continues or ends the connection correctly.
	updates := 0
	for id := uint32(1); id < 80; id += 2 {
		r.open(id, false, call(duplexMethod)...)
		for range 4 {
			r.must(r.WriteData(id, false, make([]byte, 16<<10)))
		}
	}
	r.must(r.WritePing(false, [8]byte{7}))
	for {
		switch f := r.next().(type) {
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				updates += int(f.Increment)
			}
		case *http2.PingFrame:
			if updates < 40*64<<10-256<<10 {
				t.Errorf("only %d bytes of the window were returned", updates)
			}
			return
		}
	}
}

// A client that does not read blocks only its own streams, and the server holds a bounded output
// for it. The context of another stream ends when the client resets that stream.
func TestClientThatDoesNotRead(t *testing.T) {
	address, s := serve(t, config())
	stuck := greet(t, address, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	stuck.must(stuck.WriteWindowUpdate(0, 1<<30))
	for id := uint32(1); id < 200; id += 2 {
		stuck.open(id, false, call(duplexMethod)...)
		stuck.must(stuck.WriteData(id, false, ask(1<<20, 1<<20, 1<<20, 1<<20)))
	}
	other := pb.NewTestServiceClient(dial(t, address))
	for range 100 {
		if _, err := other.EmptyCall(t.Context(), new(pb.Empty)); err != nil {
			t.Fatal(err)
		}
	}
	stuck.conn.Close()
	s.Stop() // returns only if no handler hangs
}

// When a stream ends, its handler's context ends with the reason.
func TestCancellation(t *testing.T) {
	ended := make(chan error, 1)
	address, s := serve(t, config(), func(s *server) { pb.RegisterTestServiceServer(s, &asksFor{ended: ended}) })
	for name, end := range map[string]func(r *raw){
		"RST_STREAM":        func(r *raw) { r.must(r.WriteRSTStream(1, http2.ErrCodeCancel)) },
		"the connection":    func(r *raw) { _ = r.conn.Close() },
		"a malformed frame": func(r *raw) { r.frame(http2.FrameData, 0, 0) },
	} {
		r := greet(t, address)
		r.open(1, false, call(duplexMethod)...)
		end(r)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := greet(t, address)
	r.open(1, false, call(duplexMethod, "grpc-timeout", "1m")...)
	if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("deadline: %v", err)
	}
	if h, _, code := r.answer(1); h["grpc-status"] != "4" {
		t.Errorf("deadline: answered with %v, %v", h, code)
	}
	r.open(3, false, call(duplexMethod)...)
	r.alive()
	s.Stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Stop: %v", err)
	}
}

// A call whose deadline passes in the middle of a message is reset, so that its client does not
// mistake a partial message for a complete one.
func TestDeadlineWithinAMessage(t *testing.T) {
	inBubble(t, config(), &testService{}, func(t *testing.T, r *raw) {
		r.must(r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}))
		r.open(1, false, call(duplexMethod, "grpc-timeout", "1S")...)
		r.must(r.WriteData(1, false, message(&pb.StreamingOutputCallRequest{ResponseParameters: sizes(100)})))
		if h, content, code := r.answer(1); len(content) != 10 || code != http2.ErrCodeCancel {
			t.Errorf("%d bytes, %v, %v", len(content), h, code)
		}
	})
}

// asksFor is a service whose duplex calls wait for the end of their context.
type asksFor struct {
	testService
	ended chan error
}

func (a *asksFor) FullDuplexCall(both pb.TestService_FullDuplexCallServer) error {
	_, err := both.Recv()
	if status.Code(err) != status.Code(status.FromContextError(both.Context().Err()).Err()) {
		a.ended <- err
		return err
	}
	if err := both.Send(new(pb.StreamingOutputCallResponse)); status.Code(err) == codes.OK {
		a.ended <- errors.New("Send succeeded after the end of the context")
		return err
	}
	a.ended <- both.Context().Err()
	return err
}

// Many streams send and receive concurrently, and each stream keeps its order.
func TestManyStreams(t *testing.T) {
	address, _ := serve(t, config())
	client := pb.NewTestServiceClient(dial(t, address, grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10)))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			s, err := client.FullDuplexCall(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			for n := int32(1); n <= 1<<17; n *= 2 {
				_ = s.Send(&pb.StreamingOutputCallRequest{ResponseParameters: sizes(n, 0, n), Payload: payload(n)})
				for _, want := range []int32{n, 0, n} {
					r, err := s.Recv()
					if err != nil || len(r.GetPayload().GetBody()) != int(want) {
						t.Errorf("%d bytes, want %d, %v", len(r.GetPayload().GetBody()), want, err)
						return
					}
				}
			}
			_ = s.CloseSend()
		})
	}
	all.Wait()
}

// SendFramed sends framed messages without SendMsg's encoding, in order with those of SendMsg.
func TestSendFramed(t *testing.T) {
	address, _ := serve(t, config(), func(s *server) { pb.RegisterTestServiceServer(s, &framing{}) })
	s, err := pb.NewTestServiceClient(dial(t, address)).StreamingOutputCall(t.Context(), new(pb.StreamingOutputCallRequest))
	if err != nil {
		t.Fatal(err)
	}
	for want := range 5 {
		r, err := s.Recv()
		if err != nil || len(r.GetPayload().GetBody()) != want {
			t.Fatalf("%d bytes, want %d, %v", len(r.GetPayload().GetBody()), want, err)
		}
	}
}

// framing sends two messages as they are, then two as bytes, then one.
type framing struct{ testService }

func (*framing) StreamingOutputCall(_ *pb.StreamingOutputCallRequest, out pb.TestService_StreamingOutputCallServer) error {
	to := grpc.ServerTransportStreamFromContext(out.Context()).(pump.Transport)
	send := func(n int32) { _ = out.Send(&pb.StreamingOutputCallResponse{Payload: payload(n)}) }
	send(0)
	send(1)
	var both []byte
	for n := range int32(2) {
		b, _ := proto.Marshal(&pb.StreamingOutputCallResponse{Payload: payload(n + 2)})
		both = append(binary.BigEndian.AppendUint32(append(both, 0), uint32(len(b))), b...)
	}
	if err := to.SendFramed(nil, both[:3], both[3:]); err != nil {
		return err
	}
	if one, two := to.Attach(func() any { return new(int) }), to.Attach(func() any { return new(int) }); one != two {
		return errors.New("Attach returned two values for one connection")
	}
	send(4)
	return nil
}

// collects is a service that reports the messages that its duplex calls receive.
type collects struct {
	testService
	got chan []byte
}

func (c *collects) FullDuplexCall(both pb.TestService_FullDuplexCallServer) error {
	for {
		m, err := both.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has sent all
		}
		c.got <- m.GetPayload().GetBody()
	}
}

// Messages of all sizes arrive as they were sent, in frames of any size. One frame may end a
// message and begin the next.
func TestMessagesArriveWhole(t *testing.T) {
	rng := testseed.Rand(t)
	c := &collects{got: make(chan []byte, 100)}
	address, _ := serve(t, config(), func(s *server) { pb.RegisterTestServiceServer(s, c) })
	r := greet(t, address)
	r.open(1, false, call(duplexMethod)...)
	allowed := 64 << 10
	for range 20 {
		var all []byte
		var want [][]byte
		for range 1 + rng.IntN(4) {
			body := make([]byte, rng.IntN(1<<(1+rng.IntN(18))))
			if rng.IntN(2) == 0 {
				body = make([]byte, 20_000+rng.IntN(100_000))
			}
			for i := range body {
				body[i] = byte(rng.Uint32())
			}
			want = append(want, body)
			all = append(all, message(&pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: body}})...)
		}
		for len(all) > 0 {
			for allowed == 0 {
				if f, ok := r.next().(*http2.WindowUpdateFrame); ok && f.StreamID == 1 {
					allowed += int(f.Increment)
				}
			}
			n := min(len(all), 1+rng.IntN(16<<10), allowed)
			r.must(r.WriteData(1, false, all[:n]))
			all = all[n:]
			allowed -= n
		}
		for i, body := range want {
			select {
			case got := <-c.got:
				if !bytes.Equal(got, body) {
					t.Fatalf("message %d of %d: got %d bytes, want %d", i, len(want), len(got), len(body))
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("message %d of %d has not arrived", i, len(want))
			}
		}
	}
}
