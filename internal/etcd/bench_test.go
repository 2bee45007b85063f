package etcd

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// benchKeys is the number of keys in the responses of the benchmarks.
const benchKeys = 100_000

func benchKey(i int) []byte {
	return fmt.Appendf(nil, "/registry/pods/namespace-%05d/deployment-%06d-7d4b9c6f5-x%04d", i%1000, i, i%10_000) // 64 bytes
}

// benchWriter makes responses like etcd's: puts, and one delete in twenty events, of random keys. Each event has
// its own revision.
type benchWriter struct {
	rng      *rand.Rand
	revision int64
	versions []int64 // of each key; 0: it does not exist
	value    []byte
}

func newBenchWriter(value int) *benchWriter {
	w := &benchWriter{rng: rand.New(rand.NewPCG(1, 2)), revision: 1_000_000, versions: make([]int64, benchKeys), value: make([]byte, value)}
	for i := range w.versions {
		w.versions[i] = 1
	}
	return w
}

// state returns the state before the first response.
func (w *benchWriter) state() []*kv.KeyValue {
	out := make([]*kv.KeyValue, 0, len(w.versions))
	for i := range w.versions {
		out = append(out, kv.NewKeyValue(kv.Fields{Key: benchKey(i), Value: w.value, CreateRevision: 2, ModRevision: kv.Revision(2 + i), Version: 1}))
	}
	return out
}

// responses returns n responses in their wire form.
func (w *benchWriter) responses(b *testing.B, n, events int) (out [][]byte) {
	b.Helper()
	for range n {
		m := &etcdserverpb.WatchResponse{
			WatchId: 7, Header: &etcdserverpb.ResponseHeader{ClusterId: 1 << 63, MemberId: 1 << 62, RaftTerm: 5},
		}
		for range events {
			w.revision++
			i := w.rng.IntN(len(w.versions))
			e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: benchKey(i), ModRevision: w.revision}}
			if w.versions[i] > 0 && w.rng.IntN(20) == 0 {
				e.Type, w.versions[i] = mvccpb.Event_DELETE, 0
			} else {
				w.versions[i]++
				e.Kv.CreateRevision, e.Kv.Version, e.Kv.Value = w.revision/2, w.versions[i], w.value
			}
			m.Events = append(m.Events, e)
		}
		m.Header.Revision = w.revision
		one, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		out = append(out, one)
	}
	return out
}

// eachResponse calls fn with a response in its wire form as often as b requests. Making the responses is not
// measured.
func (w *benchWriter) eachResponse(b *testing.B, events int, fn func([]byte)) {
	var ready [][]byte
	began := used(b)
	b.ReportAllocs()
	for b.Loop() {
		if len(ready) == 0 {
			b.StopTimer()
			before := used(b)
			ready = w.responses(b, 10_000/events, events)
			began += used(b) - before
			b.StartTimer()
		}
		fn(ready[0])
		ready = ready[1:]
	}
	n := float64(b.N * events)
	b.ReportMetric(n/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(used(b)-began)/n, "cpu-ns/event")
}

