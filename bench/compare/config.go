package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// config configures a run.
type config struct {
	// sides are the kinds of sides to compare.
	sides []string
	// only is a pattern for the names of loads; empty: the standard loads, or with full the loads
	// of full.
	only string
	full bool
	// tls: clients use TLS with all sides.
	tls bool

	// modes, whats, watches, sizes and paces are the properties of watches. The first of each is
	// the usual one.
	modes   []string
	whats   []string
	watches []int
	sizes   []int
	paces   []string
	// rate is the number of events that a paced load delivers per second, over all watches, for
	// deliver; 0: usualRate. deliveries is the number that a saturated load delivers.
	rate       int
	deliver    time.Duration
	deliveries int
	// revisions is the number of replayed revisions.
	revisions int
	// held has the numbers of keys whose memory is measured.
	held int

	// keys has the numbers of listed keys, each of valueSize bytes, clients the numbers of
	// concurrent clients; listed is the minimum number of keys that each load lists.
	keys      []int
	valueSize int
	clients   []int
	listed    int
	page      int
	gets      int
	// rest is the time to settle, and the duration of the measurement at rest.
	rest time.Duration

	cachenode, etcd, nats, self string // programs
	dir                         string
	profile                     string    // a directory for profiles of the servers; empty: no profiles
	changed                     []string  // given flags, without the flags that select loads and outputs
	identity                    *identity // with tls
	say                         func(format string, args ...any)
}

// The paces of watch loads.
const (
	pacePaced     = "paced"
	paceSaturated = "saturated" // as fast as the client receives events
)

func defaults() config {
	return config{
		sides: kinds(),
		modes: []string{modeShared, modeStream, modeConnection}, whats: []string{whatPrefix, whatFolder, whatKeys},
		watches: []int{1_000, 10_000}, sizes: []int{256, 1 << 10, 16 << 10}, paces: []string{pacePaced, paceSaturated},
		deliver: 6 * time.Second, deliveries: 4_000_000, revisions: 2_000, held: 100_000,
		keys: []int{10_000, 100_000}, valueSize: 1 << 10, clients: []int{1, 50}, listed: 500_000, page: 500, gets: 20_000,
		rest: 2 * time.Second,
		say:  func(string, ...any) {},
	}
}

func (c *config) validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for name, x := range map[string]struct{ given, known []string }{
		"sides": {c.sides, kinds()}, "modes": {c.modes, defaults().modes}, "what": {c.whats, defaults().whats}, "paces": {c.paces, defaults().paces},
	} {
		if len(x.given) == 0 {
			wrong("--%s: must not be empty", name)
		}
		for i, s := range x.given {
			if !slices.Contains(x.known, s) {
				wrong("--%s: unknown value %q; use %s", name, s, strings.Join(x.known, ", "))
			}
			if slices.Contains(x.given[:i], s) {
				wrong("--%s: %q is named twice", name, s)
			}
		}
	}
	for name, numbers := range map[string][]int{
		"watches": c.watches, "sizes": c.sizes, "deliveries": {c.deliveries}, "revisions": {c.revisions}, "held": {c.held},
		"keys": c.keys, "clients": c.clients, "value-size": {c.valueSize}, "listed": {c.listed}, "page": {c.page}, "gets": {c.gets},
	} {
		if len(numbers) == 0 || slices.Min(numbers) < 1 {
			wrong("--%s: each must be at least 1", name)
		}
	}
	if c.rate < 0 {
		wrong("--rate: at least 1, or 0 for the usual rate")
	}
	if c.deliver <= 0 || c.rest <= 0 {
		wrong("--deliver and --rest must be positive")
	}
	if _, err := regexp.Compile(c.only); err != nil {
		wrong("--only: %w", err)
	}
	if c.full && c.only != "" {
		wrong("--full and --only: use only one of them")
	}
	return errors.Join(errs...)
}

// again is the command that measures a load again.
func (c *config) again(load string) string {
	return fmt.Sprintf("make bench ARGS=%q", strings.Join(append([]string{"--only=" + load}, c.changed...), " "))
}
