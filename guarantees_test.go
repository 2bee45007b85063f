package shardwatch_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A promise is held by tests that exist.
func TestGuaranteesNameTests(t *testing.T) {
	text, err := os.ReadFile("docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 30 {
		t.Fatalf("%d tests are named", len(named))
	}
	there := make(map[string]bool)
	decl := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	if err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		for _, m := range decl.FindAllStringSubmatch(string(src), -1) {
			there[m[1]] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, m := range named {
		if !there[m[1]] {
			t.Errorf("docs/guarantees.md names %s, which does not exist", m[1])
		}
	}
}
