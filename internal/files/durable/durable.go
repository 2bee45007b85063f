// Package durable changes files and directories so that a crash of the machine
// leaves the old content or the new one, and so that a finished change survives
// the crash.
//
// A file that was written and synced can still be missing after a crash, because
// its name is in the directory, which is a separate file. So each function also
// syncs the directories that it changes.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// WriteFile replaces the content of a file, which only the owner may read.
func WriteFile(path string, content []byte) error { return disk{sync: syncPath}.write(path, content) }

// Rename renames a file within its directory.
func Rename(from, to string) error { return disk{sync: syncPath}.rename(from, to) }

// MakeDir makes a directory with all its parents, accessible only to the owner.
func MakeDir(path string) error { return disk{sync: syncPath}.makeDir(path) }

// SyncDir waits until the names in a directory are on the disk, for files that
// other code creates.
func SyncDir(path string) error { return syncPath(path) }

// disk does the work; sync waits until a file or directory is on the disk.
type disk struct{ sync func(path string) error }

func (d disk) write(path string, content []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	// The content first: the new name must not refer to an empty file.
	if err := d.sync(tmp); err != nil {
		return err
	}
	return d.rename(tmp, path)
}

func (d disk) rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err //nolint:wrapcheck // it names the deed and both files
	}
	return d.sync(filepath.Dir(to))
}

func (d disk) makeDir(path string) error {
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return err //nolint:wrapcheck // it names the deed and the directory
	}
	parent := filepath.Dir(path)
	if err := d.makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err //nolint:wrapcheck // it names the deed and the directory
	}
	return d.sync(parent)
}

func syncPath(path string) error {
	f, err := os.Open(path) //nolint:gosec // the operator names the data directory
	if err != nil {
		return err //nolint:wrapcheck // it names the deed and the file
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
