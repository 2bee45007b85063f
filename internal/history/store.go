package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Config is what a Store needs.
type Config struct {
	// Dir is where it writes; it is made when there is something to write.
	Dir string
	// MaxBytes bounds the files of all shards, but for what is written at a
	// time: a mebibyte, or one revision.
	MaxBytes int64
	// Pace is called after so many bytes were written and returns when more may
	// be, or with an error of ctx; nil: at once.
	Pace   func(ctx context.Context, bytes int) error
	Logger *slog.Logger

	create func(path string) (output, error) // nil: a real file
}

// Shard is one that is saved.
type Shard struct {
	ID    shard.ID
	Range kv.Range
	// Export returns what the cache has; see cache.Cache.
	Export func() (*cache.Export, error)
}

// Status is what a Store tells about itself.
type Status struct {
	Bytes     int64  // of the files
	Written   int64  // bytes written since the start
	Failed    int64  // times that a shard could not be saved
	Discarded int64  // files or shards that were not of use
	Failing   string // why the last Save failed; "": it did not
}

// Store keeps the history of shards in a directory that is its own. Load, Save
// and Close belong to one goroutine, Status to any.
type Store struct {
	cfg  Config
	logs map[shard.ID]*logs

	mu     sync.Mutex
	status Status // guarded by mu
}

// logs are the two of one shard.
type logs struct {
	origin          Origin
	rng             kv.Range
	window, deletes log
}

// New returns a store. It does nothing yet.
func New(cfg Config) *Store {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Pace == nil {
		cfg.Pace = func(context.Context, int) error { return nil }
	}
	if cfg.create == nil {
		cfg.create = func(path string) (output, error) {
			return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // our own directory
		}
	}
	return &Store{cfg: cfg, logs: make(map[shard.ID]*logs)}
}

// Status returns the store's state as of now.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *Store) note(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

func (s *Store) dir(id shard.ID) string {
	return filepath.Join(s.cfg.Dir, strconv.FormatUint(uint64(id), 10))
}

func (s *Store) newLogs(id shard.ID, o Origin, r kv.Range) *logs {
	l := func(name string) log { return log{dir: s.dir(id), name: name, cfg: &s.cfg} }
	return &logs{origin: o, rng: r, window: l("window"), deletes: l("deletes")}
}

// Save writes what the caches have and the files do not have yet, and drops
// what they have forgotten. The first error of each shard is in the error, which
// the log is told of when it is a new one; what is saved is of use nevertheless.
// ctx ends it between two writes.
func (s *Store) Save(ctx context.Context, o Origin, shards []Shard) error {
	var errs []error
	most := s.cfg.MaxBytes / int64(max(1, len(shards)))
	for _, sh := range shards {
		x, err := sh.Export()
		if err != nil {
			continue // it is being loaded: what is on disk stays
		}
		if err := s.save(ctx, o, sh, x, most); err != nil {
			if ctx.Err() != nil {
				return err
			}
			errs = append(errs, fmt.Errorf("shard %d: %w", sh.ID, err))
		}
	}
	err := errors.Join(errs...)
	s.tell(err, len(errs))
	return err
}

// save writes what is new of one shard.
func (s *Store) save(ctx context.Context, o Origin, sh Shard, x *cache.Export, most int64) error {
	l := s.logs[sh.ID]
	if l == nil || l.origin != o || l.rng != sh.Range {
		if l != nil {
			_ = errors.Join(l.window.close(), l.deletes.close()) // of no use any more
		}
		delete(s.logs, sh.ID)
		if err := os.RemoveAll(s.dir(sh.ID)); err != nil {
			return err
		}
		l = s.newLogs(sh.ID, o, sh.Range)
		s.logs[sh.ID] = l
	}
	before := l.window.appended + l.deletes.appended
	defer func() {
		s.note(func(st *Status) {
			st.Written += l.window.appended + l.deletes.appended - before
			st.Bytes = s.bytes()
		})
	}()
	h := header{origin: o, shard: sh.ID, rng: sh.Range}
	if err := l.saveDeletes(ctx, h, x, most/8); err != nil {
		return err
	}
	return l.saveWindow(ctx, h, x, most-most/8)
}

