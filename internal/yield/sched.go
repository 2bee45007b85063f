package yield

import (
	"runtime"
	"runtime/metrics"
	"sync"
)

// Now yields to goroutines of this process and threads on this core that are ready to run.
func Now() {
	if crowded(runtime.GOMAXPROCS(0), counts) {
		runtime.Gosched()
	}
	threads()
}

// Network is Now, and yields to goroutines as well whose connections have something for them. It waits
// until no goroutine is ready, or 10 ms: it is for large work, which may come last.
func Network() {
	if crowded(runtime.GOMAXPROCS(0), counts) {
		lookAtNetwork()
		runtime.Gosched() // what came with the same look goes first
	}
	threads()
}

// maxLook is the number of processors up to which a look at each of them costs less than to yield.
const maxLook = 8

// crowded reports whether goroutines or timers may wait for the processor of the caller: none does
// while a processor is idle, which takes what becomes ready. With an idle processor, runtime.Gosched
// wakes a thread that takes the calling goroutine: that costs 4 to 16 µs of CPU, a look at the
// scheduler's counts 0.3 µs.
func crowded(processors int, counts func() (ready, running uint64)) bool {
	if processors == 1 || processors > maxLook {
		return true
	}
	ready, running := counts()
	return ready > 0 || running >= uint64(processors) //nolint:gosec // it is positive
}

// samples are those of counts: to read them allocates nothing.
var samples = sync.Pool{New: func() any { //nolint:gochecknoglobals // a pool of the process
	return &[2]metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines/running:goroutines"}}
}}

// counts returns how many goroutines are ready to run, and how many run.
func counts() (ready, running uint64) {
	s := samples.Get().(*[2]metrics.Sample) //nolint:forcetypeassert // nothing else is in it
	defer samples.Put(s)
	metrics.Read(s[:])
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}
