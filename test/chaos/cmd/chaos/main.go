// Command chaos repeatedly injects faults into a cluster of real processes under load, and checks
// that no watch lost, repeated or reordered events.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/shardwatch/shardwatch/test/chaos"
)

const usage = `chaos starts an etcd and a cluster of cachenode processes, writes to etcd and
through the nodes, compacts, watches through many clients, and injects a fault
in every cycle. At the end of each cycle all watchers must reach etcd's revision,
and the run checks every promise for all delivered events.

Clients use the native API and etcd's: half of the latter are clientv3, which
resumes on its own, the others are bare streams of many watches that resume on the
next node from the last revision plus one, without other information.

Usage:
  go run ./test/chaos/cmd/chaos [flags]
  go run ./test/chaos/cmd/chaos report DIR...   # add runs up and print the table

Examples:
  # Every fault that this machine supports, once each
  go run ./test/chaos/cmd/chaos

  # 20 cycles, two faults in turn
  go run ./test/chaos/cmd/chaos --cycles 20 --faults kill,pause-10s --seed 7 --report dist/chaos

  # Clients of etcd's API only, a small machine
  go run ./test/chaos/cmd/chaos --api etcd --rate 200 --min-rate 100 --watches 200

Faults:
%s
Flags:
%s
Exit codes: 0 every promise was kept, 1 one was broken or the run could not
continue, 2 wrong flags. Times are reported, never judged. Processes, namespaces and
links are removed when the command ends, or by the next run.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == "clients" { // started by a run; see chaos.Clients
		if err := chaos.Clients(context.Background(), os.Stdin, stdout); err != nil {
			return fail(stderr, 1, err)
		}
		return 0
	}
	possible, others := chaos.Possible()
	cfg := chaos.Defaults()
	flags := pflag.NewFlagSet("chaos", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&cfg.Cycles, "cycles", 0, "`number` of cycles (default: one for each fault)")
	flags.StringSliceVar(&cfg.APIs, "api", cfg.APIs, "`APIs` of the clients: native, etcd; each has half of the watches")
	flags.IntVar(&cfg.Passed, "passed", cfg.Passed, "`percent` of the writes that go through the nodes, by etcd's API")
	flags.StringSliceVar(&cfg.Faults, "faults", nil, "`names` of faults, used in turn (default: all that this machine supports)")
	flags.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "`number` that selects the writes and watches; 0: a random one")
	flags.DurationVar(&cfg.Duration, "duration", cfg.Duration, "minimum duration of the writes in each cycle")
	flags.IntVar(&cfg.Short, "short", cfg.Short, "`number` that divides the duration of faults")
	flags.IntVar(&cfg.Rate, "rate", cfg.Rate, "target `writes` per second")
	flags.IntVar(&cfg.MinRate, "min-rate", cfg.MinRate, "a cycle with fewer `writes` per second is void and repeated")
	flags.IntVar(&cfg.Big, "big", cfg.Big, "`number` of transactions per cycle just below etcd's size limit; 0: no big values at all")
	flags.BoolVar(&cfg.Compact, "compact", cfg.Compact, "compact etcd every 10 to 30 s")
	flags.IntVar(&cfg.Watches, "watches", cfg.Watches, "`number` of watches")
	flags.IntVar(&cfg.Clients, "clients", cfg.Clients, "`number` of clients of each kind, which share the watches")
	flags.IntVar(&cfg.Joiners, "joiners", cfg.Joiners, "`number` of watches by each API that repeatedly start at an old revision")
	flags.IntVar(&cfg.Mix.Prefixes, "prefixes", cfg.Mix.Prefixes, "`percent` of watches that watch one prefix")
	flags.IntVar(&cfg.Mix.Everything, "everything", cfg.Mix.Everything, "`percent` of watches that watch all shards; the rest watch single keys")
	flags.IntVar(&cfg.Nodes, "nodes", cfg.Nodes, "`number` of cache nodes")
	flags.IntVar(&cfg.Shards, "shards", cfg.Shards, "`number` of shards")
	flags.BoolVar(&cfg.AutoOwners, "auto-owners", cfg.AutoOwners, "let few nodes own all shards; false: all nodes own shards, so that watches wait for the progress of several")
	flags.IntVar(&cfg.Replicas, "replicas", cfg.Replicas, "`number` of replicas of each shard")
	flags.IntVar(&cfg.Members, "members", cfg.Members, "`number` of members of etcd, 1 or 3, unless a fault needs another number")
	flags.DurationVar(&cfg.Window, "window", cfg.Window, "how long nodes keep events for replay")
	flags.StringVar(&cfg.Cachenode, "cachenode", "", "`path` of the cachenode program (default: built from this repository)")
	dir := flags.String("dir", "", "`directory` for data and logs, kept afterwards (default: a temporary one, kept only after a failure)")
	out := flags.String("report", "dist/chaos", "`directory` of the report, to which the run appends; empty: none")
	help := flags.BoolP("help", "h", false, "this text")

	err := flags.Parse(args)
	adds := flags.Arg(0) == "report"
	if err == nil && flags.NArg() > 0 && !adds {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	switch {
	case err != nil:
		return fail(stderr, 2, fmt.Errorf("%w; see --help", err))
	case *help:
		fmt.Fprintf(stdout, usage, faults(others), flags.FlagUsages())
		return 0
	case adds:
		return report(flags.Args()[1:], stdout, stderr)
	}
	if len(cfg.Faults) == 0 {
		cfg.Faults = possible
		for _, name := range chaos.FaultNames() {
			if why := others[name]; why != nil {
				fmt.Fprintf(stderr, "without %s: %v\n", name, why)
			}
		}
	}
	if cfg.Cycles == 0 {
		cfg.Cycles = len(cfg.Faults)
	}
	if cfg.Seed == 0 {
		cfg.Seed = uint64(time.Now().UnixNano())
	}
	keep := *dir != ""
	if keep {
		cfg.Dir, err = filepath.Abs(*dir)
		err = errors.Join(err, os.MkdirAll(cfg.Dir, 0o700))
	} else {
		cfg.Dir, err = os.MkdirTemp("", "shardwatch-chaos-")
	}
	if err != nil {
		return fail(stderr, 1, err)
	}
	if err := cfg.Validate(); err != nil {
		if !keep {
			err = errors.Join(err, os.RemoveAll(cfg.Dir))
		}
		return fail(stderr, 2, err)
	}
	began := time.Now()
	cfg.Say = func(format string, args ...any) {
		fmt.Fprintf(stderr, "%7.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	if *out != "" {
		cfg.Done = func(c chaos.Cycle) error { return chaos.Append(*out, c) }
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := chaos.Run(ctx, cfg)
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
	}
	fmt.Fprintf(stdout, "\nseed %d\n\n", cfg.Seed)
	if err := report.Text(stdout); err != nil {
		return fail(stderr, 1, err)
	}
	if failed := report.Failed(); len(failed) > 0 {
		for _, f := range failed {
			fmt.Fprintln(stderr, "FAILED:", f)
		}
		fmt.Fprintln(stderr, "data and logs:", cfg.Dir)
		return 1
	}
	if !keep {
		if err := os.RemoveAll(cfg.Dir); err != nil {
			return fail(stderr, 1, err)
		}
	}
	return 0
}

// report combines runs and prints the table for a page.
func report(dirs []string, stdout, stderr io.Writer) int {
	if len(dirs) == 0 {
		return fail(stderr, 2, errors.New("report: name directories with reports; see --help"))
	}
	r, err := chaos.Read(dirs...)
	if err != nil {
		return fail(stderr, 1, err)
	}
	if err := r.Markdown(stdout); err != nil {
		return fail(stderr, 1, err)
	}
	return 0
}

func fail(stderr io.Writer, code int, err error) int {
	fmt.Fprintln(stderr, "chaos:", err)
	return code
}

// faults lists all faults, with the reason for each that this machine does not support.
func faults(others map[string]error) string {
	s := ""
	for _, f := range chaos.Faults() {
		s += fmt.Sprintf("  %-18s %s", f.Name, f.About)
		if needs := f.Needs.String(); needs != "" {
			s += " (needs " + needs + ")"
		}
		if why := others[f.Name]; why != nil {
			s += fmt.Sprintf("; not here: %v", why)
		}
		s += "\n"
	}
	return s
}
