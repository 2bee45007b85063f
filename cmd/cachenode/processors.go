package main

import (
	"context"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/shardwatch/shardwatch/internal/beat"
)

// With several processors (GOMAXPROCS), Go wakes another thread whenever a goroutine becomes
// runnable while a processor is idle. A node with little load has idle processors, and passes an
// event from goroutine to goroutine: it then uses more CPU to wake threads than for its work.
// With one processor the goroutines run one after the other on one thread. So a node uses one
// processor under low load, and all processors under higher load.
const (
	// quietShare is the part of one processor below which the load is low, busyShare the part
	// above which a node needs all processors. A node with one processor uses at most busyShare
	// of a tick, 20 ms: this bounds the time that a goroutine waits for others that could have run
	// in parallel. In the tick of a sudden load, it can wait for the whole tick.
	quietShare = 0.05
	busyShare  = 0.10
	// quietBeats is the number of ticks in a row with low load before a node uses one
	// processor: each change briefly stops all goroutines.
	quietBeats = 5
)

// demand decides how many processors a node needs.
type demand struct {
	one   bool // one processor is enough
	quiet int  // ticks in a row with low load
}

// judge reports whether one processor is enough from now on, given the CPU time that the process
// has used within the last tick.
func (d *demand) judge(used, within time.Duration) bool {
	share := used.Seconds() / within.Seconds()
	if share < quietShare {
		d.quiet++
	} else {
		d.quiet = 0
	}
	switch {
	case share > busyShare:
		d.one = false
	case d.quiet >= quietBeats:
		d.one = true
	}
	return d.one
}

// useAllProcessors makes Go use all processors that the process may use, but at least two, as Go
// does in a container whose limit is below two (runtime.GOMAXPROCS). With one, a process that is
// never idle polls the network only every 10 ms (runtime, sysmon): a single busy client would
// delay all others by that time. It does nothing if GOMAXPROCS is set in the environment.
func useAllProcessors() {
	if fixedProcessors() {
		return
	}
	runtime.SetDefaultGOMAXPROCS()
	if runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2)
	}
}

// fixedProcessors reports whether the operator has chosen the number of processors.
func fixedProcessors() bool { return os.Getenv("GOMAXPROCS") != "" }

// adaptProcessors switches between one and all processors until ctx ends. cpu returns the CPU time
// that the process has used. It does nothing if GOMAXPROCS is set in the environment.
func adaptProcessors(ctx context.Context, cpu func() time.Duration) {
	if fixedProcessors() {
		return
	}
	var d demand
	one, used, at := false, cpu(), time.Now()
	tick := time.NewTimer(beat.Until(beat.Every))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if one {
				useAllProcessors()
			}
			return
		case <-tick.C:
			tick.Reset(beat.Until(beat.Every))
		}
		was, before, then := one, used, at
		used, at = cpu(), time.Now()
		if one = d.judge(used-before, at.Sub(then)); one == was {
			continue
		}
		if one {
			runtime.GOMAXPROCS(1)
		} else {
			useAllProcessors()
		}
	}
}

// cpuTime returns the CPU time that this process has used, in user and kernel mode.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
