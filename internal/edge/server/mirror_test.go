package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// messages counts the messages of a connection, in both directions.
type messages struct{ n atomic.Int64 }

func (*messages) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*messages) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*messages) HandleConn(context.Context, stats.ConnStats)                       {}
func (m *messages) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s.(type) {
	case *stats.InPayload, *stats.OutPayload:
		m.n.Add(1)
	}
}

// allThere is woken by each of several caches, and signals the last wake-up.
type allThere struct {
	missing atomic.Int32
	done    chan struct{}
}

func (a *allThere) Wake() {
	if a.missing.Add(-1) == 0 {
		a.done <- struct{}{}
	}
}

// mirror is a second node that follows all shards of the first, over one connection.
type mirror struct {
	caches []*cache.Cache
	sent   messages
	cut    []func(bool) // for each shard: interrupts its connection, or restores it
	there  allThere
}

// mirrored returns a mirror of r with loaded caches.
func mirrored(tb testing.TB, r *running, tune func(*cache.Config)) *mirror {
	tb.Helper()
	m := &mirror{there: allThere{done: make(chan struct{}, 1)}}
	conn, err := grpc.NewClient(r.peers, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(&m.sent))
	if err != nil {
		tb.Fatal(err)
	}
	link := replica.NewLink(conn, nil)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	tb.Cleanup(func() { stop(); running.Wait(); _ = conn.Close() })
	for _, sh := range r.node.Map().Shards {
		var off atomic.Bool
		sources := func() []replica.Candidate {
			if off.Load() {
				return nil
			}
			return []replica.Candidate{{Name: "here", Source: &replica.Peer{Link: link, Shard: sh.ID, Self: "there", Silence: deadline}}}
		}
		f := &replica.Failover{Candidates: sources, Warm: sources, Logger: slog.New(slog.DiscardHandler)}
		cfg := cache.Defaults()
		cfg.Range, cfg.Lineage, cfg.Source = sh.Range, 1, f
		if tune != nil {
			tune(&cfg)
		}
		c := cache.New(cfg)
		running.Go(func() { _ = c.Run(ctx) }) // ends with ctx only
		<-c.Ready()
		m.caches = append(m.caches, c)
		m.cut = append(m.cut, func(is bool) {
			off.Store(is)
			f.Change(errors.New("the test has interrupted the connection"))
		})
	}
	return m
}

// reach waits until all caches have reached a revision, like a watch of all keys.
func (m *mirror) reach(at kv.Revision) {
	m.there.missing.Store(int32(len(m.caches)))
	for _, c := range m.caches {
		c.WakeAt(at, &m.there)
	}
	<-m.there.done
}

// numbered returns a map of n shards with three-digit keys, one key for each shard.
func numbered(n int) *shard.Map {
	cuts := make([]string, 0, n)
	for i := range n - 1 {
		cuts = append(cuts, fmt.Sprintf("%03d", i+1))
	}
	return cachetest.Map(1, cuts, "here")
}

// BenchmarkPair measures a write on two nodes, of which one follows all shards of the other and
// waits for their events: messages between the two, and CPU time of both.
func BenchmarkPair(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprint("shards=", n), func(b *testing.B) {
			h := cachetest.New()
			m := mirrored(b, start(b, h, options{shards: numbered(n)}), nil)
			write := func(i int) { m.reach(h.Commit(cachetest.Put(fmt.Sprintf("%03d", i%n), "1"))) }
			for i := range n {
				write(i)
			}
			before, began, i := m.sent.n.Load(), cpu(), 0
			for b.Loop() {
				write(i)
				i++
			}
			b.ReportMetric(float64(cpu()-began)/float64(time.Microsecond)/float64(b.N), "cpu-µs/write")
			b.ReportMetric(float64(m.sent.n.Load()-before)/float64(b.N), "messages/write")
		})
	}
}

