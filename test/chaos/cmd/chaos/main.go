// Command chaos breaks a cluster of real processes again and again, under
// load, and checks that no watch lost, repeated or reordered anything.
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
through the nodes, watches through many clients, and breaks something in every
cycle. At the end of each cycle all watchers must have etcd's revision, and every
promise is checked for everything that was delivered.

Clients speak the native API and etcd's: half of the latter are clientv3, which
resumes by itself, the others are bare streams of many watches that go on at the
next node, with nothing but the last revision plus one.

Usage:
  go run ./test/chaos/cmd/chaos [flags]

Examples:
  # What the promises are measured by: the owner of most shards dies 20 times
  go run ./test/chaos/cmd/chaos

  # It sleeps for ten seconds instead, and must not answer from its dreams
  go run ./test/chaos/cmd/chaos --faults pause --cycles 5

  # Clients of etcd's API only
  go run ./test/chaos/cmd/chaos --api etcd

  # All faults in turn, a small machine
  go run ./test/chaos/cmd/chaos --faults kill,pause,quorum --cycles 3 --rate 200 --min-rate 100 --watches 200

Faults:
%s
Flags:
%s
Exit codes: 0 every promise was kept, 1 one was broken or the run could not go
on, 2 wrong flags. Processes end with this one, however it ends.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	cfg := chaos.Defaults()
	flags := pflag.NewFlagSet("chaos", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&cfg.Cycles, "cycles", cfg.Cycles, "`number` of cycles")
	flags.StringSliceVar(&cfg.APIs, "api", cfg.APIs, "`APIs` that clients speak: native, etcd; each has half of the watches")
	flags.IntVar(&cfg.Passed, "passed", cfg.Passed, "`percent` of the writes that go through the nodes, by etcd's API")
	flags.StringSliceVar(&cfg.Faults, "faults", cfg.Faults, "`names` of faults; they take turns")
	flags.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "`number` that decides what is written and watched; 0: another one each time")
	flags.DurationVar(&cfg.Duration, "duration", cfg.Duration, "how long each cycle writes, at least")
	flags.DurationVar(&cfg.Away, "away", cfg.Away, "how long a killed node stays dead")
	flags.DurationVar(&cfg.Asleep, "asleep", cfg.Asleep, "how long a paused node sleeps")
	flags.IntVar(&cfg.Rate, "rate", cfg.Rate, "`writes` per second to aim at")
	flags.IntVar(&cfg.MinRate, "min-rate", cfg.MinRate, "a cycle with fewer `writes` per second is void and repeated")
	flags.IntVar(&cfg.Big, "big", cfg.Big, "`number` of transactions of each cycle that are almost as big as etcd takes them")
	flags.IntVar(&cfg.Watches, "watches", cfg.Watches, "`number` of watches")
	flags.IntVar(&cfg.Clients, "clients", cfg.Clients, "`number` of clients of each kind that share them")
	flags.IntVar(&cfg.Mix.Prefixes, "prefixes", cfg.Mix.Prefixes, "`percent` of watches that watch one prefix")
	flags.IntVar(&cfg.Mix.Everything, "everything", cfg.Mix.Everything, "`percent` of watches that watch all shards; the rest watch single keys")
	flags.IntVar(&cfg.Nodes, "nodes", cfg.Nodes, "`number` of cache nodes")
	flags.IntVar(&cfg.Shards, "shards", cfg.Shards, "`number` of shards")
	flags.IntVar(&cfg.Replicas, "replicas", cfg.Replicas, "`number` of nodes that have each shard")
	flags.StringVar(&cfg.Cachenode, "cachenode", "", "`path` of the program to break (default: built from this repository)")
	dir := flags.String("dir", "", "`directory` for data and logs, kept afterwards (default: a temporary one, kept only after a failure)")
	out := flags.String("report", "dist/chaos", "`path` of the report, without its ending: .json and .md are written; empty: none")
	help := flags.BoolP("help", "h", false, "this text")

	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		if err == nil {
			err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
		}
		return fail(stderr, 2, fmt.Errorf("%w; see --help", err))
	}
	if *help {
		fmt.Fprintf(stdout, usage, faults(), flags.FlagUsages())
		return 0
	}
	if cfg.Seed == 0 {
		cfg.Seed = uint64(time.Now().UnixNano())
	}
	keep := *dir != ""
	var err error
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := chaos.Run(ctx, cfg)
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
	}
	fmt.Fprintf(stdout, "\n%s; seed %d\n\n", report.Setting, report.Seed)
	if err := report.Table(stdout); err != nil {
		return fail(stderr, 1, err)
	}
	if *out != "" {
		if err := errors.Join(os.MkdirAll(filepath.Dir(*out), 0o750), write(*out+".json", report.JSON), write(*out+".md", report.Markdown)); err != nil {
			return fail(stderr, 1, err)
		}
		fmt.Fprintf(stdout, "\nreport: %s.json %s.md\n", *out, *out)
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

func fail(stderr io.Writer, code int, err error) int {
	fmt.Fprintln(stderr, "chaos:", err)
	return code
}

func faults() string {
	s := ""
	for _, name := range chaos.FaultNames() {
		s += fmt.Sprintf("  %-8s %s\n", name, chaos.Faults()[name].About())
	}
	return s
}

func write(path string, f func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f(file), file.Close())
}
