package site_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSiteIsBuilt builds the documentation site: with a page for each entry point and a search
// index, and not if a link of a page leads nowhere.
func TestSiteIsBuilt(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() // the repository, with docs of its own
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "docs" || e.Name() == "site" {
			err = os.CopyFS(filepath.Join(dir, e.Name()), os.DirFS(filepath.Join(root, e.Name())))
		} else {
			err = os.Symlink(filepath.Join(root, e.Name()), filepath.Join(dir, e.Name()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	build := func(out string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "tools", "site"), out)
		if os.Getenv("TOOLS") == "" {
			cmd.Env = append(os.Environ(), "TOOLS="+filepath.Join(cache, "shardwatch"))
		}
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	out := t.TempDir()
	text, err := build(out)
	if err == nil && strings.Contains(text, "was NOT built") {
		t.Skip(text)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, file := range []string{"index.html", "etcd-compatibility.html", "client.html", "install.html", "search/search_index.json"} {
		if _, err := os.Stat(filepath.Join(out, file)); err != nil {
			t.Error(err)
		}
	}
	page := filepath.Join(dir, "docs", "index.md")
	was, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"[page](none.md)", "[anchor](install.md#none)", "[file](../none.txt)"} {
		if err := os.WriteFile(page, append(was[:len(was):len(was)], wrong...), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := build(t.TempDir()); err == nil || !strings.Contains(text, "none") {
			t.Errorf("%s: %v\n%s", wrong, err, text)
		}
	}
}
