package cache

import (
	"container/heap"
	"context"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Source brings one range's state and history. etcd is one, a peer's stream
// another.
//
// Follow yields updates as kv.FollowRequest and kv.Update describe them, until
// the context ends, the caller breaks off, or it fails: then it yields one
// error and ends. A *kv.CompactedError says that it cannot start at From.
type Source interface {
	Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error]
}

// ErrNotReady says that the cache has not yet loaded its state.
var ErrNotReady = errors.New("the shard is still being loaded")

// Config is what a Cache needs.
type Config struct {
	// Range is the part of the key space to hold.
	Range kv.Range
	// Source brings it.
	Source Source
	// Lineage is the history the source's revisions belong to.
	Lineage uint64
	// Stateless keeps the window only: for a relay, which serves watches and
	// no reads. Previous values then are those the source sends.
	Stateless bool
	// Seed is what to start with; nil: nothing.
	Seed *Seed
	// WindowBytes bounds the window in bytes, WindowTime in time.
	WindowBytes int64
	WindowTime  time.Duration
	// RootsBytes bounds what is held only for reads at older revisions,
	// RootsTime how old these may be.
	RootsBytes int64
	RootsTime  time.Duration
	Logger     *slog.Logger
}

// Defaults returns the Config of a production node, without Range and Source.
func Defaults() Config {
	return Config{
		WindowBytes: 64 << 20, WindowTime: 15 * time.Minute,
		RootsBytes: 32 << 20, RootsTime: time.Minute,
	}
}

// Cache holds one range. Create it with New; Run is its only writer.
type Cache struct {
	cfg   Config
	start time.Time // the zero of freshAt
	want  chan kv.Revision
	ready chan struct{} // closed once the state is there

	view    atomic.Pointer[view] // what readers see
	settled atomic.Pointer[view] // the newest view whose watchers have all been woken

	mu      sync.Mutex
	index   index   // guarded by mu
	waiting waiters // guarded by mu

	freshness freshness
	roots     rootLog
	counters  counters

	// Owned by Run.
	tree    *tree
	win     window
	woken   []*Watcher // scratch
	trimmed time.Time
}

// view is all that readers see, of one moment.
//
// Invariants: root is the state at every revision in [changed, progress]; the
// window holds every batch with floor <= revision <= progress, and may be
// ahead of progress by nothing.
type view struct {
	win      windowView
	root     *tree
	changed  kv.Revision // revision of the newest batch in root
	progress kv.Revision // everything up to it is here
	ready    bool
	retired  bool
}

type counters struct {
	stateBytes atomic.Int64
	resets     atomic.Int64
	batches    atomic.Int64
	events     atomic.Int64
	late       atomic.Int64
}

// New returns a cache that holds what cfg.Seed holds and follows cfg.Source
// once it runs.
func New(cfg Config) *Cache {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cache{
		cfg: cfg, start: time.Now(),
		want: make(chan kv.Revision, 1), ready: make(chan struct{}),
		roots: rootLog{maxBytes: cfg.RootsBytes, maxAge: cfg.RootsTime},
		win:   window{maxBytes: cfg.WindowBytes, maxAge: cfg.WindowTime, next: 1},
	}
	v := &view{}
	c.view.Store(v)
	c.settled.Store(v)
	if s := cfg.Seed; s != nil {
		c.load(s.tree, s.batches, s.floor, s.progress)
		c.cfg.Seed = nil
	}
	return c
}

// Range returns the part of the key space that is held.
func (c *Cache) Range() kv.Range { return c.cfg.Range }

// Lineage returns the history that the revisions belong to.
func (c *Cache) Lineage() uint64 { return c.cfg.Lineage }

// Ready is closed once the state is loaded.
func (c *Cache) Ready() <-chan struct{} { return c.ready }

// Progress returns the revision up to which everything is here; 0 before the
// state is.
func (c *Cache) Progress() kv.Revision { return c.view.Load().progress }

// Floor returns the oldest revision that a watch may start from.
func (c *Cache) Floor() kv.Revision { return c.view.Load().win.floor }

