package cache

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// A watcher that is never read keeps no evicted batches in memory.
func TestSlowWatcherPinsNothing(t *testing.T) {
	cfg := small(nil)
	cfg.WindowBytes, cfg.RootsBytes = 64<<10, 64<<10
	c := loaded(cfg, 10)
	slow := watch(t, c, all, 11, &wakes{})
	read := watch(t, c, all, 11, &wakes{})
	var early []weak.Pointer[kv.Batch]
	var scratch []*kv.Event
	for revision := kv.Revision(11); revision < 5000; revision++ {
		b := puts(revision, "a", "b")
		c.apply(&b)
		if revision < 1000 {
			early = append(early, weak.Make(&b))
		}
		if revision == 500 { // stops halfway
			for {
				var got kv.Revision
				var err error
				if got, scratch, err = read.Next(scratch[:0]); got == 0 || err != nil {
					break
				}
			}
		}
	}
	clear(scratch)
	testkit.Eventually(t, "evicted batches are freed", func() bool {
		runtime.GC()
		for _, p := range early {
			if p.Value() != nil {
				return false
			}
		}
		return true
	})
	if st := c.Status(); st.WindowBytes > cfg.WindowBytes || st.Watchers != 2 {
		t.Errorf("%+v", st)
	}
	runtime.KeepAlive(slow)
	runtime.KeepAlive(read)
}

// A retired cache keeps its content until it is released. Afterwards, a watcher whose client
// does not read keeps only the window in memory, and still has its position.
func TestAReleasedCacheKeepsItsWindowOnly(t *testing.T) {
	s := newScript()
	c := New(small(s))
	stop := run(t, c)
	old := func() weak.Pointer[kv.KeyValue] {
		unchanged := item("a", "of long ago", 5)
		s.play(begin(10, 11), state(unchanged), ready(), live(puts(11, "b")), live(puts(12, "b")))
		return weak.Make(unchanged)
	}()
	follows(t, c, 12)
	slow := watch(t, c, all, 11, &wakes{})
	if revision, _, err := slow.Next(nil); revision != 11 || err != nil {
		t.Fatalf("revision %d, %v", revision, err)
	}
	stop()
	if Inherit(all, false, c) == nil || len(c.Claims()) == 0 {
		t.Error("an ended cache has no content before it is released")
	}
	position := slow.Position()
	Release(c)
	testkit.Eventually(t, "the state is freed", func() bool {
		runtime.GC()
		return old.Value() == nil
	})
	if got := slow.Position(); got != position || got.Revision != 11 || got.Newest != 12 || slow.Progress() != 11 {
		t.Errorf("at %+v, %d; before %+v", got, slow.Progress(), position)
	}
	if revision, _, err := slow.Next(nil); revision != 0 || !errors.Is(err, ErrRetired) {
		t.Errorf("revision %d, %v", revision, err)
	}
	if _, err := c.At(t.Context(), 0); !errors.Is(err, ErrRetired) {
		t.Error(err)
	}
	if _, _, err := Since(all, 11, c); !errors.Is(err, ErrNotReady) {
		t.Error(err)
	}
	if Inherit(all, false, c) != nil || c.Claims() != nil {
		t.Error("a released cache can still be inherited from")
	}
	c.held(func(*kv.KeyValue) bool { t.Error("a released cache still has a key"); return true })
	runtime.KeepAlive(slow)
}

