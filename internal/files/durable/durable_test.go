package durable

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var errDisk = errors.New("the disk is full")

// A crash after any step leaves the old file or the new file, and a finished change is on
// the disk together with its name.
func TestEveryChangedDirectoryIsSynced(t *testing.T) {
	root := t.TempDir()
	var synced []string
	content := ""
	d := disk{sync: func(path string) error {
		relative, err := filepath.Rel(root, path)
		b, _ := os.ReadFile(filepath.Join(root, "a", "b", "file"))
		synced, content = append(synced, relative), content+string(b)+","
		return errors.Join(err, syncPath(path))
	}}
	dir := filepath.Join(root, "a", "b")
	file := filepath.Join(dir, "file")
	for _, step := range []struct {
		name    string
		do      func() error
		synced  []string
		content string // content of the file at each sync
	}{
		{"make", func() error { return d.makeDir(dir) }, []string{".", "a"}, ",,"},
		{"make again", func() error { return d.makeDir(dir) }, nil, ""},
		{"write", func() error { return d.write(file, []byte("1")) }, []string{"a/b/file.tmp", "a/b"}, ",1,"},
		{"replace", func() error { return d.write(file, []byte("2")) }, []string{"a/b/file.tmp", "a/b"}, "1,2,"},
		{"rename", func() error { return d.rename(file, file+".old") }, []string{"a/b"}, ","},
	} {
		synced, content = nil, ""
		if err := step.do(); err != nil {
			t.Fatal(step.name, err)
		}
		if !slices.Equal(synced, step.synced) || content != step.content {
			t.Errorf("%s: synced %q, the file was %q; want %q, %q", step.name, synced, content, step.synced, step.content)
		}
	}
}

// A change that is not on the disk is an error.
func TestFailedSyncIsReported(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	d := disk{sync: func(string) error { return errDisk }}
	if err := d.write(file, []byte("1")); !errors.Is(err, errDisk) {
		t.Errorf("write: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file was replaced, but may be empty after a crash")
	}
	if err := d.makeDir(filepath.Join(dir, "a")); !errors.Is(err, errDisk) {
		t.Errorf("make: %v", err)
	}
	if err := d.rename(file+".tmp", file); !errors.Is(err, errDisk) {
		t.Errorf("rename: %v", err)
	}
}

// A file is not accepted as a directory.
func TestMakeDirRejectsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := WriteFile(file, []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := MakeDir(filepath.Join(file, "dir")); err == nil {
		t.Error("made a directory in a file")
	}
	if err := MakeDir(file); err == nil {
		t.Error("a file is accepted as a directory")
	}
}
