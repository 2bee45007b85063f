// Package server is the gRPC edge: it turns requests into reads and watches of
// the router's, and what these return into messages.
//
// Read stream.go first. The watches of all connections are served by a few
// goroutines; see package pump. A watch that has something to read is
// woken by the cache, and its task reads what is ready and sends it.
//
//	cache ─Wake─▶ watch ─▶ pump: Watch.Next → encode → bytes of the connection
//
// The watches of a stream whose client understands lists of watches are a crowd:
// what several of them get is one message.
//
// A client that closes its side of a Watch stream says that it will ask for
// nothing more. Its watches continue; the stream ends with the last of them.
package server
