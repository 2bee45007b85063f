// Package native is the native API: it turns requests into reads and watches of the
// router's, and what these return into messages.
//
// Read [API], then stream.go. The watches of all connections are served by a few
// goroutines; see package pump. A watch that has something to read is
// woken by the cache, and its task reads what is ready and sends it.
//
//	cache ─Wake─▶ watch ─▶ pump: Watch.Next → encode → bytes of the connection
//
// The watches of a stream whose client understands lists of watches are a crowd:
// what several of them get is one message. A watch that the window cannot serve is brought
// up to date by a batch of package syncbatch.
//
// A client that closes its side of a Watch stream says that it will ask for
// nothing more. Its watches continue; the stream ends with the last of them.
package native
