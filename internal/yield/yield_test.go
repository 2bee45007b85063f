package yield

import (
	"runtime"
	"testing"
)

// A ready goroutine runs while Now yields, if no other processor can take it: at the second call at the latest,
// since Go's scheduler starts with the yielding goroutine every 61st time.
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
			t.Fatal("the ready goroutine has not run")
		}
	}
}

// A goroutine need not yield if no goroutine is ready and an idle processor will run the next ready one.
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
		{0, 1, 9, true}, // reading the counts costs more than yielding
	} {
		if got := crowded(c.processors, func() (uint64, uint64) { return c.ready, c.running }); got != c.want {
			t.Errorf("%d ready, %d running on %d processors: %v, want %v", c.ready, c.running, c.processors, got, c.want)
		}
	}
}
