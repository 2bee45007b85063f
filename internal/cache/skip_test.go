package cache

import (
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A call of Next examines a bounded number of batches outside the range. The watcher is called again
// until it has examined all of them, and is woken for the next event.
func TestNextSkipsABoundedNumberOfBatches(t *testing.T) {
	const last = 100_010
	cfg := small(nil)
	cfg.WindowBytes = 1 << 30
	c := loaded(cfg, 10)
	for revision := kv.Revision(11); revision <= last; revision++ {
		key := "a"
		if revision == last/2 {
			key = "b"
		}
		b := puts(revision, key)
		c.apply(&b)
	}
	var woken wakes
	w := watch(t, c, kv.Single("b"), 11, &woken)
	var got []kv.Revision
	at, calls := w.Progress(), int64(0)
	for w.Pending() {
		revision, _, err := w.Next(nil)
		if err != nil {
			t.Fatal(err)
		}
		if revision > 0 {
			got = append(got, revision)
		} else if calls++; w.Pending() && woken.n.Load() != calls {
			t.Fatalf("call %d: woken %d times, so the reader does not continue", calls, woken.n.Load())
		}
		now := w.Progress()
		if n := int(now - at); n > maxSkipped+1 || w.Skipped() > maxSkipped || n == 0 {
			t.Fatalf("one call has examined %d batches, and reports %d", n, w.Skipped())
		}
		at = now
	}
	if at != last || !slices.Equal(got, []kv.Revision{last / 2}) {
		t.Errorf("delivered %v, progress %d", got, at)
	}
	before := woken.n.Load()
	b := puts(last+1, "b")
	c.apply(&b)
	if n := woken.n.Load() - before; n != 1 {
		t.Errorf("woken %d times for the next event", n)
	}
	if got := drain(t, w); !slices.Equal(got, []kv.Revision{last + 1}) {
		t.Errorf("delivered %v", got)
	}
}
