// Package pump serves the streams of all connections with a few goroutines, the pumps: one
// fewer than processors. A woken [Task] is queued on its stream, the stream on its connection,
// and the connection on its client. Clients take turns. A pump visits a connection: it gives
// one stream after the other a turn, and then writes the connection's bytes. When nothing else
// is ready, an event leaves at once. Under load, a visit does all the work that has
// accumulated, and writes its bytes together. There is no tick in between.
//
//	Task.Wake ─▶ stream ─▶ connection ─▶ pump: run(scratch), run(scratch), … → write
//
// A revision wakes the tasks of a connection while a pump visits it. So a wake takes no lock: it
// pushes the task on a stack of the connection, and the pump moves these tasks to their streams.
//
// A send blocks while the client does not read its stream. The [Transport] announces this
// beforehand, and another pump replaces the blocked one and serves the connection's other
// streams. The blocked pump ends after its turn. So an unread stream costs one
// goroutine, and its bytes are bounded by the transport and by a turn. A stream without a
// Transport takes messages one by one; each of its sends is assumed to block.
package pump
