// Package grpcserver serves gRPC on HTTP/2 (RFC 9113) for very many connections with few
// streams each. A [Server] is a grpc.ServiceRegistrar: generated services, health and
// reflection register as with grpc-go's server. golang.org/x/net/http2 parses frames, and its
// hpack parses header blocks.
//
//	Accept ─▶ handshake ─▶ conn: one reader ─▶ stream: one handler goroutine
//	                         ▲                    │ append frames
//	                         └── out ◀────────────┘ ─▶ write(2), without blocking
//
// A connection has one goroutine, its reader. It needs none while it rests: all its calls are parked and
// its client sends nothing; see rest.go. There is no writer goroutine: the goroutine that appends frames
// to the output of a connection writes them, together with frames that others append meanwhile, or leaves
// them to a later Flush; see package pump. If the kernel accepts no more, a temporary goroutine writes
// the rest.
//
// A handler that waits for its client can return, and is called again when there is something to
// receive. In between, its stream has no goroutine. See the stream's Park, and package receive.
//
// Requests that are not gRPC calls go to [Config].HTTP. TLS negotiates HTTP/2 also for clients that
// speak HTTP/1.1 as well, such as browsers and curl.
//
// Bounds in bytes: a stream holds at most one receive window of unread bytes, as far as [Config].Hold
// grants it, and the message that its handler is reading. The output of a connection holds [maxPending],
// and as much again that the kernel has not accepted. A handler that sends more waits. A reader
// stops reading while its answers (acknowledgements, resets) have no room in the output.
//
// All methods of Server may be called from any goroutine. The SendMsg and RecvMsg of a stream may run
// concurrently, as grpc.ServerStream allows.
package grpcserver
