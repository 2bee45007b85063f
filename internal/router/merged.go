package router

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Bounds of merged windows.
const (
	// maxMerged bounds their number. Watches over further sets of shards merge separately.
	maxMerged = 64
	// mergedBytes bounds a merged window, in bytes of batches. The shards' windows share
	// the batches and hold them longer: a merged window has at most half the bytes of the
	// smallest of these windows, and keeps no batch longer than any of them.
	mergedBytes = 2 << 20
)

// merged is a merged window, shared by the watches over the same shards: a cache with the
// revisions of all these shards, whose source is the shards' caches. One goroutine merges
// them. A watch is a watcher of this window as of a shard's window: it is woken once per
// revision, at the same cost for any number of shards.
//
// The window is short. A watch that is below it merges the shards separately until it
// has caught up. See Watch.
type merged struct {
	homes  []home
	window *cache.Cache
	stop   context.CancelFunc
	users  int                  // guarded by the router's mu
	held   atomic.Pointer[held] // nil: the merge holds no revision back
}

// held is a revision that some shards have delivered and others have not yet reached.
type held struct {
	revision kv.Revision
	since    time.Time
}

// home is the source of one shard for a watch: a cache that has the watch's part of it.
type home struct {
	shard   shard.ID
	cache   *cache.Cache
	rng     kv.Range // the watch's part of the shard
	whole   kv.Range // the shard
	release func()   // releases a relay; may be nil
}

// merged returns the merged window of the homes' shards, which are several, or nil when
// they cannot have one. The caller ends its use with leave.
func (r *Router) merged(homes []home) *merged {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := homes[0].cache
	for _, m := range r.windows[first] {
		if m.isOf(homes) {
			m.users++
			return m
		}
	}
	if r.ended || r.nWindows == maxMerged || slices.ContainsFunc(homes, func(h home) bool { return !h.cache.Range().Covers(h.whole) }) {
		return nil
	}
	m := &merged{homes: make([]home, len(homes)), users: 1}
	cfg := cache.Config{
		Range: kv.Range{Start: homes[0].whole.Start, End: homes[len(homes)-1].whole.End}, Lineage: first.Lineage(),
		Source: m, Stateless: true, WindowBytes: r.perWindow, WindowTime: math.MaxInt64, Logger: r.cfg.Logger,
	}
	for i, h := range homes {
		m.homes[i] = home{shard: h.shard, cache: h.cache, rng: h.whole, whole: h.whole}
		bytes, age := h.cache.WindowBounds()
		cfg.WindowBytes, cfg.WindowTime = min(cfg.WindowBytes, bytes/2), min(cfg.WindowTime, age)
	}
	cfg.Seed = cache.Empty(m.start()) // so that it serves at once
	m.window = cache.New(cfg)
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background()) // until the last watch leaves, or a shard ends
	r.merging.Go(func() { _ = m.window.Run(ctx) })         // ends with ctx only
	r.windows[first] = append(r.windows[first], m)
	r.nWindows++
	return m
}

// isOf reports whether the window merges the homes' shards.
func (m *merged) isOf(homes []home) bool {
	return slices.EqualFunc(m.homes, homes, func(a, b home) bool { return a.cache == b.cache && a.whole == b.whole })
}

// leave ends a use of a merged window.
func (r *Router) leave(m *merged) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.users--; m.users > 0 {
		return
	}
	m.stop()
	first := m.homes[0].cache
	others := slices.DeleteFunc(r.windows[first], func(x *merged) bool { return x == m })
	if r.windows[first] = others; len(others) == 0 {
		delete(r.windows, first)
	}
	r.nWindows--
}

// endMerged ends all merged windows, and waits for their end. No new ones begin after it.
func (r *Router) endMerged() {
	r.mu.Lock()
	r.ended = true
	for _, list := range r.windows {
		for _, m := range list {
			m.stop()
		}
	}
	r.mu.Unlock()
	r.merging.Wait()
}

