// Command compare measures etcd, etcd's grpc-proxy, cache nodes, a bare grpc-go server, a nats-server
// and a raw write side by side: the cost of watches, lists and writes in CPU time and memory for the
// servers, and in time for clients. See docs/performance.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

const usage = `compare runs the same loads on several sides, all of them processes on this machine,
and prints one table of the measurements with the ratios to etcd. Every list is
checked for its keys, and every watch receives each revision once and in order.

The sides:
  etcd    an etcd of one member
  proxy   etcd's grpc-proxy in front of an etcd
  tier    three cache nodes in front of an etcd, through etcd's API
  native  the same nodes, through their own API
  grpc    a bare grpc-go server that sends pre-encoded bytes, one goroutine per
          connection: the limit of the library (watches only)
  nats    a nats-server, which delivers messages of the same size and stores none
          (paced watches of one prefix, a connection each or a hundred on one)
  tcp     one write(2) of the same bytes to each connection, the minimum work of a
          server (paced watches of one prefix, a connection each)

Usage:
  go run ./bench/compare [flags]
  go run ./bench/compare [--report path] [--chart path] [--page-table path] report run.json...

The second form shows earlier runs in one table and chart: for each load
the result of the last run.

Examples:
  # The standard loads: a quarter of an hour on two cores
  make bench

  # All loads: more than an hour, and 20 GiB of memory, for etcd. Loads that are not
  # standard leave out proxy and grpc. An interrupted run reports its results so far; the
  # standard loads come first
  make bench ARGS=--full

  # One load, as the table names it
  make bench ARGS=--only=watch/shared/prefix/1000/256B/paced

  # The names of all loads
  make bench ARGS=--list

  # Two runs in one table
  make bench ARGS="--report=dist/both report dist/a.json dist/b.json"

Flags:
%s
Exit codes: 0 the table is printed, whatever the results; 1 cache nodes failed a
load or answered wrong: the table lists these failures and those of other sides;
2 wrong flags.
`

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

