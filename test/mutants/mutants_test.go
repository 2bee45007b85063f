package mutants_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/test/mutants"
)

const root = "../.."

// A mutant must be updated when its code or the name of its test changes: otherwise
// `make mutants` tests less than it reports.
func TestEveryMutantApplies(t *testing.T) {
	all := mutants.All()
	seen := make(map[string]bool)
	explained := 0
	for _, m := range all {
		if err := m.Check(root); err != nil {
			t.Error(err)
		}
		if seen[m.Name] {
			t.Errorf("two mutants are called %s", m.Name)
		}
		if seen[m.Name] = true; m.Equivalent != "" {
			explained++
		}
	}
	if explained*20 > len(all) {
		t.Errorf("%d of %d mutants are called equivalent, want 5%% at most", explained, len(all))
	}
}

func TestAMutantThatDoesNotApplyIsReported(t *testing.T) {
	sound := mutants.All()[0]
	for want, change := range map[string]func(m *mutants.Mutant){
		"occurs 0 times in " + sound.File:     func(m *mutants.Mutant) { m.Old = "no such text" },
		" times in " + sound.File:             func(m *mutants.Mutant) { m.Old = "return" },
		"changes nothing":                     func(m *mutants.Mutant) { m.New = m.Old },
		"is not Go":                           func(m *mutants.Mutant) { m.New = "}}" },
		"no such file":                        func(m *mutants.Mutant) { m.File = "internal/none.go" },
		"has no test TestThatDoesNotExist":    func(m *mutants.Mutant) { m.Tests += "|TestThatDoesNotExist" },
		"lacks a name, a description or its ": func(m *mutants.Mutant) { m.Bug = "" },
	} {
		m := sound
		change(&m)
		if err := m.Check(root); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// This test runs some of them; `make mutants` runs all.
func TestSomeMutantsAreKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tests of some packages")
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	h := &mutants.Hunter{Root: abs, Dir: t.TempDir()}
	some := slices.DeleteFunc(mutants.All(), func(m mutants.Mutant) bool {
		return !slices.Contains([]string{"duplicate-at-change-over", "progress-before-events", "epoch-reset"}, m.Name)
	})
	if len(some) != 3 {
		t.Fatalf("%d of three mutants are there", len(some))
	}
	for _, m := range some {
		if err := h.Sound(t.Context(), m.Package, some); err != nil {
			t.Fatal(err)
		}
		if r, err := h.Hunt(t.Context(), m); err != nil {
			t.Fatal(err)
		} else if r.By == "" {
			t.Errorf("%s survives, though it %s", m.Name, m.Bug)
		}
	}
	// What changes nothing that a test sees survives, and what does not compile or
	// has no test is an error: neither is a kill.
	m := some[2]
	m.New = m.Old + "\n\t\t\t_ = s"
	if r, err := h.Hunt(t.Context(), m); err != nil || r.By != "" {
		t.Errorf("%+v, %v", r, err)
	}
	m.New = "s.NoSuchField++"
	if _, err := h.Hunt(t.Context(), m); err == nil || !strings.Contains(err.Error(), "build the tests") {
		t.Errorf("got %v, want an error of the build", err)
	}
	if m = some[2]; m.Tests != "" {
		m.Tests = "TestThatDoesNotExist"
	}
	if _, err := h.Hunt(t.Context(), m); err == nil {
		t.Error("a test that does not exist ran")
	}
}
