// Package pump serves all streams of a connection with one goroutine, the
// connection's pump: a [Task] that has something to do is put on its stream's
// list and the stream on the connection's, and the pump gives one stream after
// the other its turn. When nothing is ready, what comes is done at once; under
// load, a turn does all that has come together, and sends it together. There is
// no tick in between.
//
//	Task.Wake ─▶ stream ─▶ connection ─▶ pump: run(scratch), run(scratch), … → flush
//
// Sending blocks while the client does not read its stream. The pump then
// stands still, a watchdog sees it and starts another one for the rest of the
// connection; the stuck stream keeps the old one for itself until it has caught
// up, and for a while is served apart without another look. What a stream may
// buffer is bounded by grpc-go's flow control and nothing else.
package pump