func (l *logs) saveWindow(ctx context.Context, h header, x *cache.Export, most int64) error {
	w := &l.window
	if err := w.reach(x.Floor); err != nil {
		return err
	}
	for b := range x.Since(w.written) {
		if err := w.open(h, most); err != nil {
			return err
		}
		if err := w.add(ctx, kindBatch, b.Revision, func(out []byte) []byte { return appendBatch(out, b, w.after) }); err != nil {
			return err
		}
	}
	return w.end(ctx, h, x.Snapshot.Revision, x.Floor, most)
}

func (l *logs) saveDeletes(ctx context.Context, h header, x *cache.Export, most int64) error {
	d := &l.deletes
	if err := d.reach(x.DeltaFloor); err != nil {
		return err
	}
	for some := range together(deletes(x, d.written)) {
		if err := d.open(h, most); err != nil {
			return err
		}
		last := some[len(some)-1].Revision
		if err := d.add(ctx, kindDeletes, last, func(out []byte) []byte { return appendDeletes(out, some) }); err != nil {
			return err
		}
	}
	return d.end(ctx, h, x.Snapshot.Revision, x.DeltaFloor, most)
}

// deletes yields the deletes behind a revision, the oldest first.
func deletes(x *cache.Export, since kv.Revision) iter.Seq[kv.Tombstone] {
	return func(yield func(kv.Tombstone) bool) {
		for d := range x.Tombstones() {
			if d.Revision > since && !yield(d) {
				return
			}
		}
		for b := range x.Since(since) {
			for i := range b.Events {
				e := &b.Events[i]
				if e.Type == kv.Delete && !yield(kv.Tombstone{Key: string(e.KV.Key()), Revision: b.Revision}) {
					return
				}
			}
		}
	}
}

// together yields deletes in groups of about a record's size, those of a
// revision in one.
func together(all iter.Seq[kv.Tombstone]) iter.Seq[[]kv.Tombstone] {
	return func(yield func([]kv.Tombstone) bool) {
		var some []kv.Tombstone
		for d := range all {
			if len(some) >= deletesEach && some[len(some)-1].Revision < d.Revision {
				if !yield(some) {
					return
				}
				some = some[:0]
			}
			some = append(some, d)
		}
		if len(some) > 0 {
			yield(some)
		}
	}
}

// Keep removes what is of other shards, once all of these are saved themselves:
// they may have been a part of it.
func (s *Store) Keep(shards []Shard) {
	for _, sh := range shards {
		if l := s.logs[sh.ID]; l == nil || l.rng != sh.Range || len(l.window.files) == 0 {
			return
		}
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.cfg.Logger.Warn("history of shards that are not here any more may be left", "dir", s.cfg.Dir, "error", err)
		return
	}
	for _, e := range entries {
		number, err := strconv.ParseUint(e.Name(), 10, 64)
		id := shard.ID(number)
		if err != nil || slices.ContainsFunc(shards, func(sh Shard) bool { return sh.ID == id }) {
			continue
		}
		if l := s.logs[id]; l != nil {
			_ = errors.Join(l.window.close(), l.deletes.close()) // of no use any more
			delete(s.logs, id)
		}
		if err := os.RemoveAll(s.dir(id)); err != nil {
			s.cfg.Logger.Warn("history of a shard that is not here any more is left", "dir", s.dir(id), "error", err)
		}
	}
}

func (s *Store) bytes() (n int64) {
	for _, l := range s.logs {
		n += l.window.bytes() + l.deletes.bytes()
	}
	return n
}

// tell keeps the outcome of a Save and logs it when it is another than the last.
func (s *Store) tell(err error, failed int) {
	now := ""
	if err != nil {
		var number syscall.Errno
		if now = err.Error(); errors.As(err, &number) {
			now = number.Error() // whatever the file is
		}
	}
	was := ""
	s.note(func(st *Status) {
		was, st.Failing = st.Failing, now
		if err != nil {
			st.Failed += int64(failed)
		}
	})
	switch {
	case now == was:
	case now != "":
		s.cfg.Logger.Warn("history is not written: should all nodes restart now, clients that were away get what has changed, or the whole state", "dir", s.cfg.Dir, "error", err)
	default:
		s.cfg.Logger.Info("history is written again", "dir", s.cfg.Dir)
	}
}

// Close closes the files; what was saved is on the disk then.
func (s *Store) Close() error {
	var errs []error
	for _, l := range s.logs {
		errs = append(errs, l.window.close(), l.deletes.close())
	}
	return errors.Join(errs...)
}
