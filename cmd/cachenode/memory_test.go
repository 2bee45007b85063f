package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestMemoryIsLimitedToAPartOfTheCgroup(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	const whole = 10 << 30
	for name, c := range map[string]struct {
		provider memlimit.Provider
		env      string // GOMEMLIMIT
		want     int64
		log      string
	}{
		"a limit":                {memlimit.Limit(whole), "", 9 << 30, "memory_goal_bytes=9663676416"},
		"none":                   {func() (uint64, error) { return 0, memlimit.ErrNoLimit }, "", math.MaxInt64, "memory_goal_bytes=0"},
		"no cgroups":             {func() (uint64, error) { return 0, memlimit.ErrCgroupsNotSupported }, "", math.MaxInt64, "memory_goal_bytes=0"},
		"what the operator says": {memlimit.Limit(whole), "1GiB", math.MaxInt64, "memory_goal_bytes=0"}, // the runtime has read it already
	} {
		t.Run(name, func(t *testing.T) {
			debug.SetMemoryLimit(math.MaxInt64)
			if c.env != "" {
				t.Setenv("GOMEMLIMIT", c.env)
			}
			var out bytes.Buffer
			limitMemory(slog.New(slog.NewTextHandler(&out, nil)), c.provider)
			if got := debug.SetMemoryLimit(-1); got != c.want || !strings.Contains(out.String(), c.log) {
				t.Errorf("limit %d, want %d: %s", got, c.want, out.String())
			}
		})
	}
}

// One CPU is used as Go uses it in a container that is limited to one. More CPUs, and what
// the operator says, stay.
func TestOneCPUHasTwoProcessors(t *testing.T) {
	for _, c := range []struct {
		env          string
		before, want int
	}{
		{"", 1, 2},
		{"", 2, 2},
		{"", 3, 3},
		{"1", 1, 1},
	} {
		t.Run(fmt.Sprintf("%d with GOMAXPROCS=%s", c.before, c.env), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.before))
			t.Setenv("GOMAXPROCS", c.env)
			useTwoProcessors()
			if got := runtime.GOMAXPROCS(0); got != c.want {
				t.Errorf("%d processors, want %d", got, c.want)
			}
		})
	}
}
