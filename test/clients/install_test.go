package clients_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// errBroken marks what fails for a fault of the client, and not for want of packages.
var errBroken = errors.New("the client does not build")

// installed returns a directory with a copy of clients/NAME that fill has installed. It is
// kept in the user's cache under a hash of the sources, and appears by a rename. The test is
// skipped when a tool is missing or a package cannot be had, and fails when fill returns
// errBroken.
func installed(t *testing.T, name string, tools []string, fill func(dir string) error) string {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here: %v", tool, err)
		}
	}
	source := filepath.Join("..", "..", "clients", name)
	sum := sha256.New()
	err := filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "node_modules" || d.Name() == "dist" || strings.HasSuffix(d.Name(), ".egg-info")) {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(b), b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	path := filepath.Join(cache, "shardwatch", fmt.Sprintf("client-%s-%x", name, sum.Sum(nil)[:8]))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	part, err := os.MkdirTemp(filepath.Dir(path), "part-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(part)
	if err := os.CopyFS(filepath.Join(part, "source"), os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	if err := fill(part); errors.Is(err, errBroken) {
		t.Fatal(err)
	} else if err != nil {
		t.Skipf("the packages of the %s client cannot be had: %v", name, err)
	}
	if err := os.Rename(part, path); err != nil {
		if _, there := os.Stat(path); there != nil { // and not by another run
			t.Fatal(err)
		}
	}
	return path
}

// build is in, for a command that needs nothing from outside.
func build(dir, name string, args ...string) error {
	if err := in(dir, name, args...); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil
}

// in runs a command in a directory. Without a network, package managers try for minutes.
func in(dir, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