func execute(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "serve" { // the sides grpc and tcp
		return fail(stderr, 1, serve(args[1:]))
	}
	cfg := defaults()
	flags := pflag.NewFlagSet("compare", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.SortFlags = false
	flags.StringVar(&cfg.only, "only", "", "`pattern` of the loads to run (default: the standard loads)")
	flags.BoolVar(&cfg.full, "full", false, "run all loads that differ from the usual one in one or two properties; loads that are not standard run without proxy and grpc")
	names := flags.Bool("list", false, "print the names of all loads and end; * marks standard loads, + loads of --full")
	out := flags.String("report", "dist/bench", "`path` of the report without an extension: the run writes .json, .md and .svg; empty: none")
	var copies copies
	flags.StringVar(&copies.chart, "chart", "", "`path` of an additional copy of the chart")
	flags.StringVar(&copies.page, "page-table", "", "`path` of a page whose table is replaced, between the lines <!-- results --> and <!-- end of results -->, or <!-- results with TLS --> with --tls")
	flags.StringVar(&cfg.cachenode, "cachenode", "", "`path` of the program (default: built from this repository)")
	flags.StringVar(&cfg.nats, "nats-server", "", "`path` of the program (default: built by tools/pinned)")
	flags.StringVar(&cfg.dir, "dir", "", "`directory` for data and logs, kept afterwards (default: a temporary one, kept after a failure)")
	flags.StringVar(&cfg.profile, "profile", "", "`directory` for CPU profiles of the servers during deliveries, made by perf: one for each load and side")
	plain := map[string]bool{"help": true}
	flags.VisitAll(func(f *pflag.Flag) { plain[f.Name] = true })

	flags.StringSliceVar(&cfg.sides, "sides", cfg.sides, "`sides` to compare")
	flags.BoolVar(&cfg.tls, "tls", false, "clients use TLS")
	flags.StringSliceVar(&cfg.modes, "modes", cfg.modes, "distribution of watches over streams and `connections`")
	flags.StringSliceVar(&cfg.whats, "what", cfg.whats, "watched `ranges`: one prefix by all, a hundredth of the keys, or a key each")
	flags.IntSliceVar(&cfg.watches, "watches", cfg.watches, "`numbers` of watches")
	flags.IntSliceVar(&cfg.sizes, "sizes", cfg.sizes, "`bytes` of an event's value")
	flags.StringSliceVar(&cfg.paces, "paces", cfg.paces, "`pace` of the events")
	flags.IntVar(&cfg.rate, "rate", cfg.rate, fmt.Sprintf("number of `events` that a paced load delivers per second, over all watches; 0: %d, and %d with a connection for each watch", usualRate(modeShared), usualRate(modeConnection)))
	flags.DurationVar(&cfg.deliver, "deliver", cfg.deliver, "duration of the writes of a paced load")
	flags.IntVar(&cfg.deliveries, "deliveries", cfg.deliveries, "number of `events` that a saturated load delivers")
	flags.IntVar(&cfg.revisions, "revisions", cfg.revisions, "number of replayed `revisions`")
	flags.IntVar(&cfg.held, "held", cfg.held, "number of `keys` whose memory is measured")
	flags.IntSliceVar(&cfg.keys, "keys", cfg.keys, "`numbers` of listed keys")
	flags.IntVar(&cfg.valueSize, "value-size", cfg.valueSize, "`bytes` of the value of a listed key")
	flags.IntSliceVar(&cfg.clients, "clients", cfg.clients, "`numbers` of concurrent readers")
	flags.IntVar(&cfg.listed, "listed", cfg.listed, "minimum number of `keys` that each load lists")
	flags.IntVar(&cfg.page, "page", cfg.page, "number of `keys` per page")
	flags.IntVar(&cfg.gets, "gets", cfg.gets, "number of `keys` that one client gets, one by one; several clients get up to five times as many together")
	flags.DurationVar(&cfg.rest, "rest", cfg.rest, "time to settle before measurements")
	help := flags.BoolP("help", "h", false, "this text")
	err := flags.Parse(args)
	runs := flags.Args()
	switch {
	case err != nil || len(runs) == 0:
	case runs[0] != "report":
		err = fmt.Errorf("unexpected argument %q", runs[0])
	case len(runs) == 1:
		err = errors.New("report: name at least one run")
	}
	if err != nil {
		return fail(stderr, 2, fmt.Errorf("%w; see --help", err))
	}
	if *help {
		fmt.Fprintf(stdout, usage, flags.FlagUsages())
		return 0
	}
	if err := cfg.validate(); err != nil {
		return fail(stderr, 2, err)
	}
	if *names {
		list := loads(&cfg)
		slices.SortStableFunc(list, func(a, b load) int { return b.rank() - a.rank() })
		for _, l := range list {
			fmt.Fprintf(stdout, "%c %s\n", " +*"[l.rank()], l.name)
		}
		return 0
	}
	if len(runs) > 0 {
		r, err := together(runs[1:])
		if err == nil {
			err = r.publish(stdout, *out, copies)
		}
		return fail(stderr, 1, err)
	}
	if len(chosen(&cfg)) == 0 {
		return fail(stderr, 2, fmt.Errorf("--only %s: matches no load; see --list", cfg.only))
	}
	flags.Visit(func(f *pflag.Flag) {
		if !plain[f.Name] {
			cfg.changed = append(cfg.changed, fmt.Sprintf("--%s=%s", f.Name, flagText(f)))
		}
	})
	keep := cfg.dir != ""
	if keep {
		err = os.MkdirAll(cfg.dir, 0o700)
	} else {
		cfg.dir, err = os.MkdirTemp("", "shardwatch-bench-")
	}
	if err != nil {
		return fail(stderr, 1, err)
	}
	began := time.Now()
	cfg.say = func(format string, args ...any) {
		fmt.Fprintf(stderr, "%7.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cfg.prepare(ctx); err != nil {
		return fail(stderr, 1, err)
	}
	r, err := run(ctx, &cfg)
	err = errors.Join(err, r.publish(stdout, *out, copies))
	if err == nil && slices.ContainsFunc(r.Failures, func(f failure) bool { return cached(f.Side) }) {
		err = errors.New("cache nodes failed a load")
	}
	if err != nil {
		fmt.Fprintln(stderr, "data and logs:", cfg.dir)
		return fail(stderr, 1, err)
	}
	if !keep {
		if err := os.RemoveAll(cfg.dir); err != nil {
			return fail(stderr, 1, err)
		}
	}
	return 0
}

// rank returns when a load runs: 2 by default, 1 with --full, 0 only if it is named.
func (l load) rank() int {
	switch {
	case l.standard:
		return 2
	case l.whole:
		return 1
	}
	return 0
}

// flagText returns a flag's value in the syntax of the command line.
func flagText(f *pflag.Flag) string {
	if s, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(s.GetSlice(), ",")
	}
	return f.Value.String()
}

// prepare builds the programs, and creates their certificates and directories.
func (c *config) prepare(ctx context.Context) (err error) {
	if c.self, err = os.Executable(); err != nil {
		return err
	}
	if c.etcd, err = etcdtest.Binary(ctx); err != nil {
		return err
	}
	if c.cachenode == "" && slices.ContainsFunc(c.sides, cached) {
		if c.cachenode, err = nodetest.Build(ctx, c.dir); err != nil {
			return err
		}
	}
	if c.nats == "" && slices.Contains(c.sides, sideNATS) && slices.ContainsFunc(chosen(c), func(l load) bool { return slices.Contains(l.sides, sideNATS) }) {
		if c.nats, err = buildNATS(ctx); err != nil {
			return err
		}
	}
	if c.profile != "" {
		if err := os.MkdirAll(c.profile, 0o750); err != nil {
			return err
		}
	}
	if c.tls {
		c.identity, err = newIdentity(c.dir)
	}
	return err
}

// fail prints the error, if any, and returns the exit code.
func fail(stderr io.Writer, code int, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "compare:", err)
	return code
}

// save writes a file, and creates its directory.
func save(path string, f func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f(file), file.Close())
}
