package history

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// format is the version of the file. An incompatible format gets another number and so
// another file: a node that is rolled back finds its own file.
const format = 1

// fileName returns the name of the file of a format.
func fileName(format int) string { return fmt.Sprintf("history-%d.db", format) }

// damagedSuffix is added to the name of a file that was set aside. There is at most one
// such file.
const damagedSuffix = ".damaged"

// lockTimeout is how long to wait until an ending process releases the file.
const lockTimeout = time.Second

// errFormat reports that the file is of another version.
var errFormat = errors.New("of an unknown format")

func (s *Store) path() string { return filepath.Join(s.cfg.Dir, fileName(format)) }

// guard calls fn, which uses the database, and returns errDamaged when bbolt cannot read the file:
// bbolt panics then, or reads memory that the file does not back. The database must not be used
// after that; see abandon.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}()
	return fn()
}

// open opens the file for writing. It creates a missing file, and sets a damaged one
// aside.
func (s *Store) open() error {
	if s.db != nil {
		return nil
	}
	if err := makeDir(s.cfg.Dir); err != nil {
		return err
	}
	err := s.openFile(false)
	if errors.Is(err, errDamaged) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EISDIR) {
		if aside := s.setAside(err); aside != nil {
			return aside
		}
		err = s.openFile(false)
	}
	if err != nil {
		return err
	}
	return syncDir(s.cfg.Dir) // the file may be new
}

// openFile opens the file and fails if it is damaged. It creates a missing file unless readOnly.
func (s *Store) openFile(readOnly bool) error {
	return guard(func() error {
		db, err := bbolt.Open(s.path(), 0o600, &bbolt.Options{
			Timeout: lockTimeout, ReadOnly: readOnly, MaxSize: int(s.cfg.MaxBytes),
			FreelistType: bbolt.FreelistMapType, NoStatistics: true, OpenFile: s.cfg.openFile,
		})
		if err != nil {
			return sortOpen(s.path(), err)
		}
		s.db = db
		if err := guard(func() error { return checkFormat(db) }); err != nil {
			s.abandon()
			return fmt.Errorf("%s: %w", s.path(), err)
		}
		return nil
	})
}

// sortOpen distinguishes a damaged file from one that cannot be opened now.
func sortOpen(path string, err error) error {
	var number syscall.Errno
	switch {
	case errors.As(err, &number):
		return err
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s is used by another process: %w", path, err)
	case errors.Is(err, bolterrors.ErrVersionMismatch):
		return fmt.Errorf("%s: %w: bbolt's %w: move it away, or run the version that wrote it", path, errFormat, err)
	}
	return fmt.Errorf("%w: %s: %w", errDamaged, path, err)
}

// formatKey is the key of the format's number, and of its bucket.
const formatKey = "format"

// sealFormat returns the value with a file's format. It has a checksum, so that a
// changed byte is not taken for another version.
func sealFormat(format int) []byte {
	return seal(place{}, []byte(formatKey), fmt.Append(nil, format))
}

// checkFormat fails unless the database has this format. It writes the format to a new database.
func checkFormat(db *bbolt.DB) error {
	var found []byte
	empty := true
	err := db.View(func(tx *bbolt.Tx) error {
		if first, _ := tx.Cursor().First(); first != nil {
			empty = false
		}
		if b := tx.Bucket([]byte(formatKey)); b != nil {
			found = bytes.Clone(b.Get([]byte(formatKey)))
		}
		return nil
	})
	if err != nil || empty && db.IsReadOnly() {
		return err
	}
	if !empty {
		is, err := unseal(place{}, []byte(formatKey), found)
		if err == nil && string(is) != fmt.Sprint(format) {
			err = fmt.Errorf("%w: %q, not %d: move it away, or run the version that wrote it", errFormat, is, format)
		}
		return err
	}
	return db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte(formatKey))
		if err != nil {
			return err
		}
		return b.Put([]byte(formatKey), sealFormat(format))
	})
}

// setAside renames the damaged file, so that a new one can be written; why is the damage. The
// caches keep the history that they have loaded from it.
func (s *Store) setAside(why error) error {
	s.abandon()
	aside := s.path() + damagedSuffix
	if err := os.Rename(s.path(), aside); err != nil {
		return errors.Join(why, err)
	}
	s.discard(aside, why)
	return syncDir(s.cfg.Dir)
}

// forget drops the database and the index of its content.
func (s *Store) forget() { s.db, s.logs = nil, nil }

// abandon closes a damaged database. bbolt may have panicked while it held its own
// locks. Then Close blocks forever, so the call and the file are abandoned after
// lockTimeout.
func (s *Store) abandon() {
	db := s.db
	s.forget()
	if db == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = guard(db.Close) // its content is not needed
	}()
	select {
	case <-closed:
	case <-time.After(lockTimeout):
	}
}

// renew removes the full file; the relevant data is in memory.
func (s *Store) renew() error {
	err := s.close()
	s.forget()
	return errors.Join(err, os.Remove(s.path()), syncDir(s.cfg.Dir))
}

// close closes the database, if it is open.
func (s *Store) close() error {
	if s.db == nil {
		return nil
	}
	return guard(s.db.Close)
}

// others returns the names of files and directories of other formats.
func (s *Store) others() (out []string) {
	entries, _ := os.ReadDir(s.cfg.Dir) // opening the file reports the error
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, fileName(format)) {
			out = append(out, name)
		}
	}
	return out
}

// makeDir creates a directory durably.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// syncDir syncs a directory to the disk, so that creations, renames and removals in it
// survive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // our own directory
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
