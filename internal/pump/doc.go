// Package pump serves all streams of a connection with one goroutine, the
// connection's pump: a [Task] that has something to do is put on the
// connection's list, and the pump takes one after the other. When nothing is
// ready, what comes is done at once; under load, a pass does all that has come
// together. There is no tick in between.
//
//	Task.Wake ─▶ Conn.ready ─▶ pump: run(scratch) → send
//
// Sending blocks while the client does not read its stream. The pump then
// stands still, a watchdog sees it and starts another one for the rest of the
// connection; the stuck stream keeps the old one for itself until it has caught
// up, and for a while is served apart without another look. What a stream may
// buffer is bounded by grpc-go's flow control and nothing else.
package pump
