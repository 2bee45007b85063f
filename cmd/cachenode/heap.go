package main

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/shardwatch/shardwatch/internal/beat"
)

// heapFloor is the size of memory that a node allocates and never touches, in bytes: it takes none of
// the machine's. To the garbage collector it is live, so that collections are as far apart as
// in a heap of that size. A node with few keys has a heap of some 5 MiB, and requests that allocate as much
// several times a second would have it collected as often. Each collection delays the watches and requests of
// all clients. The memory of a busy node grows by as much; returnMemory returns it.
const heapFloor = 64 << 20

// allocateFloor returns memory for the caller to keep. Go's limit of memory is raised by it: the limit is
// for memory that the node uses.
func allocateFloor() []byte {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64-heapFloor {
		debug.SetMemoryLimit(limit + heapFloor)
	}
	return make([]byte, heapFloor)
}

const (
	// heapLooks is how many beats a node must be at rest: one second.
	heapLooks = 5
	// heapAtRest is the most that a node at rest allocates within them, in bytes. Gossip allocates
	// 64 KiB for each packet: three idle nodes allocate 80 to 800 KiB a second each.
	heapAtRest = 1 << 20
	// heapWorth is the least that a node allocates between two collections at rest, in bytes.
	heapWorth = 4 << 20
)

// heapState is the state of Go's heap, in bytes.
type heapState struct {
	allocated uint64 // since the process began
	live      uint64 // at the end of the last collection, without the floor
}

// readHeap does not stop the program.
func readHeap() heapState {
	read := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(read)
	live := read[1].Value.Uint64()
	return heapState{read[0].Value.Uint64(), live - min(live, heapFloor)}
}

// due reports whether the heap should be collected: the node has been at rest since before, which
// is heapLooks beats ago, and has allocated at least heapWorth, and a quarter of the live heap, since
// it was last collected at rest, when it had allocated returned. So collections of a large heap are rare.
func (h heapState) due(before heapState, returned uint64) bool {
	return h.allocated-before.allocated <= heapAtRest && h.allocated-returned >= max(heapWorth, h.live/4)
}

// returnMemory collects the heap and returns unused memory to the system when the node comes to
// rest after a burst of allocations, until ctx ends. Without it, garbage stays resident for two
// minutes, such as the 60 KiB of each TLS handshake when clients reconnect. Go collects then, and
// returns a part. Deliveries of events allocate nothing: a node can be at rest with watches.
func returnMemory(ctx context.Context) {
	tick := time.NewTimer(beat.Until(beat.Every))
	defer tick.Stop()
	var returned uint64
	var looks [heapLooks]heapState // of the last beats
	for i := 0; ; i = (i + 1) % heapLooks {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := readHeap()
		if now.due(looks[i], returned) {
			debug.FreeOSMemory()
			returned = now.allocated
		}
		looks[i] = now
		tick.Reset(beat.Until(beat.Every))
	}
}
