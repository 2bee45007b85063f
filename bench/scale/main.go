// Command scale runs the planner of the shard map for a cluster that is larger than any available
// machine: with the functions of a raft leader, on simulated members and time. It prints the tables
// of docs/scaling.md.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
)

const usage = `scale plans the shard map of a large simulated cluster: nodes come and go
on simulated time, and the raft leader's own rules decide, move by move. It prints
the cost of each change: time to plan it, copied replicas compared with the
lost ones (or with an even share for new nodes), its duration under the bounds on moves, and the resulting balance of the
cluster; then the size of the map.

Usage:
  go run ./bench/scale [flags]

Examples:
  # The table of docs/scaling.md
  go run ./bench/scale

  # Your own cluster
  go run ./bench/scale --nodes 50 --shards 2000 --watches 500000

  # The cost of gossip, raft and the map for each of 200 nodes, which run in memory, with
  # 10,000 clients that follow the map
  go run ./bench/scale --live 200

Flags:
%s
Exit codes: 0 the tables are printed; 1 a change could not be planned, or its plan took
longer than --most; 2 wrong flags.
`

// config configures the cluster to plan.
type config struct {
	nodes, zones, shards, replicas, watches int
	maxMoves, maxNodeMoves                  int
	live, clients                           int
	seed                                    uint64
	most                                    time.Duration
}

func defaults() config {
	return config{nodes: 1000, zones: 3, shards: 100_000, replicas: 3, watches: 10_000_000, maxMoves: 4096, maxNodeMoves: 16, clients: 10_000, seed: 1}
}

func (c *config) flags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("scale", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.IntVar(&c.nodes, "nodes", c.nodes, "`number` of nodes")
	fs.IntVar(&c.zones, "zones", c.zones, "`number` of zones of the nodes")
	fs.IntVar(&c.shards, "shards", c.shards, "`number` of shards")
	fs.IntVar(&c.replicas, "replicas", c.replicas, "`number` of replicas of each shard")
	fs.IntVar(&c.watches, "watches", c.watches, "`number` of watches of clients")
	fs.IntVar(&c.maxMoves, "max-moves", c.maxMoves, "the setting of cachenode")
	fs.IntVar(&c.maxNodeMoves, "max-node-moves", c.maxNodeMoves, "the setting of cachenode")
	fs.IntVar(&c.live, "live", c.live, "instead run this `number` of complete nodes, in memory and on fake time, and measure them; at most 250")
	fs.IntVar(&c.clients, "clients", c.clients, "with --live: `number` of clients that follow the map")
	fs.Uint64Var(&c.seed, "seed", c.seed, "`number` that determines the distribution of the watches")
	fs.DurationVar(&c.most, "most", c.most, "fail if one plan takes longer; 0: never")
	return fs
}

func (c *config) validate() error {
	var errs []error
	for _, x := range []struct {
		flag       string
		value, min int
	}{
		{"--nodes", c.nodes, 10},
		{"--zones", c.zones, 1},
		{"--shards", c.shards, 1},
		{"--replicas", c.replicas, 1},
		{"--watches", c.watches, 0},
		{"--max-moves", c.maxMoves, 0},
		{"--max-node-moves", c.maxNodeMoves, 0},
		{"--live", c.live, 0},
		{"--clients", c.clients, 1},
	} {
		if x.value < x.min {
			errs = append(errs, fmt.Errorf("%s %d: at least %d", x.flag, x.value, x.min))
		}
	}
	if c.live > 0 && (c.live < 5 || c.live > 250) {
		errs = append(errs, fmt.Errorf("--live %d: from 5 to 250 nodes", c.live))
	}
	return errors.Join(errs...)
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, complain io.Writer) int {
	c := defaults()
	fs := c.flags()
	fs.Usage = func() { fmt.Fprintf(out, usage, fs.FlagUsages()) }
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return 0
	} else if err != nil {
		fmt.Fprintf(complain, "scale: %v\n", err)
		return 2
	}
	if err := c.validate(); err != nil {
		fmt.Fprintf(complain, "scale: %v\n", err)
		return 2
	}
	work := report
	if c.live > 0 {
		work = func(c config, out io.Writer) error { return reportLive(c, out, complain) }
	}
	if err := work(c, out); err != nil {
		fmt.Fprintf(complain, "scale: %v\n", err)
		return 1
	}
	return 0
}
