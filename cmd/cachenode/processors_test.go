package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/beat"
)

// With one CPU, the node uses two processors, as Go does in a container with one CPU. More CPUs
// and the operator's number are not changed.
func TestOneCPUHasTwoProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "1")
	runtime.GOMAXPROCS(1)
	if useAllProcessors(); runtime.GOMAXPROCS(0) != 1 {
		t.Errorf("%d processors, want the operator's 1", runtime.GOMAXPROCS(0))
	}
	t.Setenv("GOMAXPROCS", "")
	want := allProcessors()
	runtime.GOMAXPROCS(1)
	if useAllProcessors(); runtime.GOMAXPROCS(0) != want {
		t.Errorf("%d processors, want %d", runtime.GOMAXPROCS(0), want)
	}
}

// allProcessors returns Go's default number of processors, at least two.
func allProcessors() int {
	runtime.SetDefaultGOMAXPROCS()
	return max(2, runtime.GOMAXPROCS(0))
}

func TestDemandOfProcessors(t *testing.T) {
	const quiet, some, busy = 0.01, 0.07, 0.5 // shares of a processor
	beats := func(n int, share float64) (out []float64) {
		for range n {
			out = append(out, share)
		}
		return out
	}
	for _, c := range []struct {
		name  string
		beats [][]float64
		want  bool // one is enough
	}{
		{"not quiet for long enough", [][]float64{beats(quietBeats-1, quiet)}, false},
		{"quiet", [][]float64{beats(quietBeats, quiet)}, true},
		{"quiet with a busy tick", [][]float64{beats(quietBeats-1, quiet), {busy}, beats(quietBeats-1, quiet)}, false},
		{"quiet with a tick between the bounds", [][]float64{beats(quietBeats-1, quiet), {some}, beats(quietBeats-1, quiet)}, false},
		{"between the bounds after quiet ticks", [][]float64{beats(quietBeats, quiet), beats(100, some)}, true},
		{"between the bounds from the start", [][]float64{beats(100, some)}, false},
		{"one busy tick after quiet ones", [][]float64{beats(100, quiet), {busy}}, false},
		{"quiet again, and not for long enough", [][]float64{beats(100, quiet), {busy}, beats(quietBeats-1, quiet)}, false},
		{"quiet again", [][]float64{beats(100, quiet), {busy}, beats(quietBeats, quiet)}, true},
	} {
		var d demand
		var got bool
		for _, part := range c.beats {
			for _, share := range part {
				got = d.judge(time.Duration(share*float64(beat.Every)), beat.Every)
			}
		}
		if got != c.want {
			t.Errorf("%s: one is enough: %v, want %v", c.name, got, c.want)
		}
	}
}

// A node uses one processor after it has been quiet, and all processors when it is busy and at its end.
func TestProcessorsFollowTheDemand(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	ours := allProcessors()
	for _, c := range []struct {
		env  string // GOMAXPROCS
		last int    // processors of the quiet node
	}{{"", 1}, {"3", 3}} {
		t.Run("GOMAXPROCS="+c.env, func(t *testing.T) {
			t.Setenv("GOMAXPROCS", c.env)
			runtime.GOMAXPROCS(3)
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				began, used := time.Now(), time.Duration(0)
				var percent atomic.Int64 // of the following time
				cpu := func() time.Duration {
					used += time.Since(began) * time.Duration(percent.Load()) / 100
					began = time.Now()
					return used
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					adaptProcessors(ctx, cpu)
				}()
				after := func(beats int, want int) {
					t.Helper()
					time.Sleep(time.Duration(beats)*beat.Every + beat.Every/2)
					synctest.Wait()
					if got := runtime.GOMAXPROCS(0); got != want {
						t.Errorf("%d processors after %d beats with %d %% of a CPU, want %d", got, beats, percent.Load(), want)
					}
				}
				all := runtime.GOMAXPROCS(0)
				after(quietBeats/2, all)
				after(quietBeats, c.last)
				if c.env == "" {
					all = ours
				}
				percent.Store(90)
				after(2, all)
				percent.Store(0)
				after(2*quietBeats, c.last)
				stop()
				<-ended
				if got := runtime.GOMAXPROCS(0); got != all {
					t.Errorf("%d processors at the end, want %d", got, all)
				}
			})
		})
	}
}

func TestCPUTimeGrows(t *testing.T) {
	before := cpuTime()
	for began := time.Now(); cpuTime() == before; {
		if time.Since(began) > time.Minute {
			t.Fatal("no CPU time is counted")
		}
	}
}
