package chaos

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Config configures a run.
type Config struct {
	// Cycles is the number of cycles; the faults take turns.
	Cycles int
	// Faults are names of faults, in the order of their turns; see [Faults].
	Faults []string
	// Seed selects the writes and watches. The timing of the faults depends on the machine, so no
	// two runs are identical to the microsecond.
	Seed uint64
	// Duration is the minimum time of writes in each cycle.
	Duration time.Duration
	// Short divides the duration of faults; 1: as in the table.
	Short int

	// Rate is the target of writes per second. A cycle with fewer than
	// MinRate is void and is repeated.
	Rate, MinRate int
	// Watches is the number of watches, of the shapes in Mix, over
	// Clients clients of each kind.
	Watches, Clients int
	Mix              Mix
	// APIs are the clients' APIs. With two, each has half of the watches.
	APIs []string
	// Passed is the percentage of the writes that go through the nodes, if clients use etcd's API.
	Passed int

	// Big is the number of transactions per cycle just below etcd's size limit: with previous
	// values they arrive in fragments. With 0 there are no single big values either.
	Big int
	// Joiners is the number of watches by each API that repeatedly start late.
	Joiners int
	// Compact: etcd is compacted every 10 to 30 s.
	Compact bool

	// Nodes, Shards and Replicas configure the cluster. The defaults match five nodes with the
	// shipped manifests: three of them bootstrap it, with a shard each.
	Nodes, Shards, Replicas int
	// AutoOwners is the nodes' --auto-owners: with false, all nodes own shards.
	AutoOwners bool
	// Members is the number of etcd's members, unless a fault sets another one.
	Members int
	// Window is how long nodes keep events for replay.
	Window time.Duration
	// Prefixes × Keys keys exist at the start.
	Prefixes, Keys int

	// Cachenode is the program to run; empty: it is built from this repository.
	Cachenode string
	// clients is the path of this repository's chaos command, which runs clients as processes.
	clients string
	// programs is the directory of the compiled programs of examples/.
	programs string
	// Dir is the existing directory for programs, data and logs.
	Dir string
	// Say is called with each event; nil: not called.
	Say func(format string, args ...any)
	// Done is called after each cycle; nil: not called. Its error ends the run.
	Done func(Cycle) error
}

// Defaults returns the configuration of the published measurements. Dir has no default here.
func Defaults() Config {
	return Config{
		Cycles: 20, Faults: []string{"kill"}, Seed: 1,
		Duration: 20 * time.Second, Short: 1,
		Rate: 350, MinRate: 200,
		Watches: 500, Clients: 10, Mix: Mix{Prefixes: 25, Everything: 5},
		APIs: APIs(), Passed: 15, Big: 1, Joiners: 4, Compact: true,
		Nodes: 5, Shards: 3, Replicas: 3, AutoOwners: true, Members: 1, Window: 30 * time.Second,
		Prefixes: 16, Keys: 200,
	}
}

// Validate reports all invalid settings at once.
func (c Config) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Faults) == 0 {
		wrong("no faults: name some of %s", strings.Join(FaultNames(), ", "))
	}
	for _, f := range c.Faults {
		fault, ok := faultNamed(f)
		if !ok {
			wrong("there is no fault %q: use %s", f, strings.Join(FaultNames(), ", "))
			continue
		}
		if err := fault.unmet(); err != nil {
			wrong("fault %s: %w", f, err)
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
		"short": c.Short, "shards": c.Shards, "replicas": c.Replicas, "keys": c.Keys,
	}
	for _, name := range slices.Sorted(maps.Keys(positive)) {
		if n := positive[name]; n < 1 {
			wrong("%s (%d) must be at least 1", name, n)
		}
	}
	if c.Nodes < 3 {
		wrong("nodes (%d) must be at least 3: one dies, and one of the others must have its shards", c.Nodes)
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
	if c.Members != 1 && c.Members != 3 {
		wrong("members (%d) of etcd must be 1 or 3", c.Members)
	}
	if c.Joiners < 0 {
		wrong("joiners (%d) must not be negative", c.Joiners)
	}
	if c.Dir == "" {
		wrong("dir is empty: name a directory for data and logs")
	}
	return errors.Join(errs...)
}
