package main

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// load is a workload for sides. Its name is a path, and no name is a prefix of another.
type load struct {
	name string
	// standard: it runs if no load is named. whole: also with --full.
	standard, whole bool
	// setup is the state of a side at the start of the load.
	setup setup
	// sides are the kinds of sides that can run it.
	sides []string
	run   func(ctx context.Context, t *trial) error
}

// setup is the state of a side at the start of a load.
type setup struct {
	nodeArgs []string // of the cache nodes
	// keys is the number of keys, of size bytes each, that are written before any process but etcd
	// runs.
	keys, size int
	key        func(i int) string
}

// everywhere makes the nodes cut their usual number of shards among the watched keys: a watch of
// the prefix is then a watch of all shards.
func everywhere() setup {
	return setup{keys: 10 * watchFolders, size: 100, key: func(i int) string {
		return fmt.Sprintf("%s%05d/old-%d", watchPrefix, i%watchFolders, i)
	}}
}

// over makes them cut the given number of shards.
func over(shards int) setup {
	s := everywhere()
	s.nodeArgs = []string{"--shards", strconv.Itoa(shards)}
	return s
}

// etcdSides returns the sides with etcd's API, as far as loads use it.
func etcdSides() []string { return []string{sideEtcd, sideProxy, sideTier} }

// loads returns all loads.
func loads(c *config) []load {
	return slices.Concat(watchLoads(c), replayLoads(c), stormLoads(c), memoryLoads(c), listLoads(c), mixedLoads(c), restLoads())
}

// chosen returns the loads to run. With --full, loads that are not standard leave out the sides
// whose cost the standard ones show, which shortens a run of hours.
func chosen(c *config) (out []load) {
	only := regexp.MustCompile(c.only)
	for _, l := range loads(c) {
		if c.only != "" && only.MatchString(l.name) || c.only == "" && (l.standard || c.full && l.whole) {
			if c.full && !l.standard {
				l.sides = slices.DeleteFunc(slices.Clone(l.sides), func(kind string) bool { return kind == sideProxy || kind == sideBare })
			}
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b load) int { return b.rank() - a.rank() })
	return out
}

// measurement is one figure of a load on a side.
type measurement struct {
	Load   string  `json:"load"`
	Side   string  `json:"side"`
	Figure string  `json:"figure"`
	Unit   unit    `json:"unit"`
	Value  float64 `json:"value"`
}

// failure is a load that failed on a side.
type failure struct {
	Load string `json:"load"`
	Side string `json:"side"`
	Why  string `json:"why"`
}

// trial is a load on one side.
type trial struct {
	*config
	load string
	at   string // the side's directory
	side *side
	out  []measurement
}

// note records a figure.
func (t *trial) note(figure string, u unit, value float64) {
	t.out = append(t.out, measurement{Load: t.load, Side: t.side.kind, Figure: figure, Unit: u, Value: value})
	t.say("%s, %s: %s %s", t.load, t.side.kind, figure, u.text(value))
}

// noteTime records a duration divided by n.
func (t *trial) noteTime(figure string, d time.Duration, n int64) {
	t.note(figure, unitTime, d.Seconds()/float64(max(n, 1)))
}

// each bounds the time of a load on a side; a longer run hangs.
const each = 10 * time.Minute

// run runs the chosen loads, each on all sides in turn, so that compared figures are measured close
// in time. The failure of a side at a load does not end the run.
func run(ctx context.Context, c *config) (r report, err error) {
	r = newReport(c)
	n := 0
	for _, l := range chosen(c) {
		for _, kind := range c.sides {
			if !slices.Contains(l.sides, kind) {
				continue
			}
			n++
			out, err := try(ctx, c, l, kind, filepath.Join(c.dir, fmt.Sprintf("%03d-%s", n, kind)))
			r.Measurements = append(r.Measurements, out...)
			if ctx.Err() != nil {
				return r, fmt.Errorf("stopped: %w", context.Cause(ctx))
			}
			if err != nil {
				c.say("%s, %s: FAILED: %v", l.name, kind, err)
				r.Failures = append(r.Failures, failure{Load: l.name, Side: kind, Why: strings.ReplaceAll(err.Error(), "\n", "; ")})
			}
		}
	}
	return r, nil
}

// try runs a load on a fresh side: memory and caches of an earlier load would affect the result.
func try(ctx context.Context, c *config, l load, kind, dir string) (_ []measurement, err error) {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	s, err := startSide(ctx, c, kind, dir, l.setup)
	if err != nil {
		return nil, err
	}
	defer func() {
		if stopped := s.stop(); err == nil {
			err = stopped
		}
	}()
	t := &trial{config: c, load: l.name, at: dir, side: s}
	err = l.run(ctx, t)
	return t.out, err
}
