package cache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// store is a model of etcd: all revisions, and the state at each of them. It is a Source
// with the permitted faults of sources: it breaks off, sends batches twice, and compacts.
type store struct {
	keys  []string
	moves int // the number of random steps before it becomes quiet

	mu      sync.RWMutex
	current kv.Revision                          // guarded by mu
	batches map[kv.Revision]map[string]change    // guarded by mu; revisions that touch the range
	order   []kv.Revision                        // guarded by mu; keys of batches
	states  map[kv.Revision]map[string]*versions // guarded by mu; by revision in order
	now     map[string]*versions                 // guarded by mu
	quiet   bool                                 // guarded by mu; there are no further revisions

	rng *rand.Rand // owned by Follow
}

// change is the change of one key.
type change struct{ is, was *versions }

// versions is one version of a key; nil: none.
type versions struct {
	mod   kv.Revision
	value string
}

func newStore(rng *rand.Rand, keys, moves int) *store {
	s := &store{
		rng: rng, moves: moves, current: 1,
		batches: map[kv.Revision]map[string]change{}, states: map[kv.Revision]map[string]*versions{}, now: map[string]*versions{},
	}
	for i := range keys {
		s.keys = append(s.keys, fmt.Sprintf("/%c/%03d", 'a'+i%5, i))
	}
	return s
}

// grow adds one random revision.
func (s *store) grow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current++
	n := 0
	switch s.rng.IntN(20) {
	case 0: // not in our range
	case 1:
		n = 1 + s.rng.IntN(len(s.keys))
	default:
		n = 1 + s.rng.IntN(3)
	}
	if n == 0 {
		return
	}
	b := map[string]change{}
	next := maps.Clone(s.now)
	for _, i := range s.rng.Perm(len(s.keys))[:n] {
		k := s.keys[i]
		was := s.now[k]
		if was != nil && s.rng.IntN(4) == 0 {
			delete(next, k)
			b[k] = change{was: was}
			continue
		}
		next[k] = &versions{mod: s.current, value: fmt.Sprint(k, s.current)}
		b[k] = change{is: next[k], was: was}
	}
	s.now = next
	s.batches[s.current], s.states[s.current] = b, next
	s.order = append(s.order, s.current)
}

// batch returns a revision as a source sends it.
func (s *store) batch(revision kv.Revision) kv.Batch {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := kv.Batch{Revision: revision, Received: time.Now()}
	for k, c := range s.batches[revision] {
		e := kv.Event{Type: kv.Delete, KV: kv.NewKeyValue(kv.Fields{Key: []byte(k), ModRevision: revision})}
		if c.is != nil {
			e = kv.Event{KV: item(k, c.is.value, revision)}
		}
		if c.was != nil {
			e.Prev = item(k, c.was.value, c.was.mod)
		}
		b.Events = append(b.Events, e)
	}
	return b
}

// after returns the first revision >= from that touches r, and its events there;
// 0 when there is none.
func (s *store) after(r kv.Range, from kv.Revision) (kv.Revision, map[string]change) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	lo, hi := 0, len(s.order)
	for lo < hi {
		if mid := (lo + hi) / 2; s.order[mid] < from {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for _, revision := range s.order[lo:] {
		in := map[string]change{}
		for k, c := range s.batches[revision] {
			if r.Contains(k) {
				in[k] = c
			}
		}
		if len(in) > 0 {
			return revision, in
		}
	}
	return 0, nil
}

// at returns the state at revision.
func (s *store) at(revision kv.Revision) map[string]*versions {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for ; revision > 0; revision-- {
		if m, ok := s.states[revision]; ok {
			return m
		}
	}
	return map[string]*versions{}
}

func (s *store) head() (current kv.Revision, quiet bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.current, s.quiet
}

func (s *store) between(from, to kv.Revision) (out []kv.Revision) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, revision := range s.order {
		if revision >= from && revision <= to {
			out = append(out, revision)
		}
	}
	return out
}

