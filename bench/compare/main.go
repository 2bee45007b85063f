// Command compare measures etcd, etcd's grpc-proxy, cache nodes, a bare grpc-go
// server, a nats-server and a raw write side by side: what watches, lists and writes cost the servers
// in CPU time and memory, and clients in time. See docs/performance.md.
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

const usage = `compare does the same to several sides, all of them processes on this machine,
and prints one table with what it measured and the ratios to etcd. Every list is
checked for its keys, and every watch sees each revision once and in order.

The sides:
  etcd    an etcd of one member
  proxy   etcd's grpc-proxy before an etcd
  tier    three cache nodes before an etcd, through etcd's API
  native  the same nodes, through their own API
  grpc    a bare grpc-go server that sends bytes encoded before, one goroutine per
          connection: what the library can do (watches only)
  nats    a nats-server, which delivers messages of the same size and keeps none
          (paced watches of one prefix, a connection each or a hundred on one)
  tcp     one write(2) of the same bytes to each connection, the least that a server
          can do (paced watches of one prefix, a connection each)

Usage:
  go run ./bench/compare [flags]
  go run ./bench/compare [--report path] [--chart path] [--page-table path] report run.json...

The second form shows runs that were made before in one table and chart: of each
load what the last of them has.

Examples:
  # What fits in a quarter of an hour on two cores
  make bench

  # Everything: more than an hour, and 20 GiB of memory, for etcd. Loads that are not
  # standard leave out proxy and grpc. An interrupted run reports what it has; the
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
Exit codes: 0 the table is printed, whatever it says; 1 cache nodes did not get
through a load, or answered wrong: the table says which, and that of other sides,
too; 2 wrong flags.
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
	flags.StringVar(&cfg.only, "only", "", "`pattern` of the loads to run (default: the standard ones)")
	flags.BoolVar(&cfg.full, "full", false, "run all loads that differ from the usual in one or two ways; those that are not standard without proxy and grpc")
	names := flags.Bool("list", false, "print the names of all loads and end; * are the standard ones, + those of --full")
	out := flags.String("report", "dist/bench", "`path` of the report, without its ending: .json, .md and .svg are written; empty: none")
	var copies copies
	flags.StringVar(&copies.chart, "chart", "", "`path` of another copy of the chart")
	flags.StringVar(&copies.page, "page-table", "", "`path` of a page whose table is replaced, between the lines <!-- results --> and <!-- end of results -->, or <!-- results with TLS --> with --tls")
	flags.StringVar(&cfg.cachenode, "cachenode", "", "`path` of the program (default: built from this repository)")
	flags.StringVar(&cfg.nats, "nats-server", "", "`path` of the program (default: built by tools/pinned)")
	flags.StringVar(&cfg.dir, "dir", "", "`directory` for data and logs, kept afterwards (default: a temporary one, kept after a failure)")
	flags.StringVar(&cfg.profile, "profile", "", "`directory` for CPU profiles of the servers while events are delivered, made by perf: one for each load and side")
	plain := map[string]bool{"help": true}
	flags.VisitAll(func(f *pflag.Flag) { plain[f.Name] = true })

	flags.StringSliceVar(&cfg.sides, "sides", cfg.sides, "`sides` that are compared")
	flags.BoolVar(&cfg.tls, "tls", false, "clients speak TLS")
	flags.StringSliceVar(&cfg.modes, "modes", cfg.modes, "how watches lie on streams and `connections`")
	flags.StringSliceVar(&cfg.whats, "what", cfg.whats, "`what` is watched: one prefix by all, a hundredth, or a key each")
	flags.IntSliceVar(&cfg.watches, "watches", cfg.watches, "`numbers` of watches")
	flags.IntSliceVar(&cfg.sizes, "sizes", cfg.sizes, "`bytes` of an event's value")
	flags.StringSliceVar(&cfg.paces, "paces", cfg.paces, "how fast `events` come")
	flags.IntVar(&cfg.rate, "rate", cfg.rate, fmt.Sprintf("`events` that a paced load delivers per second, over all watches; 0: %d, and %d with a connection for each watch", usualRate(modeShared), usualRate(modeConnection)))
	flags.DurationVar(&cfg.deliver, "deliver", cfg.deliver, "how long a paced load writes")
	flags.IntVar(&cfg.deliveries, "deliveries", cfg.deliveries, "`events` that a saturated load delivers")
	flags.IntVar(&cfg.revisions, "revisions", cfg.revisions, "`revisions` that are replayed")
	flags.IntVar(&cfg.held, "held", cfg.held, "`keys` whose memory is measured")
	flags.IntSliceVar(&cfg.keys, "keys", cfg.keys, "`numbers` of keys that are listed")
	flags.IntVar(&cfg.valueSize, "value-size", cfg.valueSize, "`bytes` of a listed key's value")
	flags.IntSliceVar(&cfg.clients, "clients", cfg.clients, "`numbers` of clients that read at a time")
	flags.IntVar(&cfg.listed, "listed", cfg.listed, "`keys` that each load lists, at least")
	flags.IntVar(&cfg.page, "page", cfg.page, "`keys` of a page")
	flags.IntVar(&cfg.gets, "gets", cfg.gets, "`keys` that one client gets, one by one; several get up to five times as many together")
	flags.DurationVar(&cfg.rest, "rest", cfg.rest, "how long things are left to settle")
	help := flags.BoolP("help", "h", false, "this text")
	err := flags.Parse(args)
	runs := flags.Args()
	switch {
	case err != nil || len(runs) == 0:
	case runs[0] != "report":
		err = fmt.Errorf("unexpected argument %q", runs[0])
	case len(runs) == 1:
		err = errors.New("report: no run is named")
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
		return fail(stderr, 2, fmt.Errorf("--only %s: there is no such load; see --list", cfg.only))
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
		err = errors.New("cache nodes did not get through a load")
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

// rank says when a load runs: 2 unless others are named, 1 with --full, 0 when
// it is named.
func (l load) rank() int {
	switch {
	case l.standard:
		return 2
	case l.whole:
		return 1
	}
	return 0
}

// flagText is a flag's value as given.
func flagText(f *pflag.Flag) string {
	if s, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(s.GetSlice(), ",")
	}
	return f.Value.String()
}

// prepare builds the programs, and makes their certificates and directories.
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

// fail prints why it failed, if it did, and returns the exit code.
func fail(stderr io.Writer, code int, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "compare:", err)
	return code
}

// save writes a file, and the directory that it is in.
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
