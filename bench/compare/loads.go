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

// load is something that is done to sides. Its name is a path, and none begins
// with another one's.
type load struct {
	name string
	// standard: it runs when no load is named. whole: with --full, too.
	standard, whole bool
	// setup is the state of a side when the load begins.
	setup setup
	// sides are the kinds that it is for.
	sides []string
	run   func(ctx context.Context, t *trial) error
}

// setup is the state of a side when a load begins.
type setup struct {
	nodeArgs []string // of the cache nodes
	// keys are written, of size bytes each, before anybody but etcd runs.
	keys, size int
	key        func(i int) string
}

// everywhere has the nodes cut their shards, as many as they make by themselves, among
// the keys that are watched: a watch of the prefix is one of all shards.
func everywhere() setup {
	return setup{keys: 10 * watchFolders, size: 100, key: func(i int) string {
		return fmt.Sprintf("%s%05d/old-%d", watchPrefix, i%watchFolders, i)
	}}
}

// over has them cut so many shards.
func over(shards int) setup {
	s := everywhere()
	s.nodeArgs = []string{"--shards", strconv.Itoa(shards)}
	return s
}

// etcdSides have etcd's API, as far as loads use it.
func etcdSides() []string { return []string{sideEtcd, sideProxy, sideTier} }

// loads are all that there are.
func loads(c *config) []load {
	return slices.Concat(watchLoads(c), replayLoads(c), stormLoads(c), memoryLoads(c), listLoads(c), mixedLoads(c), restLoads())
}

// chosen are the loads to run. With --full, those that are not standard leave out the sides whose
// cost the standard ones show, which shortens a run of hours.
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

// failure is a load that a side did not get through.
type failure struct {
	Load string `json:"load"`
	Side string `json:"side"`
	Why  string `json:"why"`
}

// trial is a load on one side.
type trial struct {
	*config
	load string
	at   string // the directory of the side
	side *side
	out  []measurement
}

// note keeps a figure.
func (t *trial) note(figure string, u unit, value float64) {
	t.out = append(t.out, measurement{Load: t.load, Side: t.side.kind, Figure: figure, Unit: u, Value: value})
	t.say("%s, %s: %s %s", t.load, t.side.kind, figure, u.text(value))
}

// noteTime keeps a duration, as a share of n.
func (t *trial) noteTime(figure string, d time.Duration, n int64) {
	t.note(figure, unitTime, d.Seconds()/float64(max(n, 1)))
}

// each is long enough for any load on any side; a longer run hangs.
const each = 10 * time.Minute

// run runs the chosen loads, each on all sides, one after the other, so that the
// figures that are compared are close in time. A side that fails at a load ends
// nothing.
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

// try runs a load on a fresh side: memory and caches of an earlier load would
// count for this one.
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