// start sends the updates before the live part, and returns the revision that they
// reach.
func (s *store) start(req kv.FollowRequest, send func(kv.Update) bool) (sent kv.Revision, more bool) {
	if req.From > 0 {
		sent = max(0, req.From-1-kv.Revision(s.rng.IntN(10))) // repeats a part of it
		return sent, send(begin(req.From-1, 0))
	}
	at, _ := s.head()
	if req.Held != nil && s.rng.IntN(2) == 0 {
		return at, s.leap(req, at, send)
	}
	floor := at + 1
	if s.rng.IntN(2) == 0 {
		floor = max(2, at-kv.Revision(s.rng.IntN(50)))
	}
	var kvs []*kv.KeyValue
	for k, v := range s.at(at) {
		kvs = append(kvs, item(k, v.value, v.mod))
	}
	more = send(begin(at, floor)) && send(state(kvs...))
	for _, revision := range s.between(floor, at) {
		more = more && send(history(s.batch(revision)))
	}
	return at, more
}

// leap sends the differences between the state and the follower's.
func (s *store) leap(req kv.FollowRequest, at kv.Revision, send func(kv.Update) bool) bool {
	u := kv.Update{Kind: kv.UpdateState}
	now := maps.Clone(s.at(at))
	for old := range req.Held {
		k := string(old.Key())
		switch v := now[k]; {
		case v == nil:
			u.Gone = append(u.Gone, k)
		case v.mod == old.ModRevision():
			delete(now, k)
		}
	}
	for k, v := range now {
		u.KVs = append(u.KVs, item(k, v.value, v.mod))
	}
	return send(kv.Update{Kind: kv.UpdateBegin, Revision: at, Leap: true}) && send(u)
}

// Follow implements Source.
func (s *store) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		send := func(u kv.Update) bool { return ctx.Err() == nil && yield(u, nil) }
		sent, more := s.start(req, send)
		if !more {
			return
		}
		if !send(ready()) {
			return
		}
		for ctx.Err() == nil {
			current, quiet := s.head()
			for _, revision := range s.between(sent+1, current) {
				if !send(live(s.batch(revision))) {
					return
				}
				sent = revision
			}
			if quiet {
				send(progress(current))
				<-ctx.Done()
				return
			}
			if s.moves--; s.moves == 0 {
				s.mu.Lock()
				s.quiet = true
				s.current += 1000 // outside the range, so that all waiters reach their revision
				s.mu.Unlock()
				continue
			}
			switch s.rng.IntN(300) {
			case 0:
				yield(kv.Update{}, errLost)
				return
			case 1:
				for range s.rng.IntN(100) {
					s.grow()
				}
				yield(kv.Update{}, &kv.CompactedError{Requested: sent + 1, Floor: sent + 2})
				return
			case 2, 3, 4, 5, 6, 7, 8, 9, 10:
				if !send(progress(current)) {
					return
				}
				sent = current
			case 11:
				runtime.Gosched()
			default:
				s.grow()
			}
		}
	}
}

// client watches repeatedly, and compares the deliveries with the store.
type client struct {
	s    *store
	c    *Cache
	rng  *rand.Rand
	stat clientStats
}

type clientStats struct{ watches, batches, events, compacted, wakes, changes int }

func (x *client) randomRange() kv.Range {
	k := x.s.keys[x.rng.IntN(len(x.s.keys))]
	switch x.rng.IntN(5) {
	case 0:
		return kv.Prefix(k[:2+x.rng.IntN(3)])
	case 1:
		return kv.Range{Start: k}
	case 2:
		return all
	case 3:
		if o := x.s.keys[x.rng.IntN(len(x.s.keys))]; o > k {
			return kv.Range{Start: k, End: o}
		}
	}
	return kv.Single(k)
}

