package copies

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
)

// predecessors are ending caches as a source of the events that they still receive.
// Their successors begin to follow etcd a moment later, and a compaction in between may
// remove the events of that moment from etcd.
type predecessors struct {
	lineage uint64
	caches  []*cache.Cache
	// patience is how long Follow waits for new events.
	patience time.Duration
}

// predecessors returns the current predecessors as candidates.
func (s *sources) predecessors() []replica.Candidate {
	if f := s.going.Load(); f != nil && len(f.caches) > 0 {
		return []replica.Candidate{{Name: string(s.cfg.Self), Source: f}}
	}
	return nil
}

// Follow implements replica.Source. It waits for new events, yields them, and ends.
func (f *predecessors) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		batches, progress, err := f.since(ctx, req)
		if err != nil {
			if ctx.Err() == nil {
				yield(kv.Update{}, err)
			}
			return
		}
		if !yield(kv.Update{Kind: kv.UpdateBegin, Revision: req.From - 1, Floor: req.From}, nil) || !yield(kv.Update{Kind: kv.UpdateReady, Revision: req.From - 1}, nil) {
			return
		}
		for _, b := range batches {
			if !yield(kv.Update{Kind: kv.UpdateBatch, Revision: b.Revision, Batch: *b}, nil) {
				return
			}
		}
		yield(kv.Update{Kind: kv.UpdateProgress, Revision: progress}, nil)
	}
}

func (f *predecessors) since(ctx context.Context, req kv.FollowRequest) (batches []*kv.Batch, progress kv.Revision, err error) {
	if req.Lineage != f.lineage {
		return nil, 0, &kv.LineageError{Requested: req.Lineage, Current: f.lineage}
	}
	nothing := &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "the range's predecessors have nothing new"}
	if req.From == 0 {
		return nil, 0, nothing
	}
	soon, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	for _, c := range f.caches {
		if c.Range().Overlaps(req.Range) {
			c.Demand(req.From)
			_ = c.WaitProgress(soon, req.From) // the progress is checked below
		}
	}
	batches, progress, err = cache.Since(req.Range, req.From, f.caches...)
	if errors.Is(err, cache.ErrNotReady) || err == nil && progress < req.From {
		err = nothing
	}
	return batches, progress, err
}
