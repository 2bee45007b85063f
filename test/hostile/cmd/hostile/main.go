// Command hostile runs attacks against a real cache node, and prints the cost of each attack to the
// node and its other clients.
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
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/shardwatch/shardwatch/test/hostile"
)

const usage = `hostile starts an etcd and, for each attack, a cachenode process with the settings and
the memory limit of deploy/k8s/base. A crowd of watches and a reader use the node; the
attack runs in rounds, each between a calm one and a control, in which a process that does
not touch the node uses as much CPU time as the attacker did. It prints the node's peak memory
above rest, the 99th percentiles of the crowd's delays in calm, control and attacked rounds
(the medians of the rounds), the cores that the node and the attacker used, failed probes and
restarts.

The node has half of the machine's cores to itself. The crowd, etcd and the attackers share
the other half, where attackers run only when those cores are idle: a client on another machine takes no
CPU time from the node or its other clients. All CPU time that the node
spends on an attack delays the crowd as it would in production. --apart=false runs all
processes on all cores, which also measures the machine. The command needs taskset and chrt.

Each attack runs without TLS, where every caller may do everything, and with TLS and a
policy, where the attacker has the least right that reaches the code.

Usage:
  go run ./test/hostile/cmd/hostile [flags]

Examples:
  # All attacks
  make hostile

  # One attack, longer
  make hostile ARGS="--only catch-up --rounds 5 --hot 30s"

Attacks:
%s
Flags:
%s
Exit codes: 0 all attacks stayed within the bounds: 256 MiB above rest, twice the crowd's
own 99th percentile, no failed probe, no restart, no answer without a right to it; 1 one did
not, or the run could not continue; 2 wrong flags. The crowd's delays are only as steady as
the machine: the row "none" is a run without an attack, and if the control exceeds the
bound, too, the machine alone causes the delays.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == "attack" { // started by a run; see hostile.Perform
		return fail(stderr, 1, hostile.Perform(context.Background(), os.Stdin, stdout))
	}
	cfg := hostile.Defaults()
	flags := pflag.NewFlagSet("hostile", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.SortFlags = false
	flags.StringSliceVar(&cfg.Attacks, "only", nil, "`attacks` to run, by name (default: all)")
	flags.StringSliceVar(&cfg.Modes, "modes", cfg.Modes, "`modes` to run them in")
	flags.IntVar(&cfg.Rounds, "rounds", cfg.Rounds, "`number` of rounds of each attack")
	flags.DurationVar(&cfg.Calm, "calm", cfg.Calm, "how long the crowd is measured before each round")
	flags.DurationVar(&cfg.Hot, "hot", cfg.Hot, "how long each round attacks; at least 30s if etcd reads its log")
	flags.BoolVar(&cfg.Control, "control", cfg.Control, "measure a control after each attacked round")
	flags.IntVar(&cfg.Watches, "watches", cfg.Watches, "`number` of watches of the crowd")
	flags.IntVar(&cfg.Keys, "keys", cfg.Keys, "`number` of keys of 1 KiB that attackers can list")
	flags.Int64Var(&cfg.MaxMemory, "max-memory", cfg.MaxMemory, "`bytes` that the node's memory may grow above rest")
	flags.Float64Var(&cfg.MaxRatio, "max-ratio", cfg.MaxRatio, "permitted delay of the crowd in `multiples` of its own 99th percentile")
	flags.BoolVar(&cfg.Apart, "apart", cfg.Apart, "give the node half of the cores to itself")
	flags.IntVar(&cfg.Nice, "nice", cfg.Nice, "`niceness` of the attackers; 20: they run only when their cores are idle (SCHED_IDLE). On a machine with other work, at most that work's")
	flags.StringVar(&cfg.Cachenode, "cachenode", "", "`path` of the program (default: built from this repository)")
	dir := flags.String("dir", "", "`directory` for data and logs, kept afterwards (default: a temporary one, kept after a failure)")
	markdown := flags.Bool("markdown", false, "print the table for a page")
	help := flags.BoolP("help", "h", false, "this text")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		if err == nil {
			err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
		}
		return fail(stderr, 2, fmt.Errorf("%w; see --help", err))
	}
	if *help {
		list := ""
		for _, a := range hostile.Attacks() {
			list += fmt.Sprintf("  %-20s %s\n", a.Name, a.About)
		}
		fmt.Fprintf(stdout, usage, list, flags.FlagUsages())
		return 0
	}
	if err := cfg.Validate(); err != nil {
		return fail(stderr, 2, err)
	}
	self, err := os.Executable()
	if err != nil {
		return fail(stderr, 1, err)
	}
	cfg.Program = []string{self, "attack"}
	keep := *dir != ""
	if keep {
		cfg.Dir, err = filepath.Abs(*dir)
		err = errors.Join(err, os.MkdirAll(cfg.Dir, 0o700))
	} else {
		cfg.Dir, err = os.MkdirTemp("", "shardwatch-hostile-")
	}
	if err != nil {
		return fail(stderr, 1, err)
	}
	began := time.Now()
	cfg.Say = func(format string, args ...any) {
		fmt.Fprintf(stderr, "%7.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := hostile.Run(ctx, cfg)
	show := report.Text
	if *markdown {
		show = report.Markdown
	}
	err = errors.Join(err, show(stdout))
	over := report.Exceeded()
	if err == nil && len(over) > 0 {
		err = errors.New("attacks exceeded their bounds")
	}
	for line := range slices.Values(over) {
		fmt.Fprintln(stderr, "EXCEEDED:", line)
	}
	if err != nil {
		fmt.Fprintln(stderr, "data and logs:", cfg.Dir)
		return fail(stderr, 1, err)
	}
	if !keep {
		return fail(stderr, 1, os.RemoveAll(cfg.Dir))
	}
	return 0
}

// fail prints the error, if any, and returns the exit code.
func fail(stderr io.Writer, code int, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "hostile:", err)
	return code
}
