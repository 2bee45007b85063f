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
// runnable while a processor is free. A node that does little has free processors, and hands an
// event from goroutine to goroutine: it then uses more CPU to wake threads than for its work.
// With one processor the goroutines run one after the other on one thread. So a node uses one
// while it needs little, and all of them while it needs more.
const (
	// quietShare is the part of one processor below which a node needs little, busyShare the
	// part above which it needs all processors. A node that keeps one takes at most busyShare
	// of a beat, 20 ms: that is the longest that one goroutine can wait for others that would
	// have run beside it. In the beat of a sudden load it can wait for the whole beat.
	quietShare = 0.05
	busyShare  = 0.10
	// quietBeats is how many beats in a row a node must need little before it uses one
	// processor: each change stops all goroutines for a moment.
	quietBeats = 5
)

// demand decides how many processors a node needs.
type demand struct {
	one   bool // one is enough
	quiet int  // beats in a row that needed little
}

// judge takes the CPU time that the process has used within a time, and reports whether one
// processor is enough from now on.
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

// useAllProcessors has Go use all processors that the process may use, and two where there is
// one, as Go does in a container whose limit is below two (runtime.GOMAXPROCS). With one, a
// process that is never idle looks at the network every 10 ms only (runtime, sysmon), so that a
// single busy client delays all others by that. GOMAXPROCS in the environment changes it.
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

// adaptProcessors uses one processor or all by the CPU time that cpu returns, which the process
// has used, until ctx ends. It changes nothing with GOMAXPROCS in the environment.
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