// Run follows the source until ctx ends, then retires the cache: its watchers
// get ErrRetired.
func (c *Cache) Run(ctx context.Context) error {
	defer c.retire()
	const shortest, longest = 50 * time.Millisecond, time.Second
	pause := shortest
	for {
		began := time.Now()
		err := c.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var compacted *kv.CompactedError
		if errors.As(err, &compacted) {
			c.cfg.Logger.Warn("history is gone at the source: loading the state again; watchers behind the new floor are told",
				"range", c.cfg.Range, "requested", compacted.Requested, "floor", compacted.Floor)
			c.tree = nil // follow starts from nothing
			continue
		}
		if time.Since(began) > longest {
			pause = shortest
		}
		c.cfg.Logger.Debug("source ended", "range", c.cfg.Range, "error", err)
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, longest)
	}
}

// follow applies what the source brings until it ends.
func (c *Cache) follow(ctx context.Context) error {
	req := kv.FollowRequest{Range: c.cfg.Range, Lineage: c.cfg.Lineage, Want: c.want}
	if c.tree != nil {
		req.From = c.view.Load().progress + 1
	}
	var l loading
	for u, err := range c.cfg.Source.Follow(ctx, req) {
		if err != nil {
			return err
		}
		switch u.Kind {
		case kv.UpdateBegin:
			l = loading{resumed: req.From > 0, revision: u.Revision, floor: u.Floor}
			if !l.resumed {
				l.tree = newTree()
			}
		case kv.UpdateState:
			for _, item := range u.KVs {
				l.tree.Load(item)
			}
		case kv.UpdateHistory:
			b := u.Batch
			l.batches = append(l.batches, &b)
		case kv.UpdateReady:
			if !l.resumed {
				c.load(l.tree, l.batches, l.floor, l.revision)
				req.From = l.revision + 1 // what begins after this is a resume
			}
			l = loading{}
		case kv.UpdateBatch:
			c.apply(&u.Batch)
		case kv.UpdateProgress:
			c.advance(u.Revision)
			if !u.FreshAt.IsZero() {
				c.freshness.confirm(u.FreshAt.Sub(c.start))
			}
		}
	}
	return ctx.Err()
}

// loading is a state on its way in.
type loading struct {
	resumed         bool
	tree            *tree
	batches         []*kv.Batch
	revision, floor kv.Revision
}

// load replaces all there is. Watchers from before have a gap, and are told.
func (c *Cache) load(t *tree, batches []*kv.Batch, floor, revision kv.Revision) {
	first := c.tree == nil && !c.view.Load().ready
	if !first {
		c.counters.resets.Add(1)
	}
	c.tree = t
	c.roots.clear()
	before := c.win.next
	c.win.reset(floor)
	var changed kv.Revision
	for _, b := range batches {
		c.win.append(b)
		changed = b.Revision
	}
	c.win.evict(time.Now())
	var bytes int64
	t.Scan(func(item *kv.KeyValue) bool {
		bytes += int64(item.Size())
		changed = max(changed, item.ModRevision())
		return true
	})
	c.counters.stateBytes.Store(bytes)
	v := &view{win: c.win.view(), root: t.Copy(), changed: changed, progress: revision, ready: true}
	c.view.Store(v)
	c.wakeAll(before) // below the new window: they have a gap
	c.settle(v)
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
}

// apply adds one revision.
func (c *Cache) apply(b *kv.Batch) {
	old := c.view.Load()
	if b.Revision <= old.progress {
		// Two sources at a change-over may both bring it. Never twice.
		c.counters.late.Add(1)
		return
	}
	var replaced, grown int64
	if !c.cfg.Stateless {
		for i := range b.Events {
			e := &b.Events[i]
			var prev *kv.KeyValue
			if e.Type == kv.Delete {
				prev, _ = c.tree.Delete(e.KV)
			} else {
				prev, _ = c.tree.Set(e.KV)
				grown += int64(e.KV.Size())
			}
			e.Prev = prev
			replaced += rootOverhead
			if prev != nil {
				replaced += int64(prev.Size())
				grown -= int64(prev.Size())
			}
		}
		c.counters.stateBytes.Add(grown)
		c.roots.push(old.changed, old.root, replaced, b.Received)
	}
	c.counters.batches.Add(1)
	c.counters.events.Add(int64(len(b.Events)))

	seq := c.win.next
	c.win.append(b)
	c.win.evict(b.Received)
	v := &view{win: c.win.view(), root: old.root, changed: b.Revision, progress: b.Revision, ready: true}
	if !c.cfg.Stateless {
		v.root = c.tree.Copy()
	}
	c.view.Store(v)
	c.wakeMatching(b, seq)
	c.settle(v)
}

