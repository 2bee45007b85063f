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
	// sides are the kinds that are compared.
	sides []string
	// only is a pattern of the names of loads; empty: the standard ones, or with
	// full those that full stands for.
	only string
	full bool
	// tls: clients speak TLS with all sides.
	tls bool

	// modes, whats, watches, sizes and paces are the properties of watches. Of each,
	// the first is the usual one.
	modes   []string
	whats   []string
	watches []int
	sizes   []int
	paces   []string
	// rate is the events that a paced load delivers per second, over all watches,
	// for deliver; 0: usualRate. deliveries is the number that a saturated one delivers.
	rate       int
	deliver    time.Duration
	deliveries int
	// revisions are replayed.
	revisions int
	// held are the numbers of keys whose memory is measured.
	held int

	// keys are the numbers of keys that are listed, each of valueSize bytes, by
	// clients at a time; listed is how many keys each load lists at least.
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
	profile                     string    // a directory for profiles of the servers; empty: none are made
	changed                     []string  // flags that were given, without those that choose loads and outputs
	identity                    *identity // with tls
	say                         func(format string, args ...any)
}

// The paces of watch loads.
const (
	pacePaced     = "paced"
	paceSaturated = "saturated" // as fast as events are taken
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
			wrong("--%s: none is named", name)
		}
		for i, s := range x.given {
			if !slices.Contains(x.known, s) {
				wrong("--%s: there is no %q: %s", name, s, strings.Join(x.known, ", "))
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
		wrong("--rate: at least 1, or 0 for the usual one")
	}
	if c.deliver <= 0 || c.rest <= 0 {
		wrong("--deliver and --rest must be positive")
	}
	if _, err := regexp.Compile(c.only); err != nil {
		wrong("--only: %w", err)
	}
	if c.full && c.only != "" {
		wrong("--full and --only: all loads, or those that are named")
	}
	return errors.Join(errs...)
}

// again is the command that makes a load's figures again.
func (c *config) again(load string) string {
	return fmt.Sprintf("make bench ARGS=%q", strings.Join(append([]string{"--only=" + load}, c.changed...), " "))
}