// part returns the homes for a watch of rng.
func (m *merged) part(rng kv.Range) []home {
	homes := slices.Clone(m.homes)
	for i := range homes {
		homes[i].rng, _ = homes[i].whole.Intersect(rng)
	}
	return homes
}

// behind returns the shard that is furthest behind, and the revision of the shard that is
// furthest ahead.
func (m *merged) behind() (behind shard.ID, furthest kv.Revision) {
	lowest := kv.Revision(math.MaxInt64)
	for i := range m.homes {
		reached := m.homes[i].cache.Progress()
		if furthest = max(furthest, reached); reached < lowest {
			lowest, behind = reached, m.homes[i].shard
		}
	}
	return behind, furthest
}

// reached returns the revision that all shards have reached.
func (m *merged) reached() kv.Revision {
	lowest := kv.Revision(math.MaxInt64)
	for i := range m.homes {
		lowest = min(lowest, m.homes[i].cache.Progress())
	}
	return lowest
}

// age returns the age of the shard whose data is oldest.
func (m *merged) age() (time.Duration, bool) {
	return oldest(len(m.homes), func(i int) (time.Duration, bool) { return m.homes[i].cache.Age() })
}

// Follow implements cache.Source: it merges the shards. When the cache of one of them
// retires, so does the window, and the router finds new sources for its watches.
func (m *merged) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		f := &following{m: m, bell: wait.NewBell(), at: req.From - 1}
		if req.From == 0 {
			f.at = m.start()
		}
		defer f.close()
		defer req.Want.Serve(f.at, m.demand)()
		err := f.run(ctx, func(u kv.Update) bool { return yield(u, nil) })
		if errors.Is(err, cache.ErrRetired) {
			m.stop()
		}
		if err != nil {
			yield(kv.Update{}, err)
		}
	}
}

// start returns a revision after which the windows of all shards are complete.
func (m *merged) start() kv.Revision {
	at, floor := kv.Revision(math.MaxInt64), kv.Revision(0)
	for i := range m.homes {
		at, floor = min(at, m.homes[i].cache.Progress()), max(floor, m.homes[i].cache.Floor())
	}
	return max(at, floor-1)
}

// following fills a merged window. One goroutine uses it.
type following struct {
	m     *merged
	merge *merge
	bell  wait.Bell   // wakes the goroutine
	at    kv.Revision // the window has all events up to it
	next  *arrival    // of all shards at a revision above at
	read  []*kv.Event // scratch
}

// arrival rings the bell once, when all shards have reached a revision or are retired.
// Each of their caches calls Wake once.
type arrival struct {
	revision kv.Revision
	missing  atomic.Int32
	bell     wait.Bell
	forget   []func()
}

// Wake implements cache.Waker.
func (a *arrival) Wake() {
	if a.missing.Add(-1) == 0 {
		a.bell.Wake()
	}
}

// run merges until it fails, ctx ends or yield returns false.
func (f *following) run(ctx context.Context, yield func(kv.Update) bool) error {
	var err error
	if f.merge, _, err = newMerge(f.m.homes, f.at+1, f.bell); err != nil {
		return err
	}
	if !yield(kv.Update{Kind: kv.UpdateBegin, Revision: f.at, Floor: f.at + 1}) || !yield(kv.Update{Kind: kv.UpdateReady}) {
		return nil
	}
	for {
		if more, err := f.fill(yield); err != nil || !more {
			return err
		}
		f.await()
		if !wait.For(ctx, f.bell) {
			return nil
		}
	}
}

// fill yields the deliverable events, and the progress of the shard that is furthest
// behind. It reports whether yield accepts more.
func (f *following) fill(yield func(kv.Update) bool) (more bool, err error) {
	for {
		revision, events, err := f.merge.next(f.read[:0])
		if err != nil {
			return false, err
		}
		f.read = events
		if revision == 0 {
			break
		}
		f.at = revision
		if !yield(kv.Update{Kind: kv.UpdateBatch, Revision: revision, Batch: f.batch(revision, events)}) {
			return false, nil
		}
		clear(events)
	}
	if cap(f.read) > maxRead {
		f.read = nil
	}
	if progress := f.merge.progress(); progress > f.at {
		f.at = progress
		return yield(kv.Update{Kind: kv.UpdateProgress, Revision: progress}), nil
	}
	return true, nil
}

