package shardwatch_test

import (
	"os"
	"strings"
	"testing"
)

// TestReadmesProgram compares the Go program of the README with test/readme, which the
// compiler checks.
func TestReadmesProgram(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("test/readme/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(readme), "```go\n")
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		t.Fatal("README.md has no block of Go")
	}
	indented := "\t" + strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n\t") + "\n}\n"
	if !strings.HasSuffix(string(program), indented) {
		t.Errorf("README.md has another program than test/readme/main.go: change both\n%s", block)
	}
}
