package mutants_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/test/mutants"
)

const root = "../.."

// Every mutant has its seam, and every seam its mutant.
func TestMutantsAndSeamsAreTheSame(t *testing.T) {
	seam := regexp.MustCompile(`mutant\.On\("([a-z-]+)"\)`)
	var planted, listed []string
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range seam.FindAllSubmatch(text, -1) {
			planted = append(planted, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants.All() {
		listed = append(listed, m.Name)
	}
	slices.Sort(planted)
	slices.Sort(listed)
	if !slices.Equal(planted, listed) {
		t.Errorf("planted: %v\nlisted:  %v", planted, listed)
	}
	if len(slices.Compact(listed)) < 15 {
		t.Errorf("%d mutants", len(listed))
	}
}

// A few of them; `make mutants` hunts all.
func TestSomeMutantsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tests of some packages")
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	h := &mutants.Hunter{Root: abs, Dir: t.TempDir()}
	few := []string{"watermark-from-header", "fragment-applied-early", "fetch-joined-late", "epoch-reset", "progress-before-events", "transaction-torn"}
	for _, m := range mutants.All() {
		if !slices.Contains(few, m.Name) {
			continue
		}
		if err := h.Sound(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		c, err := h.Hunt(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if c.By == "" {
			t.Errorf("nobody caught %s, which %s", m.Name, m.Bug)
		}
	}
	// Whoever asks for a bug that there is not has caught nothing.
	nobody := mutants.All()[0]
	nobody.Name = "no-such-bug"
	if c, err := h.Hunt(t.Context(), nobody); err != nil || c.By != "" {
		t.Errorf("%+v, %v", c, err)
	}
	nobody.Run = "^TestThatThereIsNot$"
	if _, err := h.Hunt(t.Context(), nobody); err == nil {
		t.Error("a test that there is not ran")
	}
}
