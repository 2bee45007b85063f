package chaos_test

import (
	"os"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/test/chaos"
)

// The page lists every fault with its current description.
func TestThePageHasEveryFault(t *testing.T) {
	page, err := os.ReadFile("../../docs/chaos.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range chaos.Faults() {
		if !strings.Contains(string(page), "| `"+f.Name+"` | "+f.About+" |") {
			t.Errorf("docs/chaos.md has no row for %s: %s", f.Name, f.About)
		}
	}
}
