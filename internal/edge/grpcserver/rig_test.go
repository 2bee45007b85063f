package grpcserver_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
	"github.com/shardwatch/shardwatch/internal/edge/grpcserver/interoptest"
	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config returns a valid configuration with small bounds.
func config() grpcserver.Config {
	return grpcserver.Config{
		Credentials: insecure.NewCredentials(), Codec: encoding.GetCodecV2("proto"),
		MaxReceive: 8 << 20, MaxStreams: 100, MaxHeader: 16 << 10, StreamWindow: 64 << 10, ConnWindow: 1 << 20,
		HandshakeTimeout: time.Minute, PingAfter: time.Hour, PingTimeout: time.Minute, PingLeast: time.Nanosecond,
	}
}

// serve starts a server with the interop service, and returns its address.
func serve(t testing.TB, cfg grpcserver.Config, services ...func(*grpcserver.Server)) (address string, s *grpcserver.Server) {
	t.Helper()
	s, err := grpcserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pb.RegisterTestServiceServer(s, &testService{})
	for _, register := range services {
		register(s)
	}
	return listen(t, s), s
}

// listen serves until the test ends, on a listener wrapped by wrap, and returns the address.
func listen(t testing.TB, s *grpcserver.Server, wrap ...func(net.Listener) net.Listener) (address string) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := rawconn.Listener(inner) // as in a node
	for _, w := range wrap {
		l = w(l)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

// dial connects grpc-go's client.
func dial(t testing.TB, address string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

type testService = interoptest.Service

func payload(n int32) *pb.Payload { return &pb.Payload{Body: make([]byte, n)} }

// raw is an HTTP/2 client that sends arbitrary frames.
type raw struct {
	*http2.Framer
	t    testing.TB
	conn net.Conn
	buf  bytes.Buffer
	enc  *hpack.Encoder
}

// connect opens a connection without sending anything.
func connect(t testing.TB, address string) *raw {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return newRaw(t, c)
}

func newRaw(t testing.TB, c net.Conn) *raw {
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute)) // so that a failing test ends
	r := &raw{Framer: http2.NewFramer(c, c), t: t, conn: c}
	r.AllowIllegalWrites = true
	r.enc = hpack.NewEncoder(&r.buf)
	r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return r
}

// greet opens a connection and completes the HTTP/2 handshake.
func greet(t testing.TB, address string, settings ...http2.Setting) *raw {
	t.Helper()
	r := connect(t, address)
	r.greet(settings...)
	return r
}

func (r *raw) greet(settings ...http2.Setting) {
	r.t.Helper()
	r.write([]byte(http2.ClientPreface))
	r.must(r.WriteSettings(settings...))
	for acked := false; !acked; {
		if f, ok := r.next().(*http2.SettingsFrame); ok {
			if acked = f.IsAck(); !acked {
				r.must(r.WriteSettingsAck())
			}
		}
	}
}

func (r *raw) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) write(b []byte) {
	r.t.Helper()
	_, err := r.conn.Write(b)
	r.must(err)
}

// next returns the next frame.
func (r *raw) next() http2.Frame {
	r.t.Helper()
	f, err := r.ReadFrame()
	if err != nil {
		r.t.Fatalf("read a frame: %v", err)
	}
	return f
}

// block encodes a header block.
func (r *raw) block(fields ...string) []byte {
	r.buf.Reset()
	for i := 0; i < len(fields); i += 2 {
		r.must(r.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(r.buf.Bytes())
}

// call returns the headers of a call.
func call(method string, more ...string) []string {
	return append([]string{
		":method", "POST", ":scheme", "http", ":path", method, ":authority", "x", "content-type", "application/grpc", "te", "trailers",
	}, more...)
}

const (
	unaryMethod  = "/grpc.testing.TestService/UnaryCall"
	duplexMethod = "/grpc.testing.TestService/FullDuplexCall"
)

// open opens a stream.
func (r *raw) open(id uint32, end bool, fields ...string) {
	r.t.Helper()
	r.must(r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: r.block(fields...), EndStream: end, EndHeaders: true}))
}

// message returns the gRPC framing of a message.
func message(m proto.Message) []byte {
	b, _ := proto.Marshal(m)
	return append([]byte{0, byte(len(b) >> 24), byte(len(b) >> 16), byte(len(b) >> 8), byte(len(b))}, b...)
}

// answer reads until a stream ends. It returns the stream's last headers, its content, and the code
// of its reset.
func (r *raw) answer(id uint32) (headers map[string]string, content []byte, reset http2.ErrCode) {
	r.t.Helper()
	headers = make(map[string]string)
	for {
		f := r.next()
		if g, ok := f.(*http2.GoAwayFrame); ok {
			r.t.Fatalf("GOAWAY: %v", g.ErrCode)
		}
		if f.Header().StreamID != id {
			continue
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				headers[h.Name] = h.Value
			}
			if f.StreamEnded() {
				return headers, content, 0
			}
		case *http2.DataFrame:
			if content = append(content, f.Data()...); f.StreamEnded() {
				return headers, content, 0
			}
		case *http2.RSTStreamFrame:
			return headers, content, f.ErrCode
		}
	}
}

// alive fails unless the connection answers a ping.
func (r *raw) alive() {
	r.t.Helper()
	r.must(r.WritePing(false, [8]byte{7}))
	for {
		switch f := r.next().(type) {
		case *http2.PingFrame:
			if f.IsAck() && f.Data == [8]byte{7} {
				return
			}
		case *http2.GoAwayFrame:
			r.t.Fatalf("GOAWAY: %v", f.ErrCode)
		}
	}
}

// expectReset expects the server to reset a stream, and to keep the connection.
func (r *raw) expectReset(id uint32, want http2.ErrCode) {
	r.t.Helper()
	for {
		switch f := r.next().(type) {
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				if f.ErrCode != want {
					r.t.Errorf("reset with %v, want %v", f.ErrCode, want)
				}
				r.alive()
				return
			}
		case *http2.GoAwayFrame:
			r.t.Fatalf("GOAWAY %v, want a reset with %v", f.ErrCode, want)
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() && f.StreamID == id && want != http2.ErrCodeNo {
				r.t.Fatalf("stream %d was answered, want a reset with %v: %v", id, want, f.Fields)
			}
		}
	}
}

// expectGoAway expects the connection to end with the given code.
func (r *raw) expectGoAway(want http2.ErrCode) (last uint32) {
	r.t.Helper()
	for {
		f, err := r.ReadFrame()
		if err != nil {
			r.t.Fatalf("the connection ended without GOAWAY: %v", err)
		}
		if f, ok := f.(*http2.GoAwayFrame); ok {
			if f.ErrCode != want {
				r.t.Errorf("GOAWAY %v, want %v", f.ErrCode, want)
			}
			last = f.LastStreamID
			break
		}
	}
	_ = r.conn.(interface{ CloseWrite() error }).CloseWrite()
	if _, err := io.Copy(io.Discard, r.conn); err != nil && !errors.Is(err, net.ErrClosed) {
		r.t.Logf("the connection did not end after GOAWAY: %v", err)
	}
	return last
}

type server = grpcserver.Server

func newEncoder(to *bytes.Buffer) *hpack.Encoder { return hpack.NewEncoder(to) }
