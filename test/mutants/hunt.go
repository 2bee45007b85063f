package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Result is the outcome of one mutant's tests.
type Result struct {
	Mutant
	// By is the first test that failed; empty: the mutant survived.
	By string
	// Took is the time of the build and of the tests.
	Took time.Duration
}

// Hunter builds and runs the tests of mutants. Its methods may be called
// concurrently.
type Hunter struct {
	// Root is the module's directory, Dir the directory for overlays and test binaries; both
	// absolute.
	Root, Dir string

	mu   sync.Mutex
	took map[string]time.Duration // guarded by mu; of each test without a bug, by package and name
}

// Time limits of tests.
const (
	// soundLimit is the limit for all tests of a package without a bug.
	soundLimit = 5 * time.Minute
	// A mutant's tests may take longer than without a bug before they count as hanging: another
	// mutant may be built on the same machine.
	leastLimit, limitFactor = 20 * time.Second, 5
)

// Sound returns an error if one of the tests fails or is missing without a bug:
// such a test would kill any mutant.
func (h *Hunter) Sound(ctx context.Context, pkg string, among []Mutant) error {
	tests := testsOf(pkg, among)
	bin := h.path("sound", pkg)
	defer os.Remove(bin)
	if err := h.build(ctx, pkg, bin); err != nil {
		return err
	}
	by, out, err := h.run(ctx, pkg, bin, strings.Join(tests, "|"), soundLimit)
	switch {
	case err != nil:
		return err
	case by != "":
		return fmt.Errorf("%s fails in %s without a bug:\n%s", by, pkg, out)
	}
	for _, name := range tests {
		m := regexp.MustCompile(`(?m)^--- PASS: ` + name + ` \((\S+)\)`).FindStringSubmatch(out)
		if m == nil {
			return fmt.Errorf("%s of %s did not run:\n%s", name, pkg, out)
		}
		took, err := time.ParseDuration(m[1])
		if err != nil {
			return fmt.Errorf("%s of %s: %w", name, pkg, err)
		}
		h.keep(pkg+" "+name, took)
	}
	return nil
}

func (h *Hunter) keep(test string, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.took == nil {
		h.took = make(map[string]time.Duration)
	}
	h.took[test] = took
}

// limit returns the time after which a mutant's tests count as hanging.
func (h *Hunter) limit(m Mutant) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	limit := leastLimit
	for name := range strings.SplitSeq(m.Tests, "|") {
		limit += limitFactor * h.took[m.Package+" "+name]
	}
	return limit
}

// Hunt builds the mutant's package with the bug and runs its tests. Tests that take more than 20 s
// and five times as long as in Sound count as hanging, which kills the mutant.
func (h *Hunter) Hunt(ctx context.Context, m Mutant) (Result, error) {
	began := time.Now()
	text, err := m.Apply(h.Root)
	if err != nil {
		return Result{}, err
	}
	file, overlay, bin := h.path(m.Name, "mutated.go"), h.path(m.Name, "overlay.json"), h.path(m.Name, "test")
	for _, name := range []string{file, overlay, bin} {
		defer os.Remove(name)
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(h.Root, m.File): file}})
	if err != nil {
		return Result{}, err
	}
	if err := errors.Join(os.WriteFile(file, text, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return Result{}, err
	}
	if err := h.build(ctx, m.Package, bin, "-overlay", overlay); err != nil {
		return Result{}, fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	by, _, err := h.run(ctx, m.Package, bin, m.Tests, h.limit(m))
	return Result{Mutant: m, By: by, Took: time.Since(began)}, err
}

func (h *Hunter) path(name, kind string) string {
	return filepath.Join(h.Dir, strings.ReplaceAll(name+"-"+kind, "/", "-"))
}

func (h *Hunter) build(ctx context.Context, pkg, bin string, flags ...string) error {
	// Linking without debug information takes a third less time.
	args := append([]string{"test", "-c", "-ldflags=-w", "-o", bin}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = h.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// run runs tests, and returns the first failed one. All tests together have a time limit.
func (h *Hunter) run(ctx context.Context, pkg, bin, tests string, limit time.Duration) (failed, out string, err error) {
	cmd := exec.CommandContext(ctx, bin, "-test.run", "^("+tests+")$", "-test.timeout", limit.String(), "-test.failfast", "-test.v")
	cmd.Dir = filepath.Join(h.Root, pkg)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err = cmd.Run()
	out = b.String()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", out, ctx.Err()
	case err == nil && !strings.Contains(out, "--- PASS"):
		return "", out, fmt.Errorf("no test of %s is called %s", pkg, tests)
	case err == nil:
		return "", out, nil
	case !errors.As(err, &exit):
		return "", out, fmt.Errorf("run the tests of %s: %w", pkg, err)
	}
	return first(out), out, nil
}

// first returns the name of the first failed test in the output of tests.
func first(out string) string {
	if m := regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`).FindStringSubmatch(out); m != nil {
		return m[1]
	}
	// A test that panics or hangs does not report its failure.
	if all := regexp.MustCompile(`(?m)^=== (?:RUN|CONT)\s+(\S+)`).FindAllStringSubmatch(out, -1); all != nil {
		return all[len(all)-1][1] + " (panics or hangs)"
	}
	return "the tests end at once"
}
