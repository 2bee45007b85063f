// Package grpcserver serves gRPC on HTTP/2 (RFC 9113) for very many connections with few
// streams each. A [Server] is a grpc.ServiceRegistrar: generated services, health and
// reflection register as with grpc-go's server. Frames are parsed by
// golang.org/x/net/http2, header blocks by its hpack.
//
//	Accept ─▶ handshake ─▶ conn: one reader ─▶ stream: one handler goroutine
//	                         ▲                    │ append frames
//	                         └── out ◀────────────┘ ─▶ write(2), without blocking
//
// A connection has one goroutine, its reader. While all of its calls are parked and its client
// sends nothing, it rests and has none; see rest.go. There is no writing goroutine: the goroutine that appends frames to a connection's output writes
// them, together with the frames that others append meanwhile, or leaves them to a later
// Flush of its own; see package pump. When the kernel takes no more, a goroutine writes the
// rest and ends.
//
// A handler that waits for its client can return, and is called again once there is something to
// receive: its stream has no goroutine in between. See the stream's Park, and package receive.
//
// Requests that are no gRPC calls go to [Config].HTTP: clients that may speak HTTP/1.1 as well,
// such as browsers and curl, get HTTP/2 from TLS all the same.
//
// Bounds in bytes: a stream holds at most its receive window that its handler has not
// read, as far as [Config].Hold grants it, and the message that it is reading; a connection's output holds [maxPending], and
// as much again that the kernel has not taken. A handler that sends more waits. A reader
// whose answers (acknowledgements, resets) find no place stops reading.
//
// All methods of Server may be called from any goroutine. A stream's SendMsg may be called
// while its RecvMsg runs, as grpc.ServerStream says.
package grpcserver