// used returns the CPU time of this process, including the garbage collector's.
func used(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Skip(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func eachSize(b *testing.B, fn func(b *testing.B, value, events int)) {
	b.Helper()
	for _, value := range []int{256, 1024} {
		for _, events := range []int{1, 100} {
			b.Run(fmt.Sprintf("value=%d/events=%d", value, events), func(b *testing.B) { fn(b, value, events) })
		}
	}
}

// BenchmarkDecode measures the decoding of a response to complete revisions.
func BenchmarkDecode(b *testing.B) {
	eachSize(b, func(b *testing.B, value, events int) {
		w := newBenchWriter(value)
		a := newAssembly(2)
		a.announced, a.id = true, 7
		var r watchResponse
		w.eachResponse(b, events, func(one []byte) {
			if err := r.decode(one); err != nil {
				b.Fatal(err)
			}
			updates, err := a.add(&r, time.Time{})
			if err != nil || len(updates) != events {
				b.Fatal(len(updates), err)
			}
		})
	})
}

// benchSource is a cache source that yields a state, and then the updates of the benchmark.
type benchSource struct {
	state []*kv.KeyValue
	after func(yield func(kv.Update, error) bool)
}

func (s *benchSource) Follow(context.Context, kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		if yield(kv.Update{Kind: kv.UpdateBegin, Revision: 1_000_000}, nil) && yield(kv.Update{Kind: kv.UpdateState, KVs: s.state}, nil) &&
			yield(kv.Update{Kind: kv.UpdateReady}, nil) {
			s.after(yield)
		}
	}
}

// BenchmarkBytesToApplied measures the time from the bytes of a response to their visibility in a cache of 100,000
// keys.
func BenchmarkBytesToApplied(b *testing.B) {
	eachSize(b, func(b *testing.B, value, events int) {
		w := newBenchWriter(value)
		a := newAssembly(2)
		a.announced, a.id = true, 7
		var r watchResponse
		ctx, cancel := context.WithCancel(b.Context())
		cfg := cache.Defaults()
		cfg.Source = &benchSource{state: w.state(), after: func(yield func(kv.Update, error) bool) {
			defer cancel()
			w.eachResponse(b, events, func(one []byte) {
				if err := r.decode(one); err != nil {
					b.Error(err)
				}
				updates, err := a.add(&r, time.Now())
				if err != nil || len(updates) != events {
					b.Error(len(updates), err)
				}
				for _, u := range updates {
					yield(u, nil)
				}
			})
		}}
		c := cache.New(cfg)
		if err := c.Run(ctx); err != nil {
			b.Fatal(err)
		}
		if got := c.Progress(); got != a.done {
			b.Fatalf("the cache has all revisions up to %d, the responses up to %d", got, a.done)
		}
	})
}

// BenchmarkQuietWatches measures the cost of a write for this client and an etcd in this
// process when watches get progress for each write, at 50 writes/s: with a stream each,
// and with one for all.
func BenchmarkQuietWatches(b *testing.B) {
	for _, watches := range []int{1, 16} {
		for _, shared := range []bool{false, true} {
			b.Run(fmt.Sprintf("watches=%d/shared=%v", watches, shared), func(b *testing.B) {
				s := etcdtest.Start(b)
				c, err := New(testConfig(s.Endpoint()))
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				joins := int64(watches)
				if !shared {
					c.muxes.next, joins = time.Now().Add(24*time.Hour), 0
				}
				quietWatches(b, s, c, watches, joins)
			})
		}
	}
}

func quietWatches(b *testing.B, s *etcdtest.Server, c *Client, watches int, joins int64) {
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	wants, reached := make([]kv.Demand, watches), make(chan kv.Revision, watches)
	for i := range watches {
		all.Go(func() {
			last := kv.Revision(0)
			for u, err := range c.Follow(ctx, kv.FollowRequest{Range: kv.Prefix(fmt.Sprintf("/s%02d/", i)), Want: &wants[i]}) {
				if err != nil {
					b.Error(err)
				}
				if u.Revision > last && u.Kind >= kv.UpdateReady {
					last = u.Revision
					reached <- last
				}
			}
		})
	}
	write := func() {
		r, err := s.Client().Put(ctx, "/s00/k", "v")
		if err != nil {
			b.Fatal(err)
		}
		now := kv.Revision(r.Header.Revision)
		for i := range wants {
			wants[i].Ask(now)
		}
		for left := watches; left > 0; {
			if <-reached >= now {
				left--
			}
		}
	}
	for write(); c.Stats().Joins < joins; {
		write()
	}
	every := time.NewTicker(20 * time.Millisecond)
	defer every.Stop()
	asked, began := c.Stats().ProgressAsked, used(b)
	for b.Loop() {
		<-every.C
		write()
	}
	b.ReportMetric(float64(used(b)-began)/float64(b.N)/1000, "cpu-µs/write")
	b.ReportMetric(float64(c.Stats().ProgressAsked-asked)/float64(b.N), "questions/write")
}
