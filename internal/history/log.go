package history

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// log is a chain of files of one kind, of one shard. Nobody else writes them.
type log struct {
	dir  string
	name string // "window" or "deletes"
	cfg  *Config

	files []file // the oldest first
	out   output // the last of files, while it is written to; or nil
	salt  uint64 // of out
	after kv.Revision
	buf   []byte // records that are not in out yet
	done  kv.Revision
	// Everything in (files[0].after, written] is in the files.
	written  kv.Revision
	appended int64 // bytes
}

// file is one of a log.
type file struct {
	number uint64
	after  kv.Revision
	size   int64
}

// output is a file that is written to. Tests have some that fail.
type output interface {
	io.WriteCloser
	Truncate(size int64) error
	Sync() error
}

// Sizes of what is written.
const (
	chunkBytes  = 1 << 20  // is written at a time
	deletesEach = 1 << 10  // in one record
	mostFile    = 8 << 20  // a file is closed at this size, or at an eighth of the log's bound
	leastFile   = 64 << 10 // and not below this one
	mostHeader  = 64 << 10 // bytes of a header; the ends of its range are keys
)

func (l *log) path(number uint64) string {
	return filepath.Join(l.dir, fmt.Sprintf("%s-%08d", l.name, number))
}

// find returns the numbers of the files in a shard's directory that are of a
// log, in order.
func find(dir, name string) ([]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, e := range entries {
		if digits, ok := strings.CutPrefix(e.Name(), name+"-"); ok {
			if n, err := strconv.ParseUint(digits, 10, 64); err == nil {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// bytes returns what the files hold.
func (l *log) bytes() (n int64) {
	for _, f := range l.files {
		n += f.size
	}
	return n
}

// reach starts the log again when there is a gap between what it has and
// floor, from which on there is more.
func (l *log) reach(floor kv.Revision) error {
	if len(l.files) > 0 && l.written >= floor-1 {
		return nil
	}
	return l.restart(floor - 1)
}

// restart forgets all that there is: what comes begins behind a revision that
// is not in it.
func (l *log) restart(after kv.Revision) error {
	err := l.close()
	for len(l.files) > 0 {
		if e := l.dropOldest(); e != nil {
			return errors.Join(err, e)
		}
	}
	l.written, l.done = after, after
	return err
}

func (l *log) dropOldest() error {
	if err := os.Remove(l.path(l.files[0].number)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l.files = slices.Delete(l.files, 0, 1)
	return nil
}

// trim drops files that hold nothing from floor on, and the oldest ones while
// the log has more than most bytes.
func (l *log) trim(floor kv.Revision, most int64) error {
	for len(l.files) > 1 && (l.files[1].after < floor || l.bytes() > most) {
		if err := l.dropOldest(); err != nil {
			return err
		}
	}
	return nil
}

// open begins a file, unless one is open that is not full yet.
func (l *log) open(h header, most int64) error {
	full := min(mostFile, max(leastFile, most/8))
	if l.out != nil && l.files[len(l.files)-1].size < full {
		return nil
	}
	if err := l.close(); err != nil {
		return err
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	f := file{number: 1, after: l.written}
	if n := len(l.files); n > 0 {
		f.number = l.files[n-1].number + 1
	}
	h.salt, h.after = salt(), l.written
	out, err := l.cfg.create(l.path(f.number))
	if err != nil {
		return err
	}
	l.out, l.salt, l.after, l.buf, l.done = out, h.salt, h.after, l.buf[:0], l.written
	l.files = append(l.files, f)
	l.buf = appendHeader(l.buf, h)
	return l.flush()
}

func salt() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// add adds a record to the open file: everything up to progress is in it then.
func (l *log) add(ctx context.Context, k kind, progress kv.Revision, body func([]byte) []byte) error {
	offset := uint64(l.files[len(l.files)-1].size) + uint64(len(l.buf)) //nolint:gosec // sizes
	b, at := begin(l.buf, k)
	l.buf = seal(body(b), at, l.salt, offset)
	l.done = progress
	if len(l.buf) < chunkBytes {
		return nil
	}
	n := len(l.buf)
	if err := l.flush(); err != nil {
		return err
	}
	return l.cfg.Pace(ctx, n)
}

// flush writes what was added. When that fails the file ends where it ended
// before, and is closed: the next one goes on from there.
func (l *log) flush() error {
	if len(l.buf) == 0 {
		return nil
	}
	last := &l.files[len(l.files)-1]
	_, err := l.out.Write(l.buf)
	if err == nil {
		last.size += int64(len(l.buf))
		l.appended += int64(len(l.buf))
		l.buf, l.written = l.buf[:0], l.done
		return nil
	}
	l.buf, l.done = l.buf[:0], l.written
	empty := last.size == 0
	if !empty {
		err = errors.Join(err, l.out.Truncate(last.size))
	}
	err = errors.Join(err, l.out.Close())
	l.out = nil
	if empty {
		_ = os.Remove(l.path(last.number)) // no header: it is nothing either way
		l.files = l.files[:len(l.files)-1]
	}
	return err
}

// close closes the open file; all of it is on the disk then.
func (l *log) close() error {
	if l.out == nil {
		return nil
	}
	err := l.flush()
	if l.out == nil {
		return err
	}
	err = errors.Join(l.out.Sync(), l.out.Close())
	l.out = nil
	return err
}

// end notes that nothing else happened up to progress, writes all that was
// added and drops what is not needed from floor on.
func (l *log) end(ctx context.Context, h header, progress, floor kv.Revision, most int64) error {
	if progress > max(l.done, l.written) || len(l.files) == 0 {
		if err := l.open(h, most); err != nil {
			return err
		}
		if err := l.add(ctx, kindProgress, progress, func(b []byte) []byte { return appendRevision(b, progress) }); err != nil {
			return err
		}
	}
	if err := l.flush(); err != nil {
		return err
	}
	return l.trim(floor, most)
}

// readHeader reads the header of a file, and its size.
func readHeader(path string) (h header, size int64, err error) {
	f, err := os.Open(path) //nolint:gosec // our own directory
	if err != nil {
		return header{}, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return header{}, 0, err
	}
	head := make([]byte, min(mostHeader, info.Size()))
	if _, err := io.ReadFull(f, head); err != nil {
		return header{}, 0, err
	}
	s, _, err := decode(head)
	if err != nil {
		return header{}, 0, err
	}
	return s.header, info.Size(), nil
}
