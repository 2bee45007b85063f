package replica

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// calling is a source that calls a function.
type calling func(ctx context.Context, req kv.FollowRequest, yield func(kv.Update, error) bool)

func (c calling) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) { c(ctx, req, yield) }
}

// Progress that the consumer has taken directly counts: the next source gets a request for the revision after it.
// A source counts as followed only after its first update, and gives no progress directly before that.
func TestDirectProgressMovesThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var early, late bool
		first := calling(func(_ context.Context, req kv.FollowRequest, yield func(kv.Update, error) bool) {
			if req.From != 11 {
				yield(kv.Update{}, errGone)
				return
			}
			early = yield(begins(10), nil) && yield(isReady, nil) && req.Progress(15)
			late = yield(batch(11), nil) && req.Progress(20)
			yield(kv.Update{}, errGone)
		})
		var from []kv.Revision
		second := calling(func(_ context.Context, req kv.FollowRequest, _ func(kv.Update, error) bool) {
			from = append(from, req.From)
			cancel()
		})
		f := &Failover{
			Candidates: func() []Candidate { return []Candidate{{Name: "a", Source: first}, {Name: "b", Source: second}} },
			Logger:     slog.New(slog.DiscardHandler),
		}
		var taken []kv.Revision
		req := kv.FollowRequest{From: 11, Progress: func(revision kv.Revision) bool {
			taken = append(taken, revision)
			return true
		}}
		for range f.Follow(ctx, req) {
		}
		if early || !late || !slices.Equal(taken, []kv.Revision{20}) || !slices.Equal(from, []kv.Revision{21}) {
			t.Errorf("taken before the first update: %t, after it: %t; progress %v, requests to the next source from %v", early, late, taken, from)
		}
	})
}
