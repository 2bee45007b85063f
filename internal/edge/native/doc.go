// Package native implements the native API: it translates requests into reads and
// watches of package router, and their results into messages.
//
// Read [API], then stream.go. The watches of all connections are served by a few goroutines; see
// package pump. The cache wakes a reader, which reads once for all watches of one stream over the
// same range, and the stream's crowd sends the events of its readers.
//
//	cache ─Wake─▶ reader ─▶ crowd: Watch.Next → encode → bytes of the connection
//
// For a client that understands lists of watches, events for several watches are one message.
// A conflated watch has its own reader. A watch that the window cannot serve is brought
// up to date by a batch of package syncbatch.
//
// A client that closes its side of a Watch stream sends no more requests. Its
// watches continue; the stream ends with its last watch.
package native
