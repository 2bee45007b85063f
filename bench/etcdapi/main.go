// Command etcdapi compares an etcd with cache nodes before one, through etcd's
// own API: what lists, gets and watches cost the servers in CPU time and
// memory. See bench/README.md.
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
)

const usage = `etcdapi runs the same loads against an etcd and against three cache nodes
before another one, all processes on this machine, and prints one table: CPU
time of the servers for each key listed, get and event delivered, and their peak
memory. Every answer is checked for its keys, every watch for its revisions.

Usage:
  go run ./bench/etcdapi [flags]

Examples:
  # Everything, half an hour and 20 GiB of memory, for etcd
  go run ./bench/etcdapi

  # The watches alone
  go run ./bench/etcdapi --keys 10000 --only watches

  # On a small machine
  go run ./bench/etcdapi --keys 10000

  # How much two runs of the same differ
  go run ./bench/etcdapi --sides etcd,etcd --keys 10000

Flags:
%s
Exit codes: 0 the table is printed, whatever it says; 1 a load failed, or an
answer was wrong; 2 wrong flags.
`

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

func execute(args []string, stdout, stderr io.Writer) int {
	cfg := defaults()
	flags := pflag.NewFlagSet("etcdapi", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.SortFlags = false
	flags.StringSliceVar(&cfg.sides, "sides", cfg.sides, "the `two` that are compared: etcd or tier")
	flags.IntSliceVar(&cfg.keys, "keys", cfg.keys, "`numbers` of keys that are listed")
	flags.IntVar(&cfg.valueSize, "value-size", cfg.valueSize, "`bytes` of a key's value")
	flags.IntSliceVar(&cfg.clients, "clients", cfg.clients, "`numbers` of clients that read at a time")
	flags.IntVar(&cfg.listed, "listed", cfg.listed, "`keys` that each load lists, at least")
	flags.IntVar(&cfg.page, "page", cfg.page, "`keys` of a page")
	flags.IntVar(&cfg.gets, "gets", cfg.gets, "`keys` that each load gets, one by one")
	flags.IntSliceVar(&cfg.watches, "watches", cfg.watches, "`numbers` of watches")
	flags.IntVar(&cfg.perStream, "per-stream", cfg.perStream, "`watches` on a stream")
	flags.IntSliceVar(&cfg.rates, "rates", cfg.rates, "`events` delivered per second, over all watches")
	flags.DurationVar(&cfg.deliver, "deliver", cfg.deliver, "how long each load of watches writes")
	flags.IntVar(&cfg.eventSize, "event-size", cfg.eventSize, "`bytes` of an event's value")
	flags.StringVar(&cfg.only, "only", "", "`pattern` of the loads to run, as the table names them (default: all)")
	flags.StringVar(&cfg.cachenode, "cachenode", "", "`path` of the program (default: built from this repository)")
	flags.StringVar(&cfg.dir, "dir", "", "`directory` for data and logs, kept afterwards (default: a temporary one, kept after a failure)")
	out := flags.String("report", "dist/bench-etcdapi", "`path` of the report, without its ending: .json and .md are written; empty: none")
	help := flags.BoolP("help", "h", false, "this text")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		if err == nil {
			err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
		}
		return fail(stderr, 2, fmt.Errorf("%w; see --help", err))
	}
	if *help {
		fmt.Fprintf(stdout, usage, flags.FlagUsages())
		return 0
	}
	if err := cfg.validate(); err != nil {
		return fail(stderr, 2, err)
	}
	keep := cfg.dir != ""
	var err error
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
	results, err := run(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("stopped: %w; %w", context.Cause(ctx), err)
		}
		fmt.Fprintln(stderr, "data and logs:", cfg.dir)
		return fail(stderr, 1, err)
	}
	r := newReport(cfg, results)
	r.table(stdout)
	if *out != "" {
		if err := errors.Join(os.MkdirAll(filepath.Dir(*out), 0o750), save(*out+".json", r.json), save(*out+".md", func(w io.Writer) error { r.table(w); return nil })); err != nil {
			return fail(stderr, 1, err)
		}
		fmt.Fprintf(stdout, "\nreport: %s.json %s.md\n", *out, *out)
	}
	if !keep {
		if err := os.RemoveAll(cfg.dir); err != nil {
			return fail(stderr, 1, err)
		}
	}
	return 0
}

func fail(stderr io.Writer, code int, err error) int {
	fmt.Fprintln(stderr, "etcdapi:", err)
	return code
}

func save(path string, f func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f(file), file.Close())
}
