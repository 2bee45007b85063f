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
	// maxMerged bounds their number. Watches over further sets of shards merge alone.
	maxMerged = 64
	// mergedBytes bounds one, in bytes of batches. These are shared with the windows
	// of the shards, which hold them longer: a merged window has at most half the bytes
	// of the smallest of them, and keeps nothing for longer.
	mergedBytes = 2 << 20
)

// merged is shared by the watches over the same shards. It is a window of the revisions of
// all these shards, a cache whose source are the shards' caches. One goroutine merges
// them, and a watch is a watcher of the window as it is of a shard's: it is woken once
// for each revision, and costs the same, however many shards there are.
//
// The window is short. A watch that is below it merges the shards on its own until it
// has caught up. See Watch.
type merged struct {
	homes  []home
	window *cache.Cache
	stop   context.CancelFunc
	users  int                  // guarded by the router's mu
	held   atomic.Pointer[held] // nil: all that was taken was delivered
}

// held is a revision that some shards have brought and others have not come to.
type held struct {
	revision kv.Revision
	since    time.Time
}

// home is the cache that has a watch's part of a shard.
type home struct {
	shard   shard.ID
	cache   *cache.Cache
	rng     kv.Range // the watch's part of the shard
	whole   kv.Range // the shard
	release func()   // gives a relay back; may be nil
}

// merged returns the merged window of the homes' shards, of which there are several,
// or nil when they have none. Leave it when it is no longer used.
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
	cfg.Seed = cache.Empty(m.start()) // it serves at once
	m.window = cache.New(cfg)
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background()) // until the last watch leaves, or a shard ends
	r.merging.Go(func() { _ = m.window.Run(ctx) })         // ends with ctx only
	r.windows[first] = append(r.windows[first], m)
	r.nWindows++
	return m
}

// isOf reports whether the window is that of the homes' shards.
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

// endMerged ends all merged windows, and waits for that. No new ones begin after it.
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

// part returns the homes of a watch of rng.
func (m *merged) part(rng kv.Range) []home {
	homes := slices.Clone(m.homes)
	for i := range homes {
		homes[i].rng, _ = homes[i].whole.Intersect(rng)
	}
	return homes
}

// behind returns the shard that is furthest behind, and furthest how far the one is
// that is furthest ahead.
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

// age returns the age of the shard whose data is oldest.
func (m *merged) age() (time.Duration, bool) {
	return oldest(len(m.homes), func(i int) (time.Duration, bool) { return m.homes[i].cache.Age() })
}

// Follow implements cache.Source: it merges the shards. When one of them ends, so does
// the window, and its watches look for the shards' new homes.
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

// start returns a revision after which all shards have every event.
func (m *merged) start() kv.Revision {
	at, floor := kv.Revision(math.MaxInt64), kv.Revision(0)
	for i := range m.homes {
		at, floor = min(at, m.homes[i].cache.Progress()), max(floor, m.homes[i].cache.Floor())
	}
	return max(at, floor-1)
}

// following is the filling of a merged window. One goroutine uses it.
type following struct {
	m     *merged
	merge *merge
	bell  wait.Bell   // wakes the goroutine
	at    kv.Revision // everything up to it is in the window
	next  *arrival    // of all shards at a revision after at
	read  []*kv.Event // scratch
}

// arrival rings the bell once, when all shards have come to a revision or are retired.
// Each of the caches calls it once.
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

// run merges until it fails, ctx ends or the window takes no more.
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

// fill puts into the window the deliverable events, and the progress of the shard that
// is furthest behind. It reports whether the window has room for more.
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

// maxRead bounds the scratch that is used again, in events.
const maxRead = 1 << 10

// batch returns the events of a revision as one batch: that of the shard, if there is
// but one, or else one that shares its keys and values with those of the shards.
func (f *following) batch(revision kv.Revision, events []*kv.Event) kv.Batch {
	out := kv.Batch{Revision: revision}
	for i := range f.merge.cursors {
		if f.merge.cursors[i].gave != revision {
			continue
		}
		b := f.merge.cursors[i].watcher.Batch(revision)
		if b == nil { // it has left the window of the shard since
			continue
		}
		out.Received = earlier(out.Received, b.Received)
		if len(b.Events) == len(events) && events[0] == &b.Events[0] { // else they are of several shards, or a part
			out.Events = b.Events
		}
	}
	if out.Received.IsZero() { // it has left the shard's window since
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

// await has the bell rung when all shards have moved on, and asks those for it that
// hold a revision back.
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

// HoldingBack returns for how long merged windows have been waiting for a cache to come
// to a revision that others have brought; caches that hold back no watch are not in it.
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
	// Bytes are those of the batches in them, which the shards' windows hold, too.
	Bytes int64
	// Readers are the watches that read them; Watches are those of each cache, which
	// are no watchers of its own. A window is one.
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
