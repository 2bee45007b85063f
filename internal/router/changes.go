package router

import (
	"context"
	"errors"
	"fmt"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Body is the complete result of a reading: using it needs no other node. It
// never changes, and may be used from any goroutine.
type Body struct {
	// Revision is the revision of all keys in it.
	Revision kv.Revision
	// Lineage is the history that Revision belongs to.
	Lineage uint64

	sections []section
	deleted  []string
	load     load // of keys from other nodes
}

// Release returns the Body's bytes to the budget. It must not be called concurrently.
func (b *Body) Release() {
	if b != nil {
		b.load.release()
	}
}

// NewBody returns a Body of changed keys and deleted ones.
func NewBody(lineage uint64, revision kv.Revision, changed []*kv.KeyValue, deleted []string) *Body {
	return &Body{Revision: revision, Lineage: lineage, sections: []section{{items: changed}}, deleted: deleted}
}

// section is the part of one shard: the keys of a range in a snapshot, or items.
type section struct {
	snapshot *keytree.Snapshot
	rng      kv.Range
	items    []*kv.KeyValue
}

// Place is a position in a Body. The zero Place is its beginning.
type Place struct {
	section int
	from    string // in a snapshot, the first unread key
	item    int    // in items, the first unread one
	deleted int
}

// Chunk is a part of a Body.
type Chunk struct {
	KVs     []*kv.KeyValue
	Deleted []string
}

// Chunk returns approximately the given number of bytes of items from a place on, and
// the place after them. Equal arguments always return the same chunk.
func (b *Body) Chunk(at Place, bytes int) (Chunk, Place) {
	var out Chunk
	take := func(item *kv.KeyValue) (taken bool) {
		if bytes <= 0 {
			return false
		}
		out.KVs = append(out.KVs, item)
		bytes -= len(item.Encoded())
		return true
	}
	for at.section < len(b.sections) {
		s := &b.sections[at.section]
		for ; at.item < len(s.items); at.item++ {
			if !take(s.items[at.item]) {
				return out, at
			}
		}
		more := false
		if s.snapshot != nil {
			rng := s.rng
			rng.Start = max(rng.Start, at.from)
			s.snapshot.Ascend(rng, func(item *kv.KeyValue) bool {
				if more = !take(item); more {
					at.from = string(item.Key())
				}
				return !more
			})
		}
		if more {
			return out, at
		}
		at = Place{section: at.section + 1}
	}
	for ; at.deleted < len(b.deleted) && bytes > 0; at.deleted++ {
		out.Deleted = append(out.Deleted, b.deleted[at.deleted])
		bytes -= len(b.deleted[at.deleted])
	}
	return out, at
}

// End reports whether a place is the end of the body.
func (b *Body) End(at Place) bool {
	return at.section >= len(b.sections) && at.deleted >= len(b.deleted)
}

// Hold returns all keys of the reading. Keys from other nodes are fetched once for
// all identical reads, and are held until the Body is released. It fails with a
// *kv.LimitError when Bodies hold too many of them, and with a *kv.CompactedError when another
// node has dropped the revision, even if the request names none.
func (g *Reading) Hold(ctx context.Context) (_ *Body, err error) {
	out := &Body{Lineage: g.Lineage, load: load{budget: g.r.cfg.Budget, holder: g.req.Holder}}
	defer func() {
		if err != nil {
			out.Release()
		}
	}()
	for i := range g.parts {
		p := &g.parts[i]
		if p.snapshot != nil {
			out.sections = append(out.sections, section{snapshot: p.snapshot, rng: p.rng})
			continue
		}
		var items []*kv.KeyValue
		if _, err := g.scanRemote(ctx, p, 0, false, func() {}, func(item *kv.KeyValue) error {
			items = append(items, item)
			return nil
		}); err != nil {
			return nil, err
		}
		if err := out.load.add(ctx, items...); err != nil {
			return nil, err
		}
		out.sections = append(out.sections, section{items: items})
	}
	out.Revision = g.Revision
	return out, nil
}

// Changes returns the changes in the range after revision since: each changed key
// with its value at the reading's revision, and the deleted keys. If a local shard does
// not reach back so far, another node is asked for its changes.
//
// If no node reaches back to since for some shard, it fails with a *kv.CompactedError with
// Requested since+1 and the highest Floor that a shard has reported. It fails with a
// *kv.FutureError when since is ahead, with a *kv.LimitError as Hold does, and as Read does.
func (g *Reading) Changes(ctx context.Context, since kv.Revision) (_ *Body, err error) {
	out := &Body{Lineage: g.Lineage, load: load{budget: g.r.cfg.Budget, holder: g.req.Holder}}
	defer func() {
		if err != nil {
			out.Release()
		}
	}()
	var floor kv.Revision
	for i := range g.parts {
		found, err := g.changes(ctx, &g.parts[i], since, &out.load)
		var compacted *kv.CompactedError
		switch {
		case errors.As(err, &compacted) && compacted.Requested == since+1:
			floor = max(floor, compacted.Floor) // other shards may have a higher one
		case err != nil:
			return nil, g.retriable(err)
		default:
			out.sections = append(out.sections, section{items: found.Changed})
			out.deleted = append(out.deleted, found.Deleted...)
		}
	}
	if floor > 0 {
		return nil, &kv.CompactedError{Requested: since + 1, Floor: floor}
	}
	out.Revision = g.Revision
	return out, nil
}

// changes returns the changes in one shard.
func (g *Reading) changes(ctx context.Context, p *part, since kv.Revision, held *load) (*cache.Changes, error) {
	if p.home == nil {
		return g.changesElsewhere(ctx, p, since, held)
	}
	found, err := p.home.Changes(ctx, p.rng, since, g.Revision)
	var compacted *kv.CompactedError
	if g.req.Local || !errors.As(err, &compacted) || compacted.Requested != since+1 {
		return found, Soon(p.shard, err)
	}
	if other, failed := g.changesElsewhere(ctx, p, since, held); failed == nil {
		return other, nil
	}
	return nil, err
}

// changesElsewhere asks the shard's other nodes.
func (g *Reading) changesElsewhere(ctx context.Context, p *part, since kv.Revision, held *load) (*cache.Changes, error) {
	if since == 0 { // in a request 0 means a list of all keys
		return nil, &kv.CompactedError{Requested: 1, Floor: 2}
	}
	key, end := p.rng.Etcd()
	req := &shardwatchv1.ListRequest{Key: key, RangeEnd: end, ChangedSince: int64(since)}
	out := &cache.Changes{}
	err := g.remote(ctx, p.shard, req, func(m *wire.ListMessage) error {
		out.Changed = append(out.Changed, m.KVs...)
		out.Deleted = append(out.Deleted, m.Deleted...)
		return held.add(ctx, m.KVs...)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Present returns the newest revision that a shard of rng has reached on this node,
// or etcd's revision when no shard of rng is here. The revision is known to exist,
// and a watch of rng from the next revision does not start too early. It fails with a
// *kv.UnavailableError or a *kv.NotServedError.
func (r *Router) Present(ctx context.Context, rng kv.Range) (kv.Revision, error) {
	m, shards, err := r.parts(rng)
	if err != nil {
		return 0, err
	}
	var newest kv.Revision
	for i := range shards {
		part, _ := shards[i].Range.Intersect(rng)
		if c := r.cfg.Shards.Replica(shards[i].ID); serves(c, m.Lineage, part) {
			newest = max(newest, c.Progress())
		}
	}
	if newest > 0 {
		return newest, nil
	}
	if newest, err = r.Now(ctx); err != nil {
		return 0, fmt.Errorf("no shard of %v is here: %w", rng, err)
	}
	return newest, nil
}
