package main

import (
	"log/slog"
	"math"
	"runtime"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryShare is the part of the cgroup's memory that Go may use before it collects
// garbage harder. The rest is for memory that Go does not count: the pages of raft's log,
// stacks of the kernel, a burst between two collections.
const memoryShare = 0.9

// limitMemory makes the limit of the process' cgroup, or what provider returns in
// tests, the goal of Go's garbage collector, as Go itself does with its CPUs. With
// GOMEMLIMIT in the environment it changes nothing.
func limitMemory(log *slog.Logger, provider memlimit.Provider) {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare), memlimit.WithProvider(provider))
	if err != nil {
		log.Debug("the system reports no memory limit", "error", err)
	}
	if limit == math.MaxInt64 {
		limit = 0
	}
	log.Info("limits of the process", "cpus", runtime.GOMAXPROCS(0), "memory_goal_bytes", limit)
}
