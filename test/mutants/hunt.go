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
	// Root is the module's directory, absolute; Dir is for what is built.
	Root, Dir string
}

// Sound returns an error if one of the tests fails or is missing without a bug:
// such a test would kill any mutant.
func (h *Hunter) Sound(ctx context.Context, pkg string, among []Mutant) error {
	tests := testsOf(pkg, among)
	bin := h.path("sound", pkg)
	defer os.Remove(bin)
	if err := h.build(ctx, pkg, bin); err != nil {
		return err
	}
	by, out, err := h.run(ctx, pkg, bin, strings.Join(tests, "|"))
	switch {
	case err != nil:
		return err
	case by != "":
		return fmt.Errorf("%s fails in %s without a bug:\n%s", by, pkg, out)
	}
	for _, name := range tests {
		if !strings.Contains(out, "--- PASS: "+name+" ") {
			return fmt.Errorf("%s of %s did not run:\n%s", name, pkg, out)
		}
	}
	return nil
}

// Hunt builds the mutant's package with the bug in it and runs its tests.
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
	by, _, err := h.run(ctx, m.Package, bin, m.Tests)
	return Result{Mutant: m, By: by, Took: time.Since(began)}, err
}

func (h *Hunter) path(name, kind string) string {
	return filepath.Join(h.Dir, strings.ReplaceAll(name+"-"+kind, "/", "-"))
}

func (h *Hunter) build(ctx context.Context, pkg, bin string, flags ...string) error {
	// Without debug information it links in two thirds of the time.
	args := append([]string{"test", "-c", "-ldflags=-w", "-o", bin}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = h.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// run runs tests, and returns the first that failed.
func (h *Hunter) run(ctx context.Context, pkg, bin, tests string) (failed, out string, err error) {
	cmd := exec.CommandContext(ctx, bin, "-test.run", "^("+tests+")$", "-test.timeout", "2m", "-test.failfast", "-test.v")
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

// first returns the name of the first test that failed, in the output of tests.
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
