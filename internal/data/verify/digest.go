package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Digest implements server.Verifier.
func (v *Verifier) Digest(ctx context.Context, r *peerv1.DigestRequest) (*peerv1.DigestResponse, error) {
	id := shard.ID(r.GetShardId())
	home := v.cfg.Replica(id)
	if home == nil {
		return nil, &kv.NotHereError{Shard: uint64(id)}
	}
	if r.GetLineage() != home.Lineage() {
		return nil, &kv.LineageError{Requested: r.GetLineage(), Current: home.Lineage()}
	}
	if key, end := home.Range().Etcd(); string(key) != string(r.GetKey()) || string(end) != string(r.GetRangeEnd()) {
		return nil, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: fmt.Sprintf("shard %d has a different range here", id)}
	}
	soon, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	if revision := kv.Revision(r.GetRevision()); revision > home.Progress() {
		home.Demand(revision)
	}
	state, err := home.At(soon, kv.Revision(r.GetRevision())) // now, because it may have to wait for its turn
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return nil, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: fmt.Sprintf("shard %d is at revision %d and has not reached %d", id, home.Progress(), r.GetRevision())}
	case errors.Is(err, cache.ErrNotReady), errors.Is(err, cache.ErrRetired):
		return nil, &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: fmt.Sprintf("shard %d: %v", id, err)}
	case err != nil:
		return nil, err
	}
	if r.GetEtcd() {
		return v.againstEtcd(ctx, home, state)
	}
	pace, done, err := v.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	out := &peerv1.DigestResponse{Revision: int64(state.Revision)}
	if len(r.GetBuckets()) > 0 {
		keys, more, err := state.KeyDigests(ctx, r.GetBuckets(), detailed, pace)
		out.KeyDigests, out.More = keyMessages(keys), more
		return out, err
	}
	d, err := state.Digest(ctx, pace)
	if err != nil {
		return nil, err
	}
	v.bytes.Add(d.Bytes)
	out.Keys, out.Bytes, out.Buckets = d.Keys, d.Bytes, d.Buckets[:]
	return out, nil
}

func keyMessages(keys []keytree.KeyDigest) []*peerv1.KeyDigest {
	out := make([]*peerv1.KeyDigest, 0, len(keys))
	for _, k := range keys {
		out = append(out, &peerv1.KeyDigest{Key: []byte(k.Key), ModRevision: int64(k.ModRevision), Hash: k.Hash})
	}
	return out
}

// begin waits for the turn to digest. The caller calls pace regularly, which sleeps so
// that the work takes no more than verifyShare. done ends the work, and releases the
// turn when the share allows it.
func (v *Verifier) begin(ctx context.Context) (pace func(context.Context) error, done func(), err error) {
	select {
	case v.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	began := time.Now()
	worked := func() (rest time.Duration) {
		w := time.Since(began)
		v.busy.Add(int64(w))
		return time.Duration(float64(w) * (1/verifyShare - 1))
	}
	return func(ctx context.Context) error {
			if !wait.Sleep(ctx, worked()) {
				return ctx.Err()
			}
			began = time.Now()
			return nil
		}, func() {
			time.AfterFunc(worked(), func() { <-v.turn })
		}, nil
}

// againstEtcd compares a state with etcd's state at the same revision.
func (v *Verifier) againstEtcd(ctx context.Context, home *cache.Cache, state *keytree.Snapshot) (*peerv1.DigestResponse, error) {
	rest := home.Range()
	var found []keytree.KeyDigest
	errEnough := errors.New("enough")
	differ := func(mine, is []keytree.KeyDigest) error {
		for _, d := range keytree.Differences(mine, is) {
			if len(found) == differing {
				return errEnough
			}
			found = append(found, keytree.KeyDigest{Key: d.Key, ModRevision: d.Mine.ModRevision, Hash: d.Mine.Hash})
		}
		return nil
	}
	err := v.cfg.Etcd.At(ctx, rest, state.Revision, func(page []*kv.KeyValue) error {
		is, bytes := make([]keytree.KeyDigest, len(page)), 0
		for i, k := range page {
			is[i] = digestOf(k)
			bytes += len(k.Encoded())
		}
		next := is[len(is)-1].Key + "\x00"
		mine := state.Keys(kv.Range{Start: rest.Start, End: next}, -1)
		rest.Start = next
		if !wait.Sleep(ctx, time.Duration(bytes)*time.Second/etcdRate) {
			return ctx.Err()
		}
		return differ(mine, is)
	})
	if err == nil {
		err = differ(state.Keys(rest, differing+1), nil)
	}
	more := errors.Is(err, errEnough)
	if err != nil && !more {
		return nil, err
	}
	if err := v.sameHistory(ctx); err != nil {
		return nil, err
	}
	return &peerv1.DigestResponse{Revision: int64(state.Revision), KeyDigests: keyMessages(found), More: more}, nil
}
