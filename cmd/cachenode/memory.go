package main

import (
	"log/slog"
	"math"
	"runtime"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryShare is the part of the cgroup's memory limit above which Go collects garbage
// more often. The rest is for memory that Go does not count: the pages of raft's log,
// kernel stacks, a burst between two collections.
const memoryShare = 0.9

// limitMemory sets Go's memory limit from the memory limit of the process's cgroup, as
// Go itself does for CPUs. Tests replace provider. If GOMEMLIMIT is set, it changes
// nothing.
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
