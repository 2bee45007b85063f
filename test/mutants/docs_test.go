package mutants_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/test/mutants"
)

// The page has every mutant.
func TestThePageHasEveryMutant(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "chaos.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants.All() {
		if !strings.Contains(string(page), "| `"+m.Name+"` | "+m.Bug+" |") {
			t.Errorf("docs/chaos.md has no row for %s, which %s", m.Name, m.Bug)
		}
	}
}
