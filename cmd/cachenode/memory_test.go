package main

import (
	"bytes"
	"log/slog"
	"math"
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
		"a limit":                   {memlimit.Limit(whole), "", 9 << 30, "memory_goal_bytes=9663676416"},
		"none":                      {func() (uint64, error) { return 0, memlimit.ErrNoLimit }, "", math.MaxInt64, "memory_goal_bytes=0"},
		"no cgroups":                {func() (uint64, error) { return 0, memlimit.ErrCgroupsNotSupported }, "", math.MaxInt64, "memory_goal_bytes=0"},
		"the limit of the operator": {memlimit.Limit(whole), "1GiB", math.MaxInt64, "memory_goal_bytes=0"}, // the runtime has read it already
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
