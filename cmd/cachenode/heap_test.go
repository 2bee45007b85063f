package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/beat"
)

func TestCollectionOfTheHeapAtRest(t *testing.T) {
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
		"while an idle cluster gossips":       {800 << 10, 10 * mib, 4 * mib, true},
		"too little":                          {heapAtRest, 10 * mib, 2 * mib, false},
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

// The memory limit does not include the floor.
func TestTheFloorOfTheHeap(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for limit, want := range map[int64]int64{1 << 30: 1<<30 + heapFloor, math.MaxInt64: math.MaxInt64} {
		debug.SetMemoryLimit(limit)
		floor := allocateFloor()
		if got := debug.SetMemoryLimit(-1); len(floor) != heapFloor || got != want {
			t.Errorf("a floor of %d bytes; limit %d becomes %d, want %d", len(floor), limit, got, want)
		}
	}
}

// resident returns the bytes of Go's heap that were not returned to the system.
func resident() uint64 {
	read := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(read)
	return read[0].Value.Uint64() + read[1].Value.Uint64()
}

// The memory of a burst is returned to the system one second and one tick after the last allocation,
// even if a collection during the burst has found it in use.
func TestMemoryOfABurstIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 24 << 20
		go returnMemory(t.Context())
		time.Sleep(3 * beat.Every / 2)
		held := make([][]byte, burst>>16)
		for i := range held {
			held[i] = make([]byte, 1<<16)
			held[i][0] = 1
		}
		runtime.GC()
		full := resident()
		clear(held)
		time.Sleep(time.Second + beat.Every)
		synctest.Wait()
		if now := resident(); now+burst/2 > full {
			t.Errorf("%d bytes are resident, %d before the end of the burst", now, full)
		}
	})
}
