package router

import (
	"context"
	"errors"
	"slices"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// errNoCount reports that a node is too old to count keys.
var errNoCount = errors.New("a queried node runs a version that does not count keys")

// Count returns the number of keys in the range. It does not read the keys on
// this node one by one.
func (g *Reading) Count(ctx context.Context) (int64, error) {
	return g.Scan(ctx, ScanOptions{Limit: -1}, nil)
}

// Here reports whether all parts are on this node.
func (g *Reading) Here() bool {
	return !slices.ContainsFunc(g.parts, func(p part) bool { return p.snapshot == nil })
}

// ScanOptions narrow the result of Scan.
type ScanOptions struct {
	// Limit bounds the number of keys; 0: all, below 0: none.
	Limit int64
	// KeysOnly lets other nodes leave the values out.
	KeysOnly bool
	// Fetched is called with each key of another node before fn; may be nil. Scan stops at its first error.
	// The budget counts the key only until fn returns.
	Fetched func(*kv.KeyValue) error
	// Waits is called before Scan waits for another node, so that the caller can give up its turn; may be nil.
	Waits func()
}

// Scan calls fn with the keys in order, without copying them, and returns the number of
// keys in the range, regardless of the limit. It stops at fn's first error, and fails as
// Read does. When it returns, Revision is known even if another node chose it.
func (g *Reading) Scan(ctx context.Context, o ScanOptions, fn func(*kv.KeyValue) error) (count int64, err error) {
	left := o.Limit
	each := func(item *kv.KeyValue) error {
		if left > 0 {
			left--
		}
		return fn(item)
	}
	waits := o.Waits
	if waits == nil {
		waits = func() {}
	}
	fetched := each
	if o.Fetched != nil {
		fetched = func(item *kv.KeyValue) error {
			if err := o.Fetched(item); err != nil {
				return err
			}
			return each(item)
		}
	}
	for i := range g.parts {
		p := &g.parts[i]
		var n int64
		if p.snapshot != nil {
			n, err = p.scan(left, each)
		} else {
			n, err = g.scanRemote(ctx, p, left, o.KeysOnly, waits, fetched)
			err = g.retriable(err)
		}
		if err != nil {
			return 0, err
		}
		count += n
		if o.Limit > 0 && left == 0 {
			left = -1 // the other parts are only counted
		}
	}
	return count, nil
}

// scan reads a part from this node. The count tells it where the range ends, without
// a comparison of each key.
func (p *part) scan(limit int64, fn func(*kv.KeyValue) error) (count int64, err error) {
	if p.rng.IsSingle() {
		item := p.snapshot.Get(p.rng.Start)
		if item == nil {
			return 0, nil
		}
		if limit >= 0 {
			err = fn(item)
		}
		return 1, err
	}
	all := p.snapshot.Count(p.rng)
	n := all
	if limit < 0 {
		n = 0
	} else if limit > 0 && limit < int64(n) {
		n = int(limit)
	}
	p.snapshot.AscendN(p.rng.Start, n, func(item *kv.KeyValue) bool {
		err = fn(item)
		return err == nil
	})
	return int64(all), err
}

// scanRemote reads a part from another node. Readings of one revision share
// a fetch. It calls waits before it waits for the other node.
func (g *Reading) scanRemote(ctx context.Context, p *part, limit int64, keysOnly bool, waits func(), fn func(*kv.KeyValue) error) (count int64, err error) {
	waits()
	key, end := p.rng.Etcd()
	req := &shardwatchv1.ListRequest{Key: key, RangeEnd: end, KeysOnly: keysOnly, Limit: max(0, limit), Count: true, CountOnly: limit < 0}
	if g.Revision == 0 || limit < 0 || p.rng.IsSingle() {
		return g.scanNode(ctx, p, req, waits, fn)
	}
	k := fetchKey{shard: p.shard.ID, lineage: g.Lineage, revision: g.Revision, rng: p.rng, limit: limit, keysOnly: keysOnly}
	f, leave, err := g.r.fetches.get(ctx, k, func(f *fetch) (err error) {
		f.load = load{budget: g.r.cfg.Budget, over: g.r.over}
		f.count, err = g.scanNode(ctx, p, req, func() {}, func(item *kv.KeyValue) error {
			f.items = append(f.items, item)
			return f.load.add(ctx, item)
		})
		return err
	})
	if err != nil {
		return 0, err
	}
	defer leave()
	for _, item := range f.items {
		if err := fn(item); err != nil {
			return 0, err
		}
	}
	return f.count, nil
}

// scanNode reads a part from another node. It calls waits before it waits for the next message.
func (g *Reading) scanNode(ctx context.Context, p *part, req *shardwatchv1.ListRequest, waits func(), fn func(*kv.KeyValue) error) (count int64, err error) {
	count = -1
	err = g.remote(ctx, p.shard, req, func(m *wire.ListMessage) error {
		for _, item := range m.KVs {
			if err := fn(item); err != nil {
				return err
			}
		}
		count = max(count, m.Count)
		waits()
		return nil
	})
	if err == nil && count < 0 {
		err = errNoCount
	}
	return count, err
}