// watch watches one random range from a random revision to a random later one.
func (x *client) watch() error {
	r := x.randomRange()
	now, floor := x.c.Progress(), x.c.Floor()
	from := floor + kv.Revision(x.rng.Int64N(max(1, int64(now-floor)+20)))
	current, quiet := x.s.head()
	until := from + kv.Revision(x.rng.IntN(300))
	if quiet {
		until = min(until, current)
	}
	x.stat.watches++
	wake := wait.NewBell()
	next := from // the first revision that was neither delivered nor ruled out
	fail := func(format string, args ...any) error {
		return fmt.Errorf("watch of %v from %d, all before %d seen: "+format, append([]any{r, from, next}, args...)...)
	}
	w, err := x.c.Watch(r, from, wake)
	var compacted *kv.CompactedError
	switch {
	case errors.As(err, &compacted):
		if compacted.Floor <= from {
			return fail("%w", err)
		}
		x.stat.compacted++
		return nil
	case err != nil:
		return fail("%w", err)
	}
	defer w.Close()
	var events []*kv.Event
	asked := false
	for {
		revision := kv.Revision(-1)
		for revision != 0 {
			if x.rng.IntN(50) == 0 {
				runtime.Gosched()
			}
			revision, events, err = w.Next(events[:0])
			if errors.As(err, &compacted) {
				if compacted.Floor <= next || compacted.Requested >= compacted.Floor {
					return fail("got an unnecessary compaction error: %w", err)
				}
				// A watcher that was idle has reached more than its last known progress.
				if missing, _ := x.s.after(r, next); missing != 0 && missing < compacted.Requested {
					return fail("%d was not delivered: %w", missing, err)
				}
				if p := w.Progress(); p+1 < next || p >= compacted.Requested {
					return fail("at %d after: %w", p, err)
				}
				x.stat.compacted++
				return nil
			}
			if err != nil {
				return fail("%w", err)
			}
			if revision != 0 {
				if err := x.compare(r, next, revision, events); err != nil {
					return fail("%w", err)
				}
				next = revision + 1
			}
			// Bookmarkable: all events up to the progress have been delivered.
			p := w.Progress()
			if p < next-1 {
				return fail("progress went back to %d", p)
			}
			if p >= next {
				if missing, _ := x.s.after(r, next); missing != 0 && missing <= p {
					return fail("progress %d, but %d was not delivered", p, missing)
				}
				next = p + 1
			}
		}
		if next > until {
			return nil
		}
		if !asked || x.rng.IntN(10) == 0 {
			asked = true
			w.WakeAt(until)
		}
		select {
		case <-wake:
			x.stat.wakes++
		case <-time.After(deadline):
			return fail("lost wake-up: waits for %d, progress %d, cache at %d", until, w.Progress(), x.c.Progress())
		}
	}
}

// compare compares a delivery with the store.
func (x *client) compare(r kv.Range, next, revision kv.Revision, events []*kv.Event) error {
	want, changes := x.s.after(r, next)
	if revision != want {
		return fmt.Errorf("delivered %d, the next is %d", revision, want)
	}
	if len(events) != len(changes) {
		return fmt.Errorf("revision %d: got %d events, want %d", revision, len(events), len(changes))
	}
	x.stat.batches++
	for _, e := range events {
		x.stat.events++
		c, ok := changes[string(e.KV.Key())]
		if !ok {
			return fmt.Errorf("revision %d: unexpected %s of %q", revision, e.Type, e.KV.Key())
		}
		delete(changes, string(e.KV.Key()))
		if e.KV.ModRevision() != revision || (e.Type == kv.Delete) != (c.is == nil) || (c.is != nil && string(e.KV.Value()) != c.is.value) {
			return fmt.Errorf("revision %d: %s of %q has the wrong content", revision, e.Type, e.KV.Key())
		}
		if (e.Prev != nil) != (c.was != nil) || (c.was != nil && (string(e.Prev.Value()) != c.was.value || e.Prev.ModRevision() != c.was.mod)) {
			return fmt.Errorf("revision %d: previous value of %q is wrong", revision, e.KV.Key())
		}
	}
	return nil
}

