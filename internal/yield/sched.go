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

// Network is Now, and also yields to goroutines whose connections have data. It waits until no goroutine is
// ready, at most 10 ms: use it for large work that may come last.
func Network() {
	if crowded(runtime.GOMAXPROCS(0), counts) {
		lookAtNetwork()
		runtime.Gosched() // goroutines that the poll has made ready run first
	}
	threads()
}

// maxLook is the number of processors up to which reading the scheduler's counts costs less than yielding.
const maxLook = 8

// crowded reports whether goroutines or timers may wait for the caller's processor. None do while another
// processor is idle, because it runs all that become ready. With an idle processor, runtime.Gosched wakes a
// thread that takes the calling goroutine, which costs 4 to 16 µs of CPU; reading the scheduler's counts costs
// 0.3 µs.
func crowded(processors int, counts func() (ready, running uint64)) bool {
	if processors == 1 || processors > maxLook {
		return true
	}
	ready, running := counts()
	return ready > 0 || running >= uint64(processors) //nolint:gosec // it is positive
}

// samples is the pool of counts: reading allocates nothing.
var samples = sync.Pool{New: func() any { //nolint:gochecknoglobals // a pool of the process
	return &[2]metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines/running:goroutines"}}
}}

// counts returns the numbers of goroutines that are ready to run, and that run.
func counts() (ready, running uint64) {
	s := samples.Get().(*[2]metrics.Sample) //nolint:forcetypeassert // nothing else is in it
	defer samples.Put(s)
	metrics.Read(s[:])
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}
