package shardwatch_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that docs/guarantees.md and docs/security.md name as evidence exist.
func TestDocsNameTests(t *testing.T) {
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
	for file, least := range map[string]int{"docs/guarantees.md": 30, "docs/security.md": 20} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)(?:/[\\w-]+)?`").FindAllStringSubmatch(string(text), -1)
		if len(named) < least {
			t.Errorf("%s names %d tests, fewer than expected", file, len(named))
		}
		for _, m := range named {
			if !there[m[1]] {
				t.Errorf("%s names %s, which does not exist", file, m[1])
			}
		}
	}
}
