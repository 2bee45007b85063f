// Command catchup compares the cost of ways to bring a client up to date after a long absence: from
// etcd, by a list or by replaying its log, and from cache nodes, by the changes or by the whole
// state. See bench/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

const usage = `catchup brings clients up to date that missed many revisions, which
changed few of many keys, and prints the cost: bytes on the wire and CPU
time of the servers, for each way. Every client checks that it has
received each changed and each deleted key.

Usage:
  go run ./bench/catchup [flags]

Examples:
  # 100,000 revisions over 1,000,000 keys, of which 1,000 changed
  go run ./bench/catchup

  # On a small machine
  go run ./bench/catchup --keys 100000 --revisions 20000

Flags:
%s
Exit codes: 0 the table is printed; 1 a client was not brought up to date, or a
process failed; 2 wrong flags.
`

// config configures a comparison.
type config struct {
	keys, valueSize, changed, revisions, page int
	clients                                   []int
	cachenode, dir                            string
	say                                       func(format string, args ...any)
}

func (c *config) validate() error {
	var errs []error
	for _, x := range []struct {
		flag       string
		value, min int
	}{
		{"--keys", c.keys, 100},
		{"--value-size", c.valueSize, 1},
		{"--changed", c.changed, 10},
		{"--revisions", c.revisions, c.changed},
		{"--page", c.page, 1},
	} {
		if x.value < x.min {
			errs = append(errs, fmt.Errorf("%s %d: at least %d", x.flag, x.value, x.min))
		}
	}
	if c.changed > c.keys {
		errs = append(errs, fmt.Errorf("--changed %d: more than the %d --keys", c.changed, c.keys))
	}
	for _, n := range c.clients {
		if n < 1 {
			errs = append(errs, fmt.Errorf("--clients %d: at least 1", n))
		}
	}
	return errors.Join(errs...)
}

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

func execute(args []string, stdout, stderr io.Writer) int {
	cfg := config{keys: 1_000_000, valueSize: 256, changed: 1000, revisions: 100_000, page: 10_000, clients: []int{1, 10}}
	flags := pflag.NewFlagSet("catchup", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.SortFlags = false
	flags.IntVar(&cfg.keys, "keys", cfg.keys, "number of `keys`")
	flags.IntVar(&cfg.valueSize, "value-size", cfg.valueSize, "`bytes` of each value")
	flags.IntVar(&cfg.changed, "changed", cfg.changed, "number of `keys` that change while the clients are away; one in a hundred of them is deleted")
	flags.IntVar(&cfg.revisions, "revisions", cfg.revisions, "number of `revisions` that the clients miss")
	flags.IntVar(&cfg.page, "page", cfg.page, "number of `keys` per page of etcd's list")
	flags.IntSliceVar(&cfg.clients, "clients", cfg.clients, "`numbers` of clients that return at the same time")
	flags.StringVar(&cfg.cachenode, "cachenode", "", "`path` of the program (default: built from this repository)")
	flags.StringVar(&cfg.dir, "dir", "", "`directory` for data and logs, kept afterwards (default: a temporary one, kept after a failure)")
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
	rows, err := run(ctx, cfg)
	if err != nil {
		fmt.Fprintln(stderr, "data and logs:", cfg.dir)
		return fail(stderr, 1, err)
	}
	table(stdout, cfg, rows)
	if !keep {
		if err := os.RemoveAll(cfg.dir); err != nil {
			return fail(stderr, 1, err)
		}
	}
	return 0
}

func fail(stderr io.Writer, code int, err error) int {
	fmt.Fprintln(stderr, "catchup:", err)
	return code
}

// table prints the results; ratios are relative to etcd's list by the same number of clients.
func table(out io.Writer, cfg config, rows []row) {
	fmt.Fprintf(out, "%d keys of %d bytes; away for %d revisions, which changed %d keys.\n\n", cfg.keys, cfg.valueSize, cfg.revisions, cfg.changed)
	fmt.Fprintln(out, "| way | clients | bytes each | of a list | CPU each | of a list | etcd behind | wall |")
	fmt.Fprintln(out, "|---|---:|---:|---:|---:|---:|---:|---:|")
	lists := make(map[int]row)
	for _, r := range rows {
		if r.way.name == listWay {
			lists[r.clients] = r
		}
		base, n := lists[r.clients], int64(r.clients)
		fmt.Fprintf(out, "| %s | %d | %s | %.4f | %v | %.4f | %v | %v |\n", r.way.name, r.clients,
			size(r.bytes/n), float64(r.bytes)/float64(base.bytes),
			(r.cpu / time.Duration(n)).Round(100*time.Microsecond), float64(r.cpu)/float64(base.cpu),
			(r.behind / time.Duration(n)).Round(100*time.Microsecond), r.wall.Round(time.Millisecond))
	}
}

func size(n int64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
