package main

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/shardwatch/shardwatch/internal/beat"
)

// heapFloor is the size of a block that a node allocates and never touches, in bytes: it takes no physical
// memory. The garbage collector counts it as live, so that collections are as rare as in a heap of that size.
// A node with few keys has a heap of some 5 MiB; requests that allocate as much several times a second would
// cause as many collections. Each collection delays the watches and requests of all clients. The memory of a
// busy node grows by up to this size; returnMemory returns it.
const heapFloor = 64 << 20

// allocateFloor returns the block for the caller to keep. It raises Go's memory limit by the same size: the
// limit is for memory that the node uses.
func allocateFloor() []byte {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64-heapFloor {
		debug.SetMemoryLimit(limit + heapFloor)
	}
	return make([]byte, heapFloor)
}

const (
	// heapLooks is the number of ticks after which an idle node counts as at rest: one second.
	heapLooks = 5
	// heapAtRest is the most that a node at rest allocates within heapLooks ticks, in bytes. Gossip allocates
	// 64 KiB for each packet: in a cluster of three idle nodes, each allocates 80 to 800 KiB a second.
	heapAtRest = 1 << 20
	// heapWorth is the least that a node allocates between two collections at rest, in bytes.
	heapWorth = 4 << 20
)

// heapState is the state of Go's heap, in bytes.
type heapState struct {
	allocated uint64 // since the process began
	live      uint64 // at the end of the last collection, without the floor
}

// readHeap reads the state without stopping the world.
func readHeap() heapState {
	read := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(read)
	live := read[1].Value.Uint64()
	return heapState{read[0].Value.Uint64(), live - min(live, heapFloor)}
}

// due reports whether the node has been at rest since before, heapLooks ticks ago, and has allocated at least
// heapWorth, and a quarter of the live heap, since the last collection at rest, when allocated was returned.
// So collections of a large heap are rare.
func (h heapState) due(before heapState, returned uint64) bool {
	return h.allocated-before.allocated <= heapAtRest && h.allocated-returned >= max(heapWorth, h.live/4)
}

// returnMemory collects the heap and returns unused memory to the system when the node is at rest
// after a burst of allocations, until ctx ends. Without it, garbage, such as 60 KiB of each TLS
// handshake when clients reconnect, stays resident for two minutes, until Go collects it and returns
// a part. Deliveries of events allocate nothing: a node with watches can be at rest.
func returnMemory(ctx context.Context) {
	tick := time.NewTimer(beat.Until(beat.Every))
	defer tick.Stop()
	var returned uint64
	var looks [heapLooks]heapState // at the last ticks
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