// advance notes progress.
func (c *Cache) advance(revision kv.Revision) {
	old := c.view.Load()
	now := time.Now()
	if now.Sub(c.trimmed) > time.Second {
		c.trimmed = now
		c.win.evict(now)
		c.roots.trim(now)
	} else if revision <= old.progress {
		return
	}
	v := *old
	v.win = c.win.view()
	v.progress = max(old.progress, revision)
	c.view.Store(&v)
	c.settle(&v)
}

// wakeMatching wakes the idle watchers whose range the batch touches.
func (c *Cache) wakeMatching(b *kv.Batch, seq uint64) {
	c.mu.Lock()
	if c.index.count > 0 {
		for i := range b.Events {
			c.index.find(b.Events[i].KV.Key(), func(e *watchers) {
				for _, w := range e.list {
					if w.wakeFor(seq) {
						c.woken = append(c.woken, w)
					}
				}
			})
		}
	}
	c.mu.Unlock()
	c.callWoken()
}

// wakeAll wakes every idle watcher at position seq, to be told something.
func (c *Cache) wakeAll(seq uint64) {
	c.mu.Lock()
	c.index.all(func(e *watchers) {
		for _, w := range e.list {
			if w.wakeFor(seq) {
				c.woken = append(c.woken, w)
			}
		}
	})
	c.mu.Unlock()
	c.callWoken()
}

// callWoken calls the wakers outside the lock.
func (c *Cache) callWoken() {
	for i, w := range c.woken {
		w.waker.Wake()
		c.woken[i] = nil
	}
	c.woken = c.woken[:0]
	if cap(c.woken) > 1<<16 {
		c.woken = nil
	}
}

// settle says that everybody concerned by v has been woken, and wakes those
// who wait for its progress.
func (c *Cache) settle(v *view) {
	c.settled.Store(v)
	c.freshness.reached(v.progress)
	for {
		c.mu.Lock()
		if len(c.waiting) == 0 || (c.waiting[0].revision > v.progress && !v.retired) {
			c.mu.Unlock()
			return
		}
		w := heap.Pop(&c.waiting).(*waiter) //nolint:forcetypeassert // ours alone
		c.mu.Unlock()
		w.waker.Wake()
	}
}

// retire ends the cache. What it holds stays readable for Split.
func (c *Cache) retire() {
	v := *c.view.Load()
	v.retired = true
	c.view.Store(&v)
	c.wakeAll(v.win.next) // at its end: idle, they have seen everything
	c.settle(&v)
}

// At returns the state at exactly revision, or at the cache's progress when it
// is 0. It waits for progress when the revision is ahead; it fails with a
// *kv.CompactedError when the revision is no longer kept, with ErrRetired,
// ErrNotReady, and the context's error.
func (c *Cache) At(ctx context.Context, revision kv.Revision) (*Snapshot, error) {
	if c.view.Load().progress < revision {
		if err := c.WaitProgress(ctx, revision); err != nil {
			return nil, err
		}
	}
	v := c.view.Load()
	switch {
	case v.retired:
		return nil, ErrRetired
	case !v.ready || c.cfg.Stateless:
		return nil, ErrNotReady
	case revision == 0:
		return &Snapshot{Revision: v.progress, root: v.root}, nil
	case v.changed <= revision:
		return &Snapshot{Revision: revision, root: v.root}, nil
	}
	root, oldest := c.roots.at(revision)
	if root == nil {
		if oldest == 0 {
			oldest = v.changed
		}
		return nil, &kv.CompactedError{Requested: revision, Floor: oldest}
	}
	return &Snapshot{Revision: revision, root: root}, nil
}

// Export is a consistent cut of the cache: what another one needs to become
// its equal.
type Export struct {
	Snapshot *Snapshot
	Floor    kv.Revision
	window   windowView
}

// Export returns the cache's content at its present progress. It fails with
// ErrRetired and ErrNotReady.
func (c *Cache) Export() (*Export, error) {
	v := c.view.Load()
	switch {
	case v.retired:
		return nil, ErrRetired
	case !v.ready:
		return nil, ErrNotReady
	}
	return &Export{Snapshot: &Snapshot{Revision: v.progress, root: v.root}, Floor: v.win.floor, window: v.win}, nil
}

// History returns the batches of the window, oldest first.
func (x *Export) History() iter.Seq[*kv.Batch] {
	return func(yield func(*kv.Batch) bool) {
		for seq := x.window.first; seq < x.window.next; seq++ {
			if !yield(x.window.at(seq).Batch) {
				return
			}
		}
	}
}
