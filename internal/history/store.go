package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Config configures a Store.
type Config struct {
	// Dir is the store's directory. It is created at the first write.
	Dir string
	// MaxBytes bounds the file. Half of it is for records.
	MaxBytes int64
	// Pace is called after this many bytes were written, and returns when more may be
	// written, or with an error of ctx; nil: no limit.
	Pace   func(ctx context.Context, bytes int) error
	Logger *slog.Logger

	openFile func(name string, flag int, mode os.FileMode) (*os.File, error) // nil: os.OpenFile
}

// Shares of the bound for records: bbolt needs room between them, and to rewrite pages
// before it frees them. Below the second share the bound is too small to be useful.
const (
	mostShare  = 2
	leastShare = 64
)

// relaxAfter is the number of Saves without a full file after which records may take
// twice as much of the bound again. A failed attempt costs one file.
const relaxAfter = 100

// Shard is a shard to save.
type Shard struct {
	ID    shard.ID
	Range kv.Range
	// Export returns the cache's content; see cache.Cache.
	Export func() (*cache.Export, error)
}

// Status is the state of a Store, for metrics.
type Status struct {
	Bytes     int64  // of the file
	Written   int64  // bytes of records written since the start
	Failed    int64  // failed saves of a shard
	Discarded int64  // files, shards or ends of segments that could not be used
	Failing   string // error of the last Save; "": none
}

// Store keeps the history of shards in its own directory. One goroutine calls Load,
// Save and Close; any may call Status.
type Store struct {
	cfg  Config
	db   *bbolt.DB          // nil: not open
	logs map[shard.ID]*logs // the index of the file; nil: not known
	// share is the divisor of the bound that yields the bytes for records.
	share  int64
	fitted int // Saves since the file was full, or since share was lowered

	mu     sync.Mutex
	status Status // guarded by mu
}

// New returns a store. It does nothing yet.
func New(cfg Config) *Store {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Pace == nil {
		cfg.Pace = func(context.Context, int) error { return nil }
	}
	return &Store{cfg: cfg, share: mostShare}
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

// Save writes the new batches and deletes of the caches, and drops evicted ones. It logs an
// error once; records saved before the error stay usable. ctx ends it between two writes.
func (s *Store) Save(ctx context.Context, o Origin, shards []Shard) error {
	saved, err := s.saveAll(ctx, o, shards)
	for again := false; errors.Is(err, bolterrors.ErrMaxSizeReached) && (!again || s.share < leastShare); again = true {
		s.fitted = 0
		if again { // records are large for the bound
			s.share *= 2
		}
		s.cfg.Logger.Info("the history file is full and is rewritten from memory", "file", s.path(), "max_bytes", s.cfg.MaxBytes)
		if err = s.renew(); err == nil {
			saved, err = s.saveAll(ctx, o, shards)
		}
	}
	if s.fitted++; err == nil && s.fitted >= relaxAfter { // the large records may be gone
		s.share, s.fitted = max(mostShare, s.share/2), 0
	}
	if errors.Is(err, errDamaged) {
		err = errors.Join(err, s.setAside(err))
	}
	s.noteBytes()
	if err != nil {
		s.logs = nil // uncommitted writes are lost
		if ctx.Err() != nil {
			return err
		}
	}
	s.tell(err, len(shards)-saved)
	return err
}

// noteBytes stores the size of the file in the status.
func (s *Store) noteBytes() {
	var size int64
	if info, err := os.Stat(s.path()); err == nil {
		size = info.Size()
	}
	s.note(func(st *Status) { st.Bytes = size })
}

// saveAll saves shards, and returns the number of saved ones.
func (s *Store) saveAll(ctx context.Context, o Origin, shards []Shard) (saved int, err error) {
	if err := s.prepare(); err != nil {
		return 0, err
	}
	w := s.newWriter(ctx)
	err = guard(func() error {
		defer w.rollback()
		most := s.cfg.MaxBytes / s.share / int64(max(1, len(shards)))
		for _, sh := range shards {
			x, err := sh.Export()
			if err != nil {
				saved++ // it is being loaded: its saved history stays
				continue
			}
			if err := w.save(o, sh, x, most); err != nil {
				return fmt.Errorf("shard %d: %w", sh.ID, err)
			}
			saved++
		}
		return w.commit()
	})
	return saved, err
}

// prepare opens the file and indexes it.
func (s *Store) prepare() error {
	if err := s.open(); err != nil {
		return err
	}
	if info, err := os.Stat(s.path()); err == nil && info.Size() > s.cfg.MaxBytes { // the bound was lowered
		if err := errors.Join(s.renew(), s.open()); err != nil {
			return err
		}
	}
	if s.logs != nil {
		return nil
	}
	return s.look()
}

// Keep removes the history of all shards but these, once these are saved: they may come from the
// removed ones.
func (s *Store) Keep(shards []Shard) {
	for _, sh := range shards {
		if l := s.logs[sh.ID]; l == nil || l.rng != sh.Range || len(l.window.segments) == 0 {
			return
		}
	}
	for id := range s.logs {
		if slices.ContainsFunc(shards, func(sh Shard) bool { return sh.ID == id }) {
			continue
		}
		if err := s.remove(id); err != nil {
			s.cfg.Logger.Warn("the history of a removed shard stays on disk", "shard", id, "error", err)
			if errors.Is(err, errDamaged) {
				s.abandon() // the next Save sets the file aside
			}
			return
		}
	}
}

// Forget removes the saved history of a shard, because its copy was found to be wrong. After an
// error the caller retries.
func (s *Store) Forget(id shard.ID) error {
	err := s.prepare()
	if err == nil && s.logs[id] != nil {
		err = s.remove(id)
	}
	if errors.Is(err, errDamaged) {
		s.abandon() // the next Save sets the file aside
	}
	return err
}

// remove removes all data of a shard.
func (s *Store) remove(id shard.ID) error {
	delete(s.logs, id)
	return guard(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketName(id)) })
	})
}

// tell stores the result of a Save, and logs it when it differs from the last one.
func (s *Store) tell(err error, failed int) {
	now := ""
	if err != nil {
		var number syscall.Errno
		if now = err.Error(); errors.As(err, &number) {
			now = number.Error() // regardless of the file
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
		s.cfg.Logger.Warn("history is not written: if all nodes restart now, clients that resume get a delta or the whole state", "dir", s.cfg.Dir, "error", err)
	default:
		s.cfg.Logger.Info("history is written again", "dir", s.cfg.Dir)
	}
}

// discard counts and logs a part of the saved history that is not used.
func (s *Store) discard(what string, why error) {
	s.note(func(st *Status) { st.Discarded++ })
	s.cfg.Logger.Warn("history on disk is not used", "dir", s.cfg.Dir, "what", what, "reason", why)
}

// Close closes the file. It may be called twice.
func (s *Store) Close() error {
	err := s.close()
	s.forget()
	return err
}
