// Command mutants plants bugs, one after the other, and checks that the tests
// catch each.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/shardwatch/shardwatch/test/mutants"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1) //nolint:gocritic // all is done
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := pflag.NewFlagSet("mutants", pflag.ContinueOnError)
	names := flags.StringSlice("only", nil, "`names` of mutants (default: all)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "shardwatch-mutants-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	h := &mutants.Hunter{Root: ".", Dir: dir}
	var free []string
	sound := map[string]bool{}
	fmt.Fprintf(out, "| mutant | what it does wrong | caught by | in |\n|---|---|---|--:|\n")
	for _, m := range mutants.All() {
		if len(*names) > 0 && !slices.Contains(*names, m.Name) {
			continue
		}
		if tests := m.Package + " " + m.Run; !sound[tests] {
			if err := h.Sound(ctx, m); err != nil {
				return err
			}
			sound[tests] = true
		}
		c, err := h.Hunt(ctx, m)
		if err != nil {
			return err
		}
		by := "`" + m.Package + "`: " + c.By
		if c.By == "" {
			by = "**nobody**"
			free = append(free, m.Name)
		}
		fmt.Fprintf(out, "| %s | %s | %s | %v |\n", m.Name, m.Bug, by, c.Took.Round(100*time.Millisecond))
	}
	if len(free) > 0 {
		return fmt.Errorf("not caught: %s", strings.Join(free, ", "))
	}
	return nil
}
