package cache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// mostPerKey is the maximum overhead of a key in bytes.
const mostPerKey = 150

// holdings is the memory of a cache, in bytes on the heap.
type holdings struct {
	items, state, index int // the keys and values, and the two trees
	rewritten           int // all of these after every key was written several times
	window, roots       int // the additional memory of both after that
	status              Status
}

// hold fills a cache with keys of 64 bytes and values of 256, writes each of them
// rounds times in random order, and measures the memory.
func hold(tb testing.TB, keys, rounds int) (h holdings) {
	tb.Helper()
	key := func(i int) []byte {
		return fmt.Appendf(nil, "/registry/pods/namespace-%05d/deployment-7d4b9c6f5-x-%010d", i%1000, i)
	}
	value := make([]byte, 256)
	item := func(i, version int, revision kv.Revision) *kv.KeyValue {
		return kv.NewKeyValue(kv.Fields{Key: key(i), Value: value, CreateRevision: kv.Revision(2_000_000 + i), ModRevision: revision, Version: int64(version)})
	}
	last := liveHeap()
	grown := func() int {
		now := liveHeap()
		defer func() { last = now }()
		return now - last
	}
	items := make([]*kv.KeyValue, keys)
	for i := range items {
		// In key order, as in a list.
		items[i] = item(i/(keys/1000)+i%(keys/1000)*1000, 1, kv.Revision(10_000_000+i))
	}
	h.items = grown() - 8*keys
	t := keytree.New()
	for _, one := range items {
		t.Load(one)
	}
	h.state = grown()
	c := New(small(nil))
	revision := kv.Revision(20_000_000)
	c.load(t, &Past{Progress: revision, Floor: revision + 1, DeltaFloor: revision + 1})
	h.index = grown()
	clear(items)
	before := last
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		for range keys {
			revision++
			b := kv.Batch{Revision: revision, Received: time.Now(), Events: []kv.Event{{KV: item(rng.IntN(keys), 2+round, revision)}}}
			c.apply(&b)
		}
	}
	h.status = c.Status()
	last = liveHeap()
	h.rewritten = last - before
	c.roots.Clear()
	h.roots = -grown()
	c.win.reset(revision+1, revision)
	v := *c.view.Load()
	v.win = c.win.view()
	c.view.Store(&v)
	c.settled.Store(&v)
	h.window = -grown()
	h.rewritten += h.items + h.state + h.index - h.roots - h.window
	runtime.KeepAlive(items)
	runtime.KeepAlive(c)
	return h
}

// The memory per key stays within the bound, after a list and after many writes.
func TestMemoryPerKey(t *testing.T) {
	const keys = 20_000
	h := hold(t, keys, 3)
	t.Logf("%+v", h)
	for when, bytes := range map[string]int{"after a list": h.items + h.state + h.index, "after writing each key thrice": h.rewritten} {
		if per := bytes/keys - 320; per > mostPerKey {
			t.Errorf("%s: %d bytes per key in addition to the key and its value, want at most %d", when, per, mostPerKey)
		}
	}
}

// BenchmarkMemory measures the overhead of a key, and the additional memory of the
// window and the kept roots, as measured and as Status reports it.
func BenchmarkMemory(b *testing.B) {
	for _, keys := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			for b.Loop() {
				h := hold(b, keys, 3)
				per := func(bytes int) float64 { return float64(bytes) / float64(keys) }
				b.ReportMetric(per(h.items)-320, "item-B/key")
				b.ReportMetric(per(h.state), "state-B/key")
				b.ReportMetric(per(h.index), "index-B/key")
				b.ReportMetric(per(h.items+h.state+h.index)-320, "listed-B/key")
				b.ReportMetric(per(h.rewritten)-320, "rewritten-B/key")
				b.ReportMetric(float64(h.window), "window-B")
				b.ReportMetric(float64(h.status.WindowBytes), "window-told-B")
				b.ReportMetric(float64(h.roots), "roots-B")
				b.ReportMetric(float64(h.status.RootsBytes), "roots-told-B")
			}
		})
	}
}

// liveHeap returns the size of the live heap in bytes.
func liveHeap() int {
	runtime.GC()
	runtime.GC() // frees the pools' leftovers of the first one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
