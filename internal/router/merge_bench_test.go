package router_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// sharded returns a router over one node with that number of ready shards.
func sharded(b *testing.B, shards int) (*cachetest.Script, *cachetest.Node, *router.Router, *shard.Map) {
	b.Helper()
	h := cachetest.New()
	var cuts []string
	for i := 1; i < shards; i++ {
		cuts = append(cuts, letters[i:i+1])
	}
	n := cachetest.NewNode("here", h, nil)
	r := start(b, h, n)
	m := cachetest.Map(1, cuts, "here")
	n.Use(m)
	for i := range m.Shards {
		<-n.Replica(m.Shards[i].ID).Ready()
	}
	return h, n, r, m
}

// BenchmarkMerge measures the cost of a revision for a watch over several shards that
// replays a window. Each revision has an event in one shard.
func BenchmarkMerge(b *testing.B) {
	const revisions = 10_000
	for _, shards := range []int{1, 2, 16} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			h, n, r, m := sharded(b, shards)
			for i := range revisions {
				h.Commit(cachetest.Put(letters[i*7%16:][:1], "value"))
			}
			for i := range m.Shards {
				if err := n.Replica(m.Shards[i].ID).WaitProgress(b.Context(), h.Now()); err != nil {
					b.Fatal(err)
				}
			}
			var w *router.Watch
			var events []*kv.Event
			left := 0
			b.ReportAllocs()
			for b.Loop() {
				if left == 0 {
					b.StopTimer()
					if w != nil {
						w.Close()
					}
					var err error
					if w, err = r.Watch(b.Context(), router.WatchRequest{From: cachetest.Start + 1, Lineage: 1}, newBell()); err != nil {
						b.Fatal(err)
					}
					left = revisions
					b.StartTimer()
				}
				revision, got, err := w.Next(events[:0])
				if err != nil || revision != h.Now()-kv.Revision(left)+1 || len(got) != 1 {
					b.Fatal(revision, len(got), err)
				}
				events = got
				left--
			}
			w.Close()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkMergeFanout delivers each event to 1,000 watches of all keys, read by ten pumps:
// an op is one event for each watch. cpu-ns is the CPU time of the process, including the
// source of the events.
func BenchmarkMergeFanout(b *testing.B) {
	const watches, pumps = 1000, 10
	for _, shards := range []int{1, 16} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			h, _, r, _ := sharded(b, shards)
			var left, wakes atomic.Int64
			done := make(chan struct{}, 1)
			ctx, cancel := context.WithCancel(b.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			for range pumps {
				p := &readPump{bell: make(chan struct{}, 1)}
				for range watches / pumps {
					x := &pumpedWatch{p: p, wakes: &wakes}
					var err error
					if x.w, err = r.Watch(b.Context(), router.WatchRequest{From: cachetest.Start + 1, Lineage: 1}, x); err != nil {
						b.Fatal(err)
					}
					defer x.w.Close()
					x.Wake()
				}
				running.Go(func() {
					p.run(ctx, func() {
						if left.Add(-1) == 0 {
							done <- struct{}{}
						}
					})
				})
			}
			event := func(i int) {
				left.Store(watches)
				h.Commit(cachetest.Put(letters[i*7%16:][:1], "value"))
				<-done
			}
			for i := range 100 {
				event(i)
			}
			wakes.Store(0)
			began, i := used(), 0
			for b.Loop() {
				event(i)
				i++
			}
			deliveries := float64(b.N) * watches
			b.ReportMetric(0, "ns/op") // the wall time of a busy machine is meaningless
			b.ReportMetric(float64(used()-began)/deliveries, "cpu-ns/delivery")
			b.ReportMetric(float64(wakes.Load())/deliveries, "wakes/delivery")
		})
	}
}

// readPump is a pump: it reads the watches that were woken.
type readPump struct {
	bell  chan struct{}
	mu    sync.Mutex
	woken []*pumpedWatch
}

type pumpedWatch struct {
	w     *router.Watch
	p     *readPump
	there bool // guarded by p.mu; in woken
	wakes *atomic.Int64
}

func (x *pumpedWatch) Wake() {
	x.wakes.Add(1)
	x.p.mu.Lock()
	if !x.there {
		x.there = true
		x.p.woken = append(x.p.woken, x)
	}
	x.p.mu.Unlock()
	select {
	case x.p.bell <- struct{}{}:
	default:
	}
}

func (p *readPump) run(ctx context.Context, delivered func()) {
	var spare []*pumpedWatch
	var events []*kv.Event
	for {
		select {
		case <-p.bell:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		list := p.woken
		p.woken = spare
		for _, x := range list {
			x.there = false
		}
		p.mu.Unlock()
		for _, x := range list {
			for {
				revision, got, err := x.w.Next(events[:0])
				if revision == 0 || err != nil {
					break
				}
				events = got
				delivered()
			}
		}
		spare = list[:0]
	}
}

// used returns the CPU time of the process so far.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
