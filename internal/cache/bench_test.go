package cache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// sleeper is a waker that records the woken watchers, for the benchmark to read.
type sleeper struct {
	w     *Watcher
	woken *[]*Watcher
}

func (s *sleeper) Wake() { *s.woken = append(*s.woken, s.w) }

// benchCache returns a cache with live keys and idle watchers: watchers of single keys and
// prefixes that match none of its keys, and match watchers of every key that is written.
// read makes the woken watchers read all pending events.
func benchCache(b *testing.B, exact, prefix, match int) (c *Cache, read func() (deliveries int)) {
	b.Helper()
	c = loaded(small(nil), 1)
	var woken []*Watcher
	add := func(r kv.Range) {
		s := &sleeper{woken: &woken}
		w, err := c.Watch(r, c.Progress()+1, s)
		if err != nil {
			b.Fatal(err)
		}
		s.w = w
		drain(b, w)
	}
	for i := range exact {
		add(kv.Single(fmt.Sprintf("/registry/pods/ns-%04d/quiet-%06d", i%1000, i)))
	}
	for i := range prefix {
		add(kv.Prefix(fmt.Sprintf("/registry/quiet-%06d/", i)))
	}
	for range match {
		add(kv.Prefix("/registry/pods/"))
	}
	var events []*kv.Event
	return c, func() (deliveries int) {
		for _, w := range woken {
			for {
				revision, got, err := w.Next(events[:0])
				if err != nil {
					b.Fatal(err)
				}
				events = got
				if revision == 0 {
					break
				}
				deliveries += len(got)
			}
		}
		woken = woken[:0]
		return deliveries
	}
}

// benchEvents returns batches of one put each from revision on, over 10,000
// keys of 256 bytes.
func benchEvents(revision kv.Revision, n int) []kv.Batch {
	out := make([]kv.Batch, n)
	value := make([]byte, 256)
	now := time.Now()
	for i := range out {
		at := revision + kv.Revision(i)
		out[i] = kv.Batch{Revision: at, Received: now, Events: []kv.Event{{KV: kv.NewKeyValue(kv.Fields{
			Key: fmt.Appendf(nil, "/registry/pods/ns-%04d/pod-%06d", int(at)*7%1000, int(at)*7%10_000), Value: value,
			CreateRevision: at, ModRevision: at, Version: 1,
		})}}}
	}
	return out
}

// applied returns a function that applies the next event on each call; creating the events
// is not measured.
func applied(b *testing.B, c *Cache) func() {
	var ready []kv.Batch
	for _, e := range benchEvents(c.Progress()+1, 10_000) { // a state to begin with
		c.apply(&e)
	}
	at := 0
	return func() {
		if at == len(ready) {
			b.StopTimer()
			ready, at = benchEvents(c.Progress()+1, 20_000), 0
			b.StartTimer()
		}
		c.apply(&ready[at])
		at++
	}
}

