package server_test

import (
	"context"
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
	"github.com/shardwatch/shardwatch/internal/cachetest"
	"github.com/shardwatch/shardwatch/internal/replica"
)

// messages counts those of a connection, in both directions.
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

// allThere is woken by each of some caches, and says so with the last.
type allThere struct {
	missing atomic.Int32
	done    chan struct{}
}

func (a *allThere) Wake() {
	if a.missing.Add(-1) == 0 {
		a.done <- struct{}{}
	}
}

// What a write costs two nodes, of which one follows all shards of the other and waits
// until they have come to it, as a watch of everything does: messages between the two,
// and processor time of both.
func BenchmarkPair(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprint("shards=", n), func(b *testing.B) {
			h := cachetest.New()
			cuts := make([]string, 0, n)
			for i := range n - 1 {
				cuts = append(cuts, fmt.Sprintf("%03d", i+1))
			}
			m := cachetest.Map(1, cuts, "here")
			r := start(b, h, options{shards: m})
			var sent messages
			conn, err := grpc.NewClient(r.peers, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(&sent))
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			link := replica.NewLink(conn, nil)
			ctx, stop := context.WithCancel(context.Background())
			var running sync.WaitGroup
			defer running.Wait()
			defer stop()
			var caches []*cache.Cache
			for i := range m.Shards {
				sh := &m.Shards[i]
				sources := func() []replica.Candidate {
					return []replica.Candidate{{Name: "here", Source: &replica.Peer{Link: link, Shard: sh.ID, Self: "there", Silence: deadline}}}
				}
				cfg := cache.Defaults()
				cfg.Range, cfg.Lineage = sh.Range, 1
				cfg.Source = &replica.Failover{Candidates: sources, Warm: sources, Logger: slog.New(slog.DiscardHandler)}
				c := cache.New(cfg)
				running.Go(func() { _ = c.Run(ctx) }) // ends with ctx only
				<-c.Ready()
				caches = append(caches, c)
			}
			there := &allThere{done: make(chan struct{}, 1)}
			write := func(i int) {
				there.missing.Store(int32(n))
				at := h.Commit(cachetest.Put(fmt.Sprintf("%03d", i%n), "1"))
				for _, c := range caches {
					c.WakeAt(at, there)
				}
				<-there.done
			}
			for i := range n {
				write(i)
			}
			before, began, i := sent.n.Load(), cpu(), 0
			for b.Loop() {
				write(i)
				i++
			}
			b.ReportMetric(float64(cpu()-began)/float64(time.Microsecond)/float64(b.N), "cpu-µs/write")
			b.ReportMetric(float64(sent.n.Load()-before)/float64(b.N), "messages/write")
		})
	}
}

// cpu returns the processor time of the process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
