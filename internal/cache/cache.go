package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Source delivers the state and the history of one range. etcd and the stream
// of a peer are sources.
//
// Follow yields updates as kv.FollowRequest and kv.Update describe them, until
// the context ends, the caller breaks the loop, or it fails: then it yields one
// error and ends. A *kv.CompactedError means that it cannot start at From.
type Source interface {
	Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error]
}

// ErrNotReady reports that the cache has not yet loaded its state.
var ErrNotReady = errors.New("the shard is still being loaded")

// Config configures a Cache.
type Config struct {
	// Range is the part of the key space to hold.
	Range kv.Range
	// Source delivers the state and the history of the range.
	Source Source
	// Lineage is the history the source's revisions belong to.
	Lineage uint64
	// Stateless keeps the window only: for a relay, which serves watches and
	// no reads. Previous values are then those that the source sends.
	Stateless bool
	// Seed is the initial state and history; nil: none.
	Seed *Seed
	// History is the known past. The cache joins it with the state and the
	// history that the source sends; nil: none.
	History *Past
	// OtherHistory is called when the source contradicts the cache's contents: one of
	// the two is wrong, or etcd was restored. The cache then keeps its contents.
	// OtherHistory must not block; may be nil.
	OtherHistory func(*kv.ContradictionError)
	// Applied is called with every batch just before readers can see it, so that each
	// reader finds the data that Applied keeps of the batch. It must not block; nil: not
	// called.
	Applied func(*kv.Batch)
	// WindowBytes bounds the window in bytes, WindowTime in time.
	WindowBytes int64
	WindowTime  time.Duration
	// RootsBytes bounds the memory held only for reads at older revisions, RootsTime
	// the age of these revisions.
	RootsBytes int64
	RootsTime  time.Duration
	// TombstoneBytes bounds the deletes that are kept for Changes in bytes,
	// TombstoneTime in time.
	TombstoneBytes int64
	TombstoneTime  time.Duration
	Logger         *slog.Logger
}

// Defaults returns the Config of a production node, without Range and Source.
func Defaults() Config {
	return Config{
		WindowBytes: 256 << 20, WindowTime: 10 * time.Minute,
		RootsBytes: 32 << 20, RootsTime: time.Minute,
		TombstoneBytes: 64 << 20, TombstoneTime: 24 * time.Hour,
	}
}

// Validate returns every mistake in the bounds, joined.
func (c *Config) Validate() error {
	var errs []error
	for _, x := range []struct {
		name string
		bad  bool
		want string
	}{
		{"WindowBytes", c.WindowBytes <= 0, "above 0"},
		{"WindowTime", c.WindowTime <= 0, "above 0"},
		{"RootsBytes", c.RootsBytes < 0, "at least 0"},
		{"RootsTime", c.RootsTime < 0, "at least 0"},
		{"TombstoneBytes", c.TombstoneBytes < 0, "at least 0"},
		{"TombstoneTime", c.TombstoneTime < 0, "at least 0"},
		{"Source", c.Source == nil, "set"},
	} {
		if x.bad {
			errs = append(errs, fmt.Errorf("cache: %s must be %s", x.name, x.want))
		}
	}
	return errors.Join(errs...)
}

// Cache holds one range. Create it with New; Run is its only writer.
type Cache struct {
	cfg   Config
	start time.Time                 // the zero of freshAt
	want  atomic.Pointer[kv.Demand] // the demand of the current Follow
	ready chan struct{}             // closed once the state is loaded

	view    atomic.Pointer[view] // the view that readers use
	settled atomic.Pointer[view] // the newest view whose watchers have all been woken

	wakeups   wakeups
	freshness freshness
	roots     keytree.Versions
	changes   changeLog
	counters  counters

	// Owned by Run.
	tree     *keytree.Tree
	behind   bool // the source could not continue after our progress
	win      window
	trimmed  time.Time
	demanded time.Time // when the source was last reminded
	// The number of early evictions of deletes when they were last logged.
	squeezed   int64
	complained time.Time
}

// view is the data that readers see, as of one moment.
//
// Invariants: root is the state at every revision in [changed, progress]; the
// window holds every batch with floor <= revision <= progress, and none after
// progress.
type view struct {
	win      windowView
	root     *keytree.Tree
	changed  kv.Revision // revision of the newest batch in root
	progress kv.Revision // all events up to it are here
	ready    bool
	retired  bool
}

type counters struct {
	stateBytes atomic.Int64
	// The bytes received so far of the state and history that are being loaded.
	loadedState, loadedWindow, loadedDeletes atomic.Int64

	resets  atomic.Int64
	leaps   atomic.Int64
	batches atomic.Int64
	events  atomic.Int64
	late    atomic.Int64
}

// New returns a cache with the contents of cfg.Seed. Run makes it follow
// cfg.Source.
func New(cfg Config) *Cache {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	c := &Cache{
		cfg: cfg, start: time.Now(),
		ready:   make(chan struct{}),
		roots:   keytree.Versions{MaxBytes: cfg.RootsBytes, MaxAge: cfg.RootsTime},
		win:     window{maxBytes: cfg.WindowBytes, maxAge: cfg.WindowTime, next: 1},
		changes: changeLog{maxBytes: cfg.TombstoneBytes, maxAge: cfg.TombstoneTime, byMod: newByMod()},
	}
	c.want.Store(new(kv.Demand))
	v := &view{}
	c.view.Store(v)
	c.settled.Store(v)
	if s := cfg.Seed; s != nil {
		c.inherit(s)
		c.cfg.Seed, c.cfg.History = nil, nil
	}
	return c
}

// Range returns the part of the key space that the cache holds.
func (c *Cache) Range() kv.Range { return c.cfg.Range }

// WindowBounds returns the bounds of the window in bytes and in time.
func (c *Cache) WindowBounds() (bytes int64, age time.Duration) {
	return c.cfg.WindowBytes, c.cfg.WindowTime
}

// Lineage returns the history that the revisions belong to.
func (c *Cache) Lineage() uint64 { return c.cfg.Lineage }

// Ready returns a channel that is closed once the state is loaded.
func (c *Cache) Ready() <-chan struct{} { return c.ready }

// Progress returns the revision up to which the cache has all events; 0 before
// the state is loaded.
func (c *Cache) Progress() kv.Revision { return c.view.Load().progress }

// Floor returns the oldest revision that a watch may start from.
func (c *Cache) Floor() kv.Revision { return c.view.Load().win.floor }