// BenchmarkUnwatched measures a write each 5 ms on two nodes, of which one follows the other and
// has no reader, or one watch: messages between the two, and CPU time of both.
func BenchmarkUnwatched(b *testing.B) {
	for _, watched := range []bool{false, true} {
		b.Run(fmt.Sprint("watched=", watched), func(b *testing.B) {
			h := cachetest.New()
			r := start(b, h, options{shards: numbered(1)})
			m := mirrored(b, r, nil)
			home := r.node.Replica(1)
			if watched {
				w, err := m.caches[0].Watch(kv.Single("none"), 1<<40, &m.there)
				if err != nil {
					b.Fatal(err)
				}
				defer w.Close()
			}
			m.reach(h.Commit(cachetest.Put("000", "1")))
			time.Sleep(2 * replica.Heartbeat) // until a ping has reported that there is no reader
			before, began := m.sent.n.Load(), cpu()
			var at kv.Revision
			for b.Loop() {
				time.Sleep(5 * time.Millisecond) // the interval of the writes
				at = h.Commit(cachetest.Put("000", "1"))
				if err := home.WaitProgress(b.Context(), at); err != nil {
					b.Fatal(err)
				}
			}
			m.reach(at)
			b.ReportMetric(float64(cpu()-began)/float64(time.Microsecond)/float64(b.N), "cpu-µs/write")
			b.ReportMetric(float64(m.sent.n.Load()-before)/float64(b.N), "messages/write")
		})
	}
}

// A write costs two nodes as many messages with 64 shards as with two: the events, a request and an
// answer. A busy machine may occasionally need a second answer.
func TestMessagesOfAWrite(t *testing.T) {
	const writes = 100
	for _, n := range []int{2, 16, 64} {
		h := cachetest.New()
		m := mirrored(t, start(t, h, options{shards: numbered(n)}), nil)
		m.reach(h.Commit(cachetest.Put("000", "1")))
		before := m.sent.n.Load()
		for i := range writes {
			m.reach(h.Commit(cachetest.Put(fmt.Sprintf("%03d", i%n), "1")))
		}
		if got := m.sent.n.Load() - before; got > 6*writes {
			t.Errorf("%d shards: %d messages for %d writes, want at most 6 for each", n, got, writes)
		}
	}
}

// A follower always has all events up to the revision that it reports, even if several shards are
// written concurrently, streams begin and end, and followers get deltas because the windows are
// short.
func TestFollowersHaveTheRevisionThatTheyReport(t *testing.T) {
	const n = 4
	rnd := testseed.Rand(t)
	h := cachetest.New()
	r := start(t, h, options{shards: numbered(n), cache: smallWindow, server: func(c *server.Config) { c.FragmentBytes = 1024 }})
	m := mirrored(t, r, smallWindow)
	check := func(c *cache.Cache) {
		t.Helper()
		x, err := c.Export()
		if err != nil {
			t.Fatal(err)
		}
		want := h.State(c.Range(), x.Snapshot.Revision)
		x.Snapshot.Ascend(c.Range(), func(item *kv.KeyValue) bool {
			if len(want) == 0 || string(want[0].Encoded()) != string(item.Encoded()) {
				t.Fatalf("range %v at revision %d has %s of revision %d", c.Range(), x.Snapshot.Revision, item.Key(), item.ModRevision())
			}
			want = want[1:]
			return true
		})
		if len(want) > 0 {
			t.Fatalf("range %v at revision %d lacks %s of revision %d", c.Range(), x.Snapshot.Revision, want[0].Key(), want[0].ModRevision())
		}
	}
	for range 300 {
		for range rnd.IntN(40) {
			var ops []cachetest.Op
			for _, i := range rnd.Perm(n)[:1+rnd.IntN(2)] {
				key := fmt.Sprintf("%03d/%d", i, rnd.IntN(20))
				if rnd.IntN(4) == 0 {
					ops = append(ops, cachetest.Delete(key))
				} else {
					ops = append(ops, cachetest.Put(key, fmt.Sprint(rnd.IntN(1000))))
				}
			}
			h.Commit(ops...)
		}
		i := rnd.IntN(n)
		switch rnd.IntN(5) {
		case 0:
			m.cut[i](true)
		case 1, 2:
			m.cut[i](false)
		case 3:
			m.caches[i].Demand(h.Now())
		}
		for _, c := range m.caches {
			check(c)
		}
	}
	leaps := int64(0)
	for i, c := range m.caches {
		m.cut[i](false)
		leaps += c.Status().Leaps
	}
	m.reach(h.Now())
	for _, c := range m.caches {
		check(c)
	}
	t.Logf("%d leaps after resets, up to revision %d", leaps, h.Now())
}

// cpu returns the CPU time of the process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// smallWindow keeps the last few revisions.
func smallWindow(c *cache.Config) { c.WindowBytes = 4 << 10 }
