package grpcserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
)

// Config configures a Server.
type Config struct {
	// Credentials do the handshake of each connection. If their connections have a method Forget(stream uint32),
	// the server calls it with each stream that it resets; it must not block.
	Credentials credentials.TransportCredentials
	// Codec encodes messages of all content-subtypes.
	Codec encoding.CodecV2
	// Before is called before the request of a call with a single request is received. Its error is the
	// outcome of the call. The client gets it after it has sent the request, which is discarded. nil: not
	// called.
	Before func(ctx context.Context, method string) error
	// Unary intercepts unary calls, the first interceptor outermost.
	Unary []grpc.UnaryServerInterceptor
	// Stream is called before the handler of each streaming call; nil: not called. The handler gets
	// the returned stream, and over, unless nil, is called with the outcome of the call. An
	// interceptor would need a goroutine for the whole life of the call; see Park.
	Stream func(stream grpc.ServerStream, info *grpc.StreamServerInfo) (admitted grpc.ServerStream, over func(error), err error)
	// Failed is called with the error of each failed call, after its handler has returned and before its
	// client has the outcome. It may block: stack and request of the handler are released. nil: not called.
	Failed func(ctx context.Context, err error)

	// HTTP answers requests whose content type is not gRPC's; nil: they get 415. Their context
	// has the peer.Peer of the connection. They have no trailers and cannot be hijacked. A
	// panic with http.ErrAbortHandler resets the stream.
	HTTP http.Handler

	// MaxReceive bounds a received message, in bytes, compressed or not.
	MaxReceive int
	// MaxStreams bounds the open streams of a connection, and its running handlers.
	MaxStreams int
	// MaxHeader bounds the header list of a request, in bytes, as defined by RFC 9113, 6.5.2.
	MaxHeader int
	// StreamWindow is how many bytes a client may send on a stream before its handler reads
	// them. ConnWindow is how many bytes of a connection may be in flight.
	StreamWindow, ConnWindow int
	// Hold is called before n more unread bytes of a stream are kept, beyond 8 KiB of each
	// stream. If it returns false, the stream is reset with ENHANCE_YOUR_CALM. A negative n
	// returns bytes; the result is ignored then. Hold must not block; nil: only the windows
	// bound unread bytes.
	Hold func(client net.Addr, n int) bool
	// Unread is called before a call waits for its client to read the single answer, of n encoded bytes; release, unless
	// nil, when the wait is over. Its error ends the call. It must not block; nil: not called.
	Unread func(ctx context.Context, answer any, n int) (release func(), err error)
	// Turn waits until a client may use the CPU for a longer time: to decompress a message, to write
	// 64 KiB of a larger answer, or to begin calls that arrive together; leave ends the turn. It fails
	// when ctx ends before. nil: only goroutines that are ready go first.
	Turn func(ctx context.Context, client net.Addr) (leave func(), err error)
	// Flooded is called with the accepted net.Conn of connections that end with
	// ENHANCE_YOUR_CALM; nil: not called. It must not block.
	Flooded func(net.Conn)

	// HandshakeTimeout bounds the time from Accept to the client's SETTINGS frame.
	HandshakeTimeout time.Duration
	// Idle ends connections that have had no stream for this time; 0: never.
	Idle time.Duration
	// Age ends connections at this age, give or take a tenth, so that clients spread over
	// the servers again, but not all at once; 0: never. Grace is the time for open calls
	// to end.
	Age, Grace time.Duration
	// PingAfter is the silence after which a client is pinged. PingTimeout ends the
	// connection when nothing arrives after a ping. It also bounds how long a gracefully closed
	// connection remains for its client to read the last answer and to close.
	PingAfter, PingTimeout time.Duration
	// PingLeast is the least interval between pings of a client. The connection of a client that
	// pings more often ends with ENHANCE_YOUR_CALM.
	PingLeast time.Duration
}

// initialWindow is the smallest window: HTTP/2's default.
const initialWindow = 65535

// Validate returns an error that names every mistake.
func (c *Config) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Credentials == nil {
		fail("Credentials are missing")
	}
	if c.Codec == nil {
		fail("Codec is missing")
	}
	for name, n := range map[string]int{"MaxReceive": c.MaxReceive, "MaxStreams": c.MaxStreams, "MaxHeader": c.MaxHeader} {
		if n <= 0 || n > math.MaxInt32 {
			fail("%s is %d, want 1 to %d", name, n, math.MaxInt32)
		}
	}
	for name, n := range map[string]int{"StreamWindow": c.StreamWindow, "ConnWindow": c.ConnWindow} {
		if n < initialWindow || n > math.MaxInt32 {
			fail("%s is %d, want %d to %d", name, n, initialWindow, math.MaxInt32)
		}
	}
	for name, d := range map[string]time.Duration{
		"HandshakeTimeout": c.HandshakeTimeout, "PingAfter": c.PingAfter, "PingTimeout": c.PingTimeout, "PingLeast": c.PingLeast,
	} {
		if d <= 0 {
			fail("%s is %v, want more than 0", name, d)
		}
	}
	for name, d := range map[string]time.Duration{"Idle": c.Idle, "Age": c.Age, "Grace": c.Grace} {
		if d < 0 {
			fail("%s is %v, want 0 or more", name, d)
		}
	}
	return errors.Join(errs...)
}