// maxRead bounds the reused scratch, in events.
const maxRead = 1 << 10

// batch returns the events of a revision as one batch: the shard's own events if a whole batch
// of one shard is delivered, otherwise copies that share its keys and values.
func (f *following) batch(revision kv.Revision, events []*kv.Event) kv.Batch {
	out := kv.Batch{Revision: revision}
	for i := range f.merge.cursors {
		if f.merge.cursors[i].gave != revision {
			continue
		}
		b := f.merge.cursors[i].watcher.Batch(revision)
		if b == nil { // evicted from the shard's window meanwhile
			continue
		}
		out.Received = earlier(out.Received, b.Received)
		if len(b.Events) == len(events) && events[0] == &b.Events[0] { // else they are of several shards, or a part
			out.Events = b.Events
		}
	}
	if out.Received.IsZero() { // as above
		out.Received = time.Now()
	}
	if out.Events == nil {
		out.Events = make([]kv.Event, len(events))
		for i, e := range events {
			out.Events[i] = *e
		}
	}
	return out
}

// await arranges for the bell to ring when all shards have passed at. If a revision is held
// back, it asks the shards that have not reached it.
func (f *following) await() {
	if f.next == nil || f.next.revision <= f.at {
		a := &arrival{revision: f.at + 1, bell: f.bell}
		a.missing.Store(int32(len(f.m.homes))) //nolint:gosec // the shards of a range
		for i := range f.m.homes {
			a.forget = append(a.forget, f.m.homes[i].cache.NotifyAt(a.revision, a))
		}
		f.next = a
	}
	revision := f.merge.held()
	if revision == 0 {
		f.m.held.Store(nil)
		return
	}
	if h := f.m.held.Load(); h == nil || h.revision != revision {
		f.m.held.Store(&held{revision: revision, since: time.Now()})
	}
	f.m.demand(revision)
}

// demand asks the shards for a revision that they have not reached. Any goroutine may call it.
func (m *merged) demand(revision kv.Revision) {
	for i := range m.homes {
		m.homes[i].cache.Demand(revision)
	}
}

// close withdraws the requests to the shards.
func (f *following) close() {
	if f.merge != nil {
		f.merge.close()
	}
	if f.next != nil {
		callAll(f.next.forget)
	}
	f.m.held.Store(nil)
}

func callAll(list []func()) {
	for _, f := range list {
		f()
	}
}

// HoldingBack returns how long merged windows have waited for each cache to reach a
// revision that others have delivered. Caches that hold back no watch are left out.
func (r *Router) HoldingBack() map[*cache.Cache]time.Duration {
	out := make(map[*cache.Cache]time.Duration)
	for _, m := range r.allMerged() {
		h := m.held.Load()
		if h == nil {
			continue
		}
		for i := range m.homes {
			c := m.homes[i].cache
			if reached, _ := c.Reached(h.revision); !reached {
				out[c] = max(out[c], time.Since(h.since))
			}
		}
	}
	return out
}

// Merged counts merged windows and their watches.
type Merged struct {
	Windows int
	// Bytes is the size of the batches in them, which the shards' windows hold, too.
	Bytes int64
	// Readers is the number of watches that read them. Watches is the number per cache that
	// its own status does not count: there, a window counts as one watch.
	Readers int
	Watches map[*cache.Cache]int
}

// Merged counts the merged windows and their watches.
func (r *Router) Merged() Merged {
	out := Merged{Watches: make(map[*cache.Cache]int)}
	for _, m := range r.allMerged() {
		s := m.window.Status()
		out.Windows++
		out.Bytes += s.WindowBytes
		out.Readers += s.Watchers
		for i := range m.homes {
			out.Watches[m.homes[i].cache] += s.Watchers - 1 // without the window's own watcher
		}
	}
	return out
}

func (r *Router) allMerged() (out []*merged) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, list := range r.windows {
		out = append(out, list...)
	}
	return out
}