// BenchmarkAppend measures the writer's cost of an event: state, window, match and wake;
// with match also the deliveries, after which the watchers are idle again. It must not
// depend on the number of watchers that do not match.
func BenchmarkAppend(b *testing.B) {
	for _, x := range []struct{ exact, prefix, match int }{
		{0, 0, 0},
		{10_000, 1000, 0},
		{10_000, 1000, 1},
		{10_000, 1000, 100},
		{1000, 0, 1},
		{10_000, 0, 1},
		{100_000, 0, 1},
		{0, 1000, 1},
		{0, 10_000, 1},
		{0, 100_000, 1},
	} {
		b.Run(fmt.Sprintf("exact=%d/prefix=%d/match=%d", x.exact, x.prefix, x.match), func(b *testing.B) {
			c, read := benchCache(b, x.exact, x.prefix, x.match)
			next := applied(b, c)
			read()
			b.ReportAllocs()
			for b.Loop() {
				next()
				read()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkLargeRevision measures the writer's cost of one revision of many
// events with matching idle watchers, all of one range or each of a separate
// range.
func BenchmarkLargeRevision(b *testing.B) {
	for _, x := range []struct{ events, watchers, ranges int }{
		{100, 10_000, 1}, {10_000, 1, 1}, {10_000, 100, 1}, {10_000, 10_000, 1}, {10_000, 10_000, 10_000},
	} {
		b.Run(fmt.Sprintf("events=%d/watchers=%d/ranges=%d", x.events, x.watchers, x.ranges), func(b *testing.B) {
			c := loaded(small(nil), 1)
			var idle []*Watcher
			for i := range x.watchers {
				w, err := c.Watch(kv.Range{Start: fmt.Sprintf("/%06d", i%x.ranges)}, 2, quiet{}) // open-ended
				if err != nil {
					b.Fatal(err)
				}
				idle = append(idle, w)
			}
			value := make([]byte, 256)
			for b.Loop() {
				b.StopTimer()
				large := kv.Batch{Revision: c.Progress() + 1, Received: time.Now()}
				for i := range x.events {
					at := large.Revision
					large.Events = append(large.Events, kv.Event{KV: kv.NewKeyValue(kv.Fields{
						Key: fmt.Appendf(nil, "/pods/%06d", i*7919%x.events), Value: value, CreateRevision: at, ModRevision: at, Version: 1,
					})})
				}
				for _, w := range idle {
					w.state.Store(c.win.next<<1 | idleBit) // as if it had read all batches
				}
				b.StartTimer()
				c.apply(&large)
			}
		})
	}
}

// quiet is a waker that does nothing.
type quiet struct{}

func (quiet) Wake() {}

// BenchmarkMixed measures the writer's cost of an event in a large state, with idle
// watchers: updates of random keys, and one delete in twenty, after which the
// key is created again.
func BenchmarkMixed(b *testing.B) {
	const keys = 100_000
	for _, watchers := range []int{0, 1000, 100_000} {
		b.Run(fmt.Sprintf("keys=%d/watchers=%d", keys, watchers), func(b *testing.B) {
			c, _ := benchCache(b, watchers, 0, 0)
			rng := rand.New(rand.NewPCG(1, 2))
			value, there := make([]byte, 256), make([]bool, keys)
			event := func(i int, revision kv.Revision) kv.Event {
				key := fmt.Appendf(nil, "/registry/pods/ns-%04d/pod-%06d", i%1000, i)
				if there[i] && rng.IntN(20) == 0 {
					there[i] = false
					return del(string(key), revision)
				}
				there[i] = true
				return kv.Event{KV: kv.NewKeyValue(kv.Fields{Key: key, Value: value, CreateRevision: revision, ModRevision: revision, Version: 1})}
			}
			revision := c.Progress() + 1
			all := batch(revision)
			for i := range keys {
				all.Events = append(all.Events, event(i, revision))
			}
			c.apply(&all)
			var ready []kv.Batch
			b.ReportAllocs()
			for b.Loop() {
				if len(ready) == 0 {
					b.StopTimer()
					for range 10_000 {
						revision++
						ready = append(ready, batch(revision, event(rng.IntN(keys), revision)))
					}
					b.StartTimer()
				}
				c.apply(&ready[0])
				ready = ready[1:]
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkApply measures the events per second that one shard can process, through Run and
// with a source that always has events.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			s := newScript()
			s.steps = make(chan step, 1024)
			c := New(small(s))
			run(b, c)
			s.play(begin(1, 2), ready())
			follows(b, c, 1)
			var ready []kv.Batch
			at, revision := 0, kv.Revision(1)
			b.ReportAllocs()
			for b.Loop() {
				if at == len(ready) {
					b.StopTimer()
					ready, at = ready[:0], 0
					for range 20_000 / n {
						revision++
						one := kv.Batch{Revision: revision, Received: time.Now()}
						for _, e := range benchEvents(revision*kv.Revision(n), n) {
							one.Events = append(one.Events, e.Events...)
						}
						ready = append(ready, one)
					}
					b.StartTimer()
				}
				s.play(live(ready[at]))
				at++
			}
			follows(b, c, revision-kv.Revision(len(ready)-at))
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkFanout measures the reader's cost of a delivery: Next with a pending
// event.
func BenchmarkFanout(b *testing.B) {
	for _, x := range []struct {
		name     string
		r        func(i int) kv.Range
		watchers int
	}{
		{"prefix", func(int) kv.Range { return kv.Prefix("/registry/pods/") }, 100},
		{"prefix", func(int) kv.Range { return kv.Prefix("/registry/pods/") }, 10_000},
		{"all", func(int) kv.Range { return all }, 1000},
	} {
		b.Run(fmt.Sprintf("watch=%s/watchers=%d", x.name, x.watchers), func(b *testing.B) {
			c := loaded(small(nil), 1)
			var woken wakes
			watchers := make([]*Watcher, x.watchers)
			for i := range watchers {
				watchers[i] = watch(b, c, x.r(i), 2, &woken)
				drain(b, watchers[i])
			}
			next := applied(b, c)
			var events []*kv.Event
			for _, w := range watchers {
				drain(b, w)
			}
			at, deliveries := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				if at == len(watchers) {
					b.StopTimer()
					at = 0
					next()
					b.StartTimer()
				}
				revision, got, err := watchers[at].Next(events[:0])
				if err != nil {
					b.Fatal(err)
				}
				if revision > 0 {
					deliveries += len(got)
				}
				if _, _, err := watchers[at].Next(got[:0]); err != nil { // the watcher becomes idle
					b.Fatal(err)
				}
				events = got
				at++
			}
			if deliveries < b.N-len(watchers) {
				b.Fatalf("%d deliveries in %d rounds", deliveries, b.N)
			}
		})
	}
}

// BenchmarkReplay measures the cost of an event for a watcher that resumes from an
// old revision: a watcher of all keys, and a watcher of a single quiet key.
func BenchmarkReplay(b *testing.B) {
	const history = 20_000
	c := loaded(small(nil), 1)
	for _, e := range benchEvents(2, history) {
		c.apply(&e)
	}
	for name, r := range map[string]kv.Range{"all": all, "quiet-key": kv.Single("/registry/pods/ns-0001/quiet")} {
		b.Run("watch="+name, func(b *testing.B) {
			var events []*kv.Event
			var woken wakes
			b.ReportAllocs()
			for b.Loop() {
				w, err := c.Watch(r, 2, &woken)
				if err != nil {
					b.Fatal(err)
				}
				for {
					revision, got, err := w.Next(events[:0])
					if err != nil {
						b.Fatal(err)
					}
					if events = got; revision == 0 && !w.Pending() {
						break
					}
				}
				w.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/history, "ns/event")
		})
	}
}

// BenchmarkIdleWatch measures the memory of an idle watch with its index entry, without the
// bytes of its key.
func BenchmarkIdleWatch(b *testing.B) {
	const n = 100_000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, x := range []struct {
		name string
		r    func(i int) kv.Range
	}{
		{"exact", func(i int) kv.Range { return kv.Single(fmt.Sprintf("/registry/pods/%08d", i)) }},
		{"prefix", func(i int) kv.Range { return kv.Prefix(fmt.Sprintf("/registry/%08d/", i)) }},
		{"same-prefix", func(int) kv.Range { return kv.Prefix("/registry/") }},
	} {
		b.Run("watch="+x.name, func(b *testing.B) {
			ranges := make([]kv.Range, n)
			for i := range ranges {
				ranges[i] = x.r(i)
			}
			var woken wakes
			for b.Loop() {
				c := loaded(small(nil), 1)
				watchers := make([]*Watcher, n)
				before := heap()
				for i := range watchers {
					watchers[i], _ = c.Watch(ranges[i], 2, &woken)
					if _, _, err := watchers[i].Next(nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(heap()-before)/n, "B/watch")
				runtime.KeepAlive(watchers)
				runtime.KeepAlive(c)
			}
		})
	}
}
