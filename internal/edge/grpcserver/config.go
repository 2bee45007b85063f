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
	// Credentials shake hands with each connection. If their connections have a method Forget(stream uint32),
	// it is called with each stream that the server resets; it must not block.
	Credentials credentials.TransportCredentials
	// Codec encodes messages of all content-subtypes.
	Codec encoding.CodecV2
	// Before is called before the request of a call is received, if the call has one request only. Its error
	// is the outcome of the call, which the client gets when it has sent the request: it is not kept. nil: it
	// is not called.
	Before func(ctx context.Context, method string) error
	// Unary intercepts unary calls, the first one outermost.
	Unary []grpc.UnaryServerInterceptor
	// Stream is called before the handler of each other call; nil: it is not. The handler gets
	// the stream that it returns, and over, unless nil, is called with the call's outcome. An
	// interceptor would need a goroutine for as long as the call lives; see Park.
	Stream func(stream grpc.ServerStream, info *grpc.StreamServerInfo) (admitted grpc.ServerStream, over func(error), err error)
	// Failed is called with the error of each call, after its handler and before its client has the
	// outcome. It may wait: the handler's stack and its request are gone. nil: it is not called.
	Failed func(ctx context.Context, err error)

	// HTTP answers requests whose content type is not gRPC's; nil: they get 415. Their context
	// has the peer.Peer of the connection. They have no trailers and cannot be hijacked, and a
	// panic with http.ErrAbortHandler resets the stream.
	HTTP http.Handler

	// MaxReceive bounds a received message, in bytes, compressed or not.
	MaxReceive int
	// MaxStreams bounds the open streams of a connection, and its running handlers.
	MaxStreams int
	// MaxHeader bounds the header list of a request, in bytes, as RFC 9113, 6.5.2 counts.
	MaxHeader int
	// StreamWindow is how many bytes a client may send on a stream before its handler
	// reads them, ConnWindow on all streams of a connection before they arrive here.
	StreamWindow, ConnWindow int
	// Hold is asked before n bytes more are kept that a stream's handler has not read,
	// beyond 8 KiB of each stream. If it returns false, the stream is reset with
	// ENHANCE_YOUR_CALM. With a negative n it takes bytes back; its answer does not matter
	// then. It must not block; nil: the windows are the bound.
	Hold func(client net.Addr, n int) bool
	// Turn returns when a client may have the CPU for a longer time, to decompress a message, to
	// write 64 KiB of an answer that is larger or to begin calls that arrive together, and leave
	// ends that. It fails when ctx ends before. nil: after the goroutines that are ready.
	Turn func(ctx context.Context, client net.Addr) (leave func(), err error)
	// Flooded is called with connections that end with ENHANCE_YOUR_CALM, as they were
	// accepted; nil: none is. It must not block.
	Flooded func(net.Conn)

	// HandshakeTimeout bounds the time from Accept to the client's SETTINGS frame.
	HandshakeTimeout time.Duration
	// Idle ends connections that had no stream for so long; 0: never.
	Idle time.Duration
	// Age ends connections that are so old, give or take a tenth, so that clients spread over
	// the servers again, and not all at once; 0: never. Calls that are open then have
	// Grace to end.
	Age, Grace time.Duration
	// PingAfter is the silence after which a client is pinged. PingTimeout ends the
	// connection when nothing arrives after a ping. It also bounds how long a connection that ends
	// in peace is kept for its client to read the last answer and to close.
	PingAfter, PingTimeout time.Duration
	// PingLeast is the least interval of a client's pings. The connection of a client that
	// pings more often ends with ENHANCE_YOUR_CALM.
	PingLeast time.Duration
}

// The smallest windows: what HTTP/2 begins with.
const initialWindow = 65535

// Validate returns every mistake.
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
