// Package mutants has the bugs that package mutant plants, and the test that
// must catch each: a test that finds nothing wrong in what is wrong is worth
// nothing.
//
// Read [All] first, then [Hunt].
package mutants

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Mutant is one planted bug.
type Mutant struct {
	// Name is what the seam is called.
	Name string
	// Bug says what it does wrong.
	Bug string
	// Package is whose tests must catch it, under internal/, and Run the tests.
	Package, Run string
}

// Caught is what came of a hunt.
type Caught struct {
	Mutant
	// By is the first test that failed; empty: it was not caught.
	By string
	// Took is how long the tests ran.
	Took time.Duration
}

// Hunter runs mutants through their tests. It builds each package's tests once.
type Hunter struct {
	// Root is the module's directory, Dir where the tests are built.
	Root, Dir string

	built map[string]string // the binary, by package
}

// Sound checks that the tests pass when no bug is on: else they catch anything.
func (h *Hunter) Sound(ctx context.Context, m Mutant) error {
	by, out, err := h.run(ctx, m, "")
	if err == nil && by != "" {
		err = fmt.Errorf("%s fails in %s though no bug is on:\n%s", by, m.Package, out)
	}
	return err
}

// Hunt runs the tests with the bug on.
func (h *Hunter) Hunt(ctx context.Context, m Mutant) (Caught, error) {
	began := time.Now()
	by, _, err := h.run(ctx, m, m.Name)
	return Caught{Mutant: m, By: by, Took: time.Since(began)}, err
}

// run runs a mutant's tests, and returns the first that failed.
func (h *Hunter) run(ctx context.Context, m Mutant, on string) (failed, out string, err error) {
	bin, err := h.build(ctx, m.Package)
	if err != nil {
		return "", "", err
	}
	const limit = 2 * time.Minute
	cmd := exec.CommandContext(ctx, bin, "-test.run", m.Run, "-test.timeout", limit.String(), "-test.failfast", "-test.v")
	cmd.Dir = filepath.Join(h.Root, "internal", m.Package)
	cmd.Env = append(os.Environ(), "SHARDWATCH_MUTANT="+on)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err = cmd.Run()
	out = b.String()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", out, ctx.Err()
	case err == nil && !strings.Contains(out, "--- PASS"):
		return "", out, fmt.Errorf("no test of %s is called %s", m.Package, m.Run)
	case err == nil:
		return "", out, nil
	case !errors.As(err, &exit):
		return "", out, fmt.Errorf("run the tests of %s: %w", m.Package, err)
	}
	return first(out), out, nil
}

// first returns the name of the first test that failed, in the output of tests.
func first(out string) string {
	if m := regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`).FindStringSubmatch(out); m != nil {
		return m[1]
	}
	// Who panics or hangs does not come to say so.
	if all := regexp.MustCompile(`(?m)^=== (?:RUN|CONT)\s+(\S+)`).FindAllStringSubmatch(out, -1); all != nil {
		return all[len(all)-1][1] + " (it panics or hangs)"
	}
	return "the tests end at once"
}

func (h *Hunter) build(ctx context.Context, pkg string) (string, error) {
	if bin := h.built[pkg]; bin != "" {
		return bin, nil
	}
	bin := filepath.Join(h.Dir, strings.ReplaceAll(pkg, "/", "-")+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "mutants", "-o", bin, "./internal/"+pkg)
	cmd.Dir = h.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, out)
	}
	if h.built == nil {
		h.built = map[string]string{}
	}
	h.built[pkg] = bin
	return bin, nil
}