// read reads at a random revision.
func (x *client) read(ctx context.Context) error {
	before := x.c.Progress()
	revision := kv.Revision(0)
	if x.rng.IntN(2) == 0 {
		revision = max(1, before-kv.Revision(x.rng.IntN(40))+kv.Revision(x.rng.IntN(5)))
		if current, quiet := x.s.head(); quiet {
			revision = min(revision, current)
		}
	}
	snap, err := x.c.At(ctx, revision)
	var compacted *kv.CompactedError
	if errors.As(err, &compacted) {
		if compacted.Floor <= revision {
			return fmt.Errorf("read at %d: %w", revision, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read at %d: %w", revision, err)
	}
	if revision > 0 && snap.Revision != revision || snap.Revision < before && revision == 0 {
		return fmt.Errorf("read at %d with progress %d returned revision %d", revision, before, snap.Revision)
	}
	r, n := x.randomRange(), 0
	want := x.s.at(snap.Revision)
	snap.Ascend(r, func(item *kv.KeyValue) bool {
		n++
		if v := want[string(item.Key())]; v == nil || v.mod != item.ModRevision() || v.value != string(item.Value()) {
			err = fmt.Errorf("read of %v at %d: wrong %q: %v", r, snap.Revision, item.Key(), item)
		}
		return err == nil
	})
	for k := range want {
		if r.Contains(k) {
			n--
		}
	}
	if n != 0 && err == nil {
		err = fmt.Errorf("read of %v at %d: number of keys differs by %+d", r, snap.Revision, n)
	}
	return err
}

// changes reads the changes between two random revisions: applied to the state at
// the first, they must yield the state at the second.
func (x *client) changes(ctx context.Context) error {
	progress, floor := x.c.Progress(), x.c.DeltaFloor()
	since := max(1, floor-5) + kv.Revision(x.rng.Int64N(int64(max(1, progress-floor+6))))
	at := kv.Revision(0)
	if x.rng.IntN(2) == 0 {
		at = max(since, progress-kv.Revision(x.rng.IntN(20)))
	}
	x.stat.changes++
	return x.changesOf(ctx, x.randomRange(), since, at)
}

// changesOf reads the changes in r between two revisions.
func (x *client) changesOf(ctx context.Context, r kv.Range, since, at kv.Revision) error {
	progress, floor := x.c.Progress(), x.c.DeltaFloor()
	got, err := x.c.Changes(ctx, r, since, at)
	var compacted *kv.CompactedError
	switch {
	case errors.As(err, &compacted):
		if compacted.Floor <= since && compacted.Requested != at {
			return fmt.Errorf("changes since %d, available from %d on: %w", since, floor, err)
		}
		return nil
	case errors.As(err, new(*kv.FutureError)) && since > progress:
		return nil
	case err != nil:
		return fmt.Errorf("changes since %d at %d: %w", since, at, err)
	}
	if at > 0 && got.Revision != at || got.Revision < since {
		return fmt.Errorf("changes since %d at %d are as of %d", since, at, got.Revision)
	}
	have, want := maps.Clone(x.s.at(since)), x.s.at(got.Revision)
	seen := map[string]bool{}
	for _, item := range got.Changed {
		k := string(item.Key())
		if seen[k] || !r.Contains(k) || item.ModRevision() <= since {
			return fmt.Errorf("changes of %v since %d at %d: %q of %d is a duplicate or unexpected", r, since, got.Revision, k, item.ModRevision())
		}
		seen[k] = true
		have[k] = &versions{mod: item.ModRevision(), value: string(item.Value())}
	}
	for _, k := range got.Deleted {
		if seen[k] || !r.Contains(k) {
			return fmt.Errorf("changes of %v since %d at %d: deleted %q is a duplicate or unexpected", r, since, got.Revision, k)
		}
		seen[k] = true
		delete(have, k)
	}
	for _, k := range x.s.keys {
		if h, w := have[k], want[k]; r.Contains(k) && ((h == nil) != (w == nil) || h != nil && *h != *w) {
			return fmt.Errorf("changes of %v since %d at %d: %q is %v, want %v", r, since, got.Revision, k, h, w)
		}
	}
	return nil
}

func TestAgainstModel(t *testing.T) {
	for _, x := range []struct {
		name    string
		procs   int
		clients int
		keys    int
		moves   int
		window  int64
	}{
		{"one processor", 1, 20, 50, 4000, 256 << 10},
		{"two processors", 2, 20, 50, 4000, 256 << 10},
		{"many processors", 8, 20, 50, 4000, 256 << 10},
		{"small window", 4, 10, 20, 4000, 40 << 10},
		{"tiny window", 4, 10, 5, 4000, 2 << 10},
		{"many clients", 4, 60, 100, 2000, 4 << 20},
	} {
		// In a bubble, the pauses between two sources take no real time, and a lost wake-up
		// shows at once.
		bubble := func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(x.procs))
			rng := testseed.Rand(t)
			if testing.Short() {
				x.moves /= 4
			}
			s := newStore(rng, x.keys, x.moves)
			for range 100 {
				s.grow()
			}
			cfg := small(s)
			cfg.WindowBytes, cfg.RootsBytes, cfg.TombstoneBytes = x.window, 100<<10, x.window/16
			clientRand := rand.New(rand.NewPCG(rng.Uint64(), 1))
			c := New(cfg)
			run(t, c)
			<-c.Ready()
			var clients sync.WaitGroup
			all := make([]client, x.clients)
			for i := range all {
				all[i] = client{s: s, c: c, rng: rand.New(rand.NewPCG(clientRand.Uint64(), 2))}
				clients.Go(func() {
					// A few rounds run after the last change.
					for left := 3; left > 0 && !t.Failed(); {
						if _, quiet := s.head(); quiet {
							left--
						}
						if err := all[i].watch(); err != nil {
							t.Error(err)
						}
						if err := all[i].read(t.Context()); err != nil {
							t.Error(err)
						}
						if err := all[i].changes(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			clients.Wait()
			current, _ := s.head()
			follows(t, c, current)
			var sum clientStats
			for i := range all {
				sum.watches += all[i].stat.watches
				sum.batches += all[i].stat.batches
				sum.events += all[i].stat.events
				sum.compacted += all[i].stat.compacted
				sum.wakes += all[i].stat.wakes
				sum.changes += all[i].stat.changes
			}
			st := c.Status()
			t.Logf("%+v; %+v", sum, st)
			if st.Watchers != 0 || waitersOf(c) != 0 {
				t.Errorf("%d watchers and %d waiters left", st.Watchers, waitersOf(c))
			}
			if len(c.wakeups.index.single) != 0 || len(c.wakeups.index.byKey) != 0 || c.wakeups.index.ranges != nil {
				t.Error("the index is not empty")
			}
			snap, err := c.At(t.Context(), current)
			if err != nil {
				t.Fatal(err)
			}
			if want := s.at(current); snap.Len() != len(want) {
				t.Errorf("%d keys at the end, want %d", snap.Len(), len(want))
			}
			var bytes int64
			snap.Ascend(kv.Range{}, func(item *kv.KeyValue) bool { bytes += int64(item.Size()); return true })
			if bytes += int64(st.Keys) * keytree.KeyOverhead; bytes != st.StateBytes {
				t.Errorf("the state has %d bytes, counted %d", bytes, st.StateBytes)
			}
		}
		t.Run(x.name, func(t *testing.T) { synctest.Test(t, bubble) })
	}
}
