package chaos

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Config says what to run.
type Config struct {
	// Cycles is how many cycles there are; the faults take turns.
	Cycles int
	// Faults are names of faults, in the order of their turns; see [Faults].
	Faults []string
	// Seed decides what is written and watched. Faults strike as fast as the
	// machine lets them, so that no two runs are alike to the microsecond.
	Seed uint64
	// Duration is how long each cycle writes, at least.
	Duration time.Duration
	// Away is how long a killed node stays dead, Asleep how long a paused one
	// sleeps.
	Away, Asleep time.Duration

	// Rate is how many writes per second are aimed at. A cycle with fewer than
	// MinRate is void and is repeated.
	Rate, MinRate int
	// Watches is how many watches there are, of shapes as Mix says, over
	// Clients clients of each kind.
	Watches, Clients int
	Mix              Mix
	// APIs are what clients speak; each has half of the watches when there are
	// two.
	APIs []string
	// Passed is how many percent of the writes go through the nodes, when
	// etcd's API is spoken.
	Passed int

	// Big is how many transactions of each cycle are almost as big as etcd takes
	// them: with previous values they come in fragments.
	Big int

	// Nodes, Shards and Replicas are those of the cluster.
	Nodes, Shards, Replicas int
	// Prefixes × Keys keys exist at first.
	Prefixes, Keys int

	// Cachenode is the program to run; empty: it is built from this repository.
	Cachenode string
	// Dir is where programs, data and logs go; it must exist.
	Dir string
	// Say is told what happens; nil: nobody.
	Say func(format string, args ...any)
}

// Defaults returns the cycle that the promises are measured by. Dir has no
// default here.
func Defaults() Config {
	return Config{
		Cycles: 20, Faults: []string{"kill"}, Seed: 1,
		Duration: 12 * time.Second, Away: 3 * time.Second, Asleep: 10 * time.Second,
		Rate: 600, MinRate: 500,
		Watches: 1000, Clients: 10, Mix: Mix{Prefixes: 25, Everything: 5},
		APIs: APIs(), Passed: 15,
		Nodes: 3, Shards: 16, Replicas: 3,
		Prefixes: 16, Keys: 200,
	}
}

// Validate names every mistake at once.
func (c Config) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	known := Faults()
	if len(c.Faults) == 0 {
		wrong("no faults: name some of %s", strings.Join(FaultNames(), ", "))
	}
	for _, f := range c.Faults {
		if known[f] == nil {
			wrong("there is no fault %q: use %s", f, strings.Join(FaultNames(), ", "))
		}
	}
	if len(c.APIs) == 0 {
		wrong("no APIs: name some of %s", strings.Join(APIs(), ", "))
	}
	for _, a := range c.APIs {
		if !slices.Contains(APIs(), a) {
			wrong("there is no API %q: use %s", a, strings.Join(APIs(), ", "))
		}
	}
	if c.Passed < 0 || c.Passed > 99 {
		wrong("writes through the nodes (%d %%) must be 0 to 99 %%", c.Passed)
	}
	if c.Big < 0 {
		wrong("big (%d) must not be negative", c.Big)
	}
	positive := map[string]int{
		"cycles": c.Cycles, "rate": c.Rate, "watches": c.Watches, "clients": c.Clients,
		"shards": c.Shards, "replicas": c.Replicas, "keys": c.Keys,
	}
	for _, name := range slices.Sorted(maps.Keys(positive)) {
		if n := positive[name]; n < 1 {
			wrong("%s (%d) must be at least 1", name, n)
		}
	}
	if c.Nodes < 3 {
		wrong("nodes (%d) must be at least 3: one dies, and one of the others must have what it had", c.Nodes)
	}
	if c.Prefixes < 2 {
		wrong("prefixes (%d) must be at least 2: transactions write to two", c.Prefixes)
	}
	if c.MinRate > c.Rate {
		wrong("min rate (%d) must not be above rate (%d)", c.MinRate, c.Rate)
	}
	if c.Mix.Prefixes < 0 || c.Mix.Everything < 0 || c.Mix.Prefixes+c.Mix.Everything > 100 {
		wrong("watches of prefixes (%d %%) and of everything (%d %%) must be 0 to 100 %% together", c.Mix.Prefixes, c.Mix.Everything)
	}
	if c.Asleep < time.Second {
		wrong("asleep (%v) must be at least 1s", c.Asleep)
	}
	if c.Dir == "" {
		wrong("dir is empty: name a directory for data and logs")
	}
	return errors.Join(errs...)
}
