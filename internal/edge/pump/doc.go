// Package pump serves the streams of all connections with a few goroutines, the pumps, one
// for each processor but one: a [Task] that has something to do is put on its stream's list, the
// stream on its connection's, and the connection on its client's. Clients take turns. A pump
// takes a connection, gives one stream after the other its turn, and has the connection's bytes
// written. When nothing else is ready, an event leaves at once; under load, a visit does all
// gathered work, and writes its bytes together. There is no tick in between.
//
//	Task.Wake ─▶ stream ─▶ connection ─▶ pump: run(scratch), run(scratch), … → write
//
// A revision wakes the tasks of a connection while a pump is at it. So a wake takes no lock: it
// puts the task on a stack of the connection's, and the pump puts those on it on their streams' lists.
//
// A send waits while the client does not read its stream. The [Transport] says so before,
// and another pump comes in the place of the one that waits; the connection's other streams
// continue with it. The pump that has waited ends with its turn. So a stream that is not read
// costs a goroutine, and its bytes are bounded by the transport and by a turn. A stream
// without a Transport takes messages one by one, and counts as one whose sends wait.
package pump
