package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// config says what to run.
type config struct {
	// sides are the two that are compared, each "etcd" or "tier".
	sides []string
	// keys are the numbers of keys that are listed, each of valueSize bytes.
	keys      []int
	valueSize int
	// clients are the numbers of clients that read at a time.
	clients []int
	// listed is how many keys each load lists at least, all lists together.
	listed int
	// page is how many keys a page has.
	page int
	// gets is how many keys each load gets, one by one.
	gets int
	// watches are the numbers of watches, perStream of them on a stream.
	watches   []int
	perStream int
	// rates are how many events are delivered per second, over all watches, for
	// deliver; eventSize is the size of a value.
	rates     []int
	deliver   time.Duration
	eventSize int
	// only names the loads to run.
	only string

	cachenode string
	dir       string
	say       func(format string, args ...any)
}

func defaults() config {
	return config{
		sides: []string{sideEtcd, sideTier},
		keys:  []int{10_000, 100_000}, valueSize: 1 << 10, clients: []int{1, 10, 50}, listed: 2_000_000, page: 500,
		gets:    20_000,
		watches: []int{1_000, 10_000}, perStream: 100, rates: []int{30_000, 100_000}, deliver: 20 * time.Second, eventSize: 256,
		say: func(string, ...any) {},
	}
}

func (c *config) validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.sides) != 2 {
		wrong("--sides: %d are named; two are compared", len(c.sides))
	}
	for _, s := range c.sides {
		if s != sideEtcd && s != sideTier {
			wrong("--sides: there is no %q: etcd or tier", s)
		}
	}
	for name, numbers := range map[string][]int{
		"keys": c.keys, "clients": c.clients, "watches": c.watches, "value-size": {c.valueSize}, "listed": {c.listed}, "page": {c.page},
		"gets": {c.gets}, "per-stream": {c.perStream}, "rates": c.rates, "event-size": {c.eventSize},
	} {
		if len(numbers) == 0 || slices.Min(numbers) < 1 {
			wrong("--%s: each must be at least 1", name)
		}
	}
	if c.deliver <= 0 {
		wrong("--deliver: %v is not positive", c.deliver)
	}
	if _, err := regexp.Compile(c.only); err != nil {
		wrong("--only: %w", err)
	}
	return errors.Join(errs...)
}
