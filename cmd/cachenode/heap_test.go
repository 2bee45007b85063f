package main

import (
	"context"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

func TestWhenTheHeapIsCollectedAtRest(t *testing.T) {
	const mib = 1 << 20
	const at = 1000 * mib // allocated before
	for name, c := range map[string]struct {
		now      uint64 // allocated since at
		live     uint64
		returned uint64 // allocated between the last collection at rest and at
		due      bool
	}{
		"after a burst":                       {0, 10 * mib, 4 * mib, true},
		"with little since":                   {heapAtRest, 10 * mib, 4 * mib, true},
		"too little":                          {heapAtRest, 10 * mib, 3 * mib, false},
		"less than a quarter of a large heap": {0, 400 * mib, 99 * mib, false},
		"a quarter of a large heap":           {0, 400 * mib, 100 * mib, true},
		"busy":                                {heapAtRest + 1, 10 * mib, 100 * mib, false},
	} {
		now := heapState{allocated: at + c.now, live: c.live}
		if got := now.due(heapState{allocated: at}, at-c.returned); got != c.due {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// resident returns the bytes of Go's heap that the system has not got back.
func resident() uint64 {
	read := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(read)
	return read[0].Value.Uint64() + read[1].Value.Uint64()
}

// The memory of a burst is returned to the system once the process allocates no more, even if a
// collection during the burst has found it in use.
func TestMemoryOfABurstIsReturned(t *testing.T) {
	const burst = 24 << 20
	held := make([][]byte, burst>>16)
	for i := range held {
		held[i] = make([]byte, 1<<16)
		held[i][0] = 1
	}
	runtime.GC()
	full := resident()
	clear(held)
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); returnMemory(ctx) }()
	defer func() { stop(); <-over }()
	deadline := time.Now().Add(30 * time.Second)
	for resident()+burst/2 > full {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are resident, and %d before the end of the burst", resident(), full)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
