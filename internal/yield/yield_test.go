package yield

import (
	"runtime"
	"testing"
)

// A goroutine that is ready runs while Now yields, when no other processor can take it: at the second
// time at the latest, since Go's scheduler begins with the goroutine that yields every 61st time.
func TestNowLetsAReadyGoroutineRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range 100 {
		ran := make(chan struct{}, 1)
		go func() { ran <- struct{}{} }()
		Now()
		Now()
		select {
		case <-ran:
		default:
			t.Fatal("a goroutine that was ready has not run")
		}
	}
}

// A goroutine stays when none is ready and a processor is idle, which takes the next one that is.
func TestCrowded(t *testing.T) {
	for _, c := range []struct {
		ready, running uint64
		processors     int
		want           bool
	}{
		{0, 1, 2, false},
		{0, 1, 1, true}, // timers wait for this processor
		{0, 2, 2, true},
		{1, 1, 2, true},
		{3, 2, 2, true},
		{0, 7, 8, false},
		{0, 1, 9, true}, // to look at so many costs more than to yield
	} {
		if got := crowded(c.processors, func() (uint64, uint64) { return c.ready, c.running }); got != c.want {
			t.Errorf("%d ready, %d running on %d processors: %v, want %v", c.ready, c.running, c.processors, got, c.want)
		}
	}
}