// A read while a cache ends returns its last content or ErrRetired.
func TestReadsWhileACacheIsReleased(t *testing.T) {
	for range 100 {
		c := loaded(small(nil), 10)
		for revision := kv.Revision(11); revision <= 30; revision++ {
			b := puts(revision, "a")
			c.apply(&b)
		}
		var readers sync.WaitGroup
		begun := make(chan struct{}, 4)
		for range 2 {
			readers.Go(func() {
				for {
					got, err := c.Changes(t.Context(), all, 15, 20)
					if err == nil && (len(got.Changed) != 1 || got.Changed[0].ModRevision() != 20) || err != nil && !errors.Is(err, ErrRetired) {
						t.Errorf("changes %+v, %v", got, err)
					}
					if err != nil {
						return
					}
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			})
			readers.Go(func() {
				for seed := Inherit(all, false, c); seed != nil; seed = Inherit(all, false, c) {
					if seed.past.Progress != 30 || seed.tree.Len() != 1 && seed.base > 10 {
						t.Errorf("inherits %d keys at %d, up to %d", seed.tree.Len(), seed.base, seed.past.Progress)
					}
				}
			})
		}
		<-begun
		c.retire()
		Release(c)
		readers.Wait()
	}
}

// A delete of very many keys is one revision for watchers of one, of some, and of all of
// them.
func TestHugeRevision(t *testing.T) {
	const keys, singles, prefixes = 50_000, 10_000, 1_000
	c := loaded(small(nil), 10)
	created, deleted := batch(11), batch(12)
	for i := range keys {
		k := fmt.Sprintf("/%03d/%05d", i%prefixes, i)
		created.Events = append(created.Events, put(k, 11))
		deleted.Events = append(deleted.Events, del(k, 12))
	}
	var n wakes
	type expect struct {
		w    *Watcher
		want int
	}
	var watchers []expect
	for i := range singles {
		watchers = append(watchers, expect{watch(t, c, kv.Single(fmt.Sprintf("/%03d/%05d", i%prefixes, i)), 11, &n), 1})
	}
	for i := range prefixes {
		watchers = append(watchers, expect{watch(t, c, kv.Prefix(fmt.Sprintf("/%03d/", i)), 11, &n), keys / prefixes})
	}
	watchers = append(watchers, expect{watch(t, c, all, 11, &n), keys})
	for _, x := range watchers {
		drain(t, x.w)
	}
	for _, b := range []*kv.Batch{&created, &deleted} {
		n.n.Store(0)
		c.apply(b)
		if int(n.n.Load()) != len(watchers) {
			t.Errorf("revision %d woke %d of %d", b.Revision, n.n.Load(), len(watchers))
		}
		var events []*kv.Event
		for _, x := range watchers {
			var revision kv.Revision
			var err error
			if revision, events, err = x.w.Next(events[:0]); revision != b.Revision || len(events) != x.want || err != nil {
				t.Fatalf("%v: revision %d, %d events, %v", x.w.Range(), revision, len(events), err)
			}
			if (events[0].Prev != nil) != (b.Revision == 12) {
				t.Fatalf("%v: previous value at %d: %v", x.w.Range(), b.Revision, events[0].Prev)
			}
			drain(t, x.w)
		}
	}
	if st := c.Status(); st.Keys != 0 || st.StateBytes != 0 {
		t.Errorf("%+v", st)
	}
}

// The writer appends and the watchers become idle as fast as they can: no wake-up is lost,
// and no event is delivered twice.
func TestSleepAndWakeRace(t *testing.T) {
	const keys = 8
	total := kv.Revision(150_000)
	if testing.Short() {
		total = 20_000
	}
	for _, procs := range []int{1, 2, 3, 8} {
		t.Run(fmt.Sprint("procs=", procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			cfg := small(nil)
			cfg.RootsBytes = 0
			c := loaded(cfg, 10)
			var readers sync.WaitGroup
			for i := range 3 * keys {
				key := kv.Revision(i % keys)
				wake := wait.NewBell()
				w := watch(t, c, kv.Single(fmt.Sprint(key)), 11, wake)
				readers.Go(func() {
					timeout := time.NewTimer(deadline)
					defer timeout.Stop()
					want := 11 + (key-11%keys+keys)%keys // the next one that is key's
					for want < total {
						revision, events, err := w.Next(nil)
						if err != nil {
							t.Error(err)
							return
						}
						if revision == 0 {
							if p := w.Progress(); p >= want {
								t.Errorf("key %d: progress %d before %d was delivered", key, p, want)
								return
							}
							timeout.Reset(deadline)
							select {
							case <-wake:
							case <-timeout.C:
								t.Errorf("key %d: lost wake-up before %d, the cache is at %d", key, want, c.Progress())
								return
							}
							continue
						}
						if revision != want || len(events) != 1 {
							t.Errorf("key %d: delivered %d, not %d", key, revision, want)
							return
						}
						want += keys
					}
				})
			}
			for revision := kv.Revision(11); revision < total; revision++ {
				b := puts(revision, fmt.Sprint(revision%keys))
				c.apply(&b)
				if revision%64 == 0 {
					runtime.Gosched()
				}
			}
			readers.Wait()
		})
	}
}
