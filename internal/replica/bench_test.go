package replica

import (
	"context"
	"iter"
	"log/slog"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// stock is a source with any number of revisions ready.
type stock struct{}

func (stock) Follow(_ context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		more := yield(kv.Update{Kind: kv.UpdateBegin, Revision: req.From - 1, Floor: req.From}, nil) && yield(kv.Update{Kind: kv.UpdateReady}, nil)
		for revision := req.From; more; revision++ {
			more = yield(kv.Update{Kind: kv.UpdateBatch, Revision: revision, Batch: kv.Batch{Revision: revision}}, nil)
		}
	}
}

// BenchmarkFollow measures the cost of a Failover for each update: the step from the source's coroutine, and the
// recording of the position. The first benchmark is the source alone.
func BenchmarkFollow(b *testing.B) {
	f := &Failover{
		Candidates: func() []Candidate { return []Candidate{{Name: Etcd, Direct: true, Source: stock{}}} },
		Warm:       func() []Candidate { return nil },
		Logger:     slog.New(slog.DiscardHandler),
	}
	for name, s := range map[string]Source{"by=source": stock{}, "by=failover": f} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for u, err := range s.Follow(b.Context(), kv.FollowRequest{From: 1}) {
				if err != nil {
					b.Fatal(err)
				}
				if u.Kind == kv.UpdateBatch {
					if n++; n >= b.N {
						break
					}
				}
			}
		})
	}
}
