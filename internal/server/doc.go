// Package server is the gRPC edge: it turns requests into reads and watches of
// the router's, and what these return into messages.
//
// Read pump.go first. All watches of a connection are served by one goroutine,
// its pump: a watch that has something to read is put on the connection's
// list, and the pump takes one after the other, reads what is ready and sends
// it. When nothing is ready, an event is sent at once; under load, a pass sends
// all that has come together. There is no tick in between.
//
//	cache ─Wake─▶ watch ─▶ conn.ready ─▶ pump: Watch.Next → encode → SendMsg
//
// Sending blocks while the client does not read its stream. The pump then
// stands still, a watchdog sees it and starts another one for the rest of the
// connection; the stuck stream keeps the old one for itself until it has caught
// up, and for a while is served apart without another look. What a stream may
// buffer is bounded by grpc-go's flow control and nothing else.
//
// A client that closes its side of a Watch stream says that it will ask for
// nothing more. Its watches go on; the stream ends with the last of them.
package server
