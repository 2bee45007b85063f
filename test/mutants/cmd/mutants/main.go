// Command mutants builds the product with one bug at a time and checks that the tests fail.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/shardwatch/shardwatch/test/mutants"
)

// least is the share of mutants, in percent, that the tests must kill.
const least = 95

const usage = `mutants builds the product with one bug at a time and runs the tests that must find
it. Each bug is a text replacement in test/mutants/table_*.go; it names the package and the
tests that fail with it. The sources stay as they are: the compiler reads the replaced file
through an overlay.

The tests first run without a bug: a test that fails then would kill every mutant. Then a
table shows for each mutant the test that killed it and the time, including the build. A
surviving mutant shows a missing test. A mutant that no test can distinguish from the product is
marked as equivalent, with the reason, and does not count.

Usage, in the root of the repository:
  go run ./test/mutants/cmd/mutants [flags]

Examples:
  # All of them
  make mutants

  # The mutants of a package, and one more by its name
  go run ./test/mutants/cmd/mutants --only internal/cache,epoch-reset

Flags:
%s
Exit codes: 0 the tests kill at least %d %% of the mutants; 1 they kill fewer, a test fails
without a bug, a mutant is wrongly marked as equivalent, or the run could not continue; 2 wrong
flags.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("mutants", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	names := flags.StringSlice("only", nil, "`names` of mutants or of packages, such as internal/cache (default: all)")
	jobs := flags.Int("jobs", 2, "`number` of mutants to build and test concurrently")
	help := flags.BoolP("help", "h", false, "this text")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		if err == nil {
			err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
		}
		return fail(stderr, 2, fmt.Errorf("%w; see --help", err))
	}
	if *help {
		fmt.Fprintf(stdout, usage, flags.FlagUsages(), least)
		return 0
	}
	chosen, err := choose(*names)
	if err != nil {
		return fail(stderr, 2, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := hunt(ctx, chosen, *jobs, stdout); err != nil {
		return fail(stderr, 1, err)
	}
	return 0
}

func fail(stderr io.Writer, code int, err error) int {
	fmt.Fprintln(stderr, "mutants:", err)
	return code
}

// choose returns the mutants with one of the names or in a package with one of them; without names
// it returns all.
func choose(names []string) ([]mutants.Mutant, error) {
	chosen := slices.DeleteFunc(mutants.All(), func(m mutants.Mutant) bool {
		return len(names) > 0 && !slices.Contains(names, m.Name) && !slices.Contains(names, path.Dir(m.File))
	})
	if len(chosen) == 0 {
		return nil, fmt.Errorf("--only: no mutant and no package is called %s", strings.Join(names, " or "))
	}
	return chosen, nil
}

// hunt tests the mutants, several concurrently, and prints a table of the results. It fails if too
// many survive.
func hunt(ctx context.Context, chosen []mutants.Mutant, jobs int, out io.Writer) (err error) {
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "shardwatch-mutants-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	h := &mutants.Hunter{Root: root, Dir: dir}
	if err := sound(ctx, h, chosen, jobs); err != nil {
		return err
	}
	fmt.Fprintf(out, "| mutant | bug | killed by | in |\n|---|---|---|--:|\n")
	var killed, survived, explained int
	var wrong []string
	err = each(ctx, chosen, jobs, func(m mutants.Mutant) (hunted, error) {
		r, err := h.Hunt(ctx, m)
		r.Mutant = m
		return hunted{r, err}, ctx.Err()
	}, func(r hunted) {
		by := "`" + r.Package + "`: " + r.By
		switch {
		case r.err != nil: // the other mutants are still tested
			by = "**error**"
			wrong = append(wrong, r.err.Error())
		case r.By == "" && r.Equivalent != "":
			by, explained = "equivalent: "+r.Equivalent, explained+1
		case r.By == "":
			by, survived = "**survived**", survived+1
		case r.Equivalent != "":
			wrong = append(wrong, fmt.Sprintf("%s is marked as equivalent but fails %s", r.Name, r.By))
		default:
			killed++
		}
		fmt.Fprintf(out, "| `%s` | %s | %s | %v |\n", r.Name, r.Bug, by, r.Took.Round(100*time.Millisecond))
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d killed, %d survived, %d equivalent: %.1f %%\n", killed, survived, explained, 100*float64(killed)/float64(max(1, killed+survived)))
	switch {
	case len(wrong) > 0:
		return errors.New(strings.Join(wrong, "; "))
	case killed*100 < least*(killed+survived):
		return fmt.Errorf("the tests kill less than %d %% of the mutants: write the missing tests", least)
	}
	return nil
}

// hunted is a mutant's result, or the reason why there is none.
type hunted struct {
	mutants.Result
	err error
}

// sound runs the tests of each package without a bug.
func sound(ctx context.Context, h *mutants.Hunter, chosen []mutants.Mutant, jobs int) error {
	var packages []string
	for _, m := range chosen {
		packages = append(packages, m.Package)
	}
	slices.Sort(packages)
	return each(ctx, slices.Compact(packages), jobs, func(pkg string) (string, error) {
		return pkg, h.Sound(ctx, pkg, chosen)
	}, func(string) {})
}

// each calls do for all items, several concurrently, and done with the results in sequence. It
// returns the first error.
func each[T, R any](ctx context.Context, items []T, jobs int, do func(T) (R, error), done func(R)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan T)
	for range max(1, jobs) {
		wg.Go(func() {
			for item := range next {
				r, err := do(item)
				mu.Lock()
				if err != nil {
					cancel(err)
				} else {
					done(r)
				}
				mu.Unlock()
			}
		})
	}
	for _, item := range items {
		if ctx.Err() != nil {
			break
		}
		next <- item
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}
