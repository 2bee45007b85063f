// Package past keeps former versions of objects. Start at [Past].
package past

import (
	"sync"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Past keeps former versions of objects, for watches that are below the window: the last version of
// each deleted object, and the versions that were held at the beginning of a gap that the source
// leapt over. Controllers need the labels and owners of a deleted object, and a selector needs the
// former version to decide whether it matched.
//
// Its size is bounded in bytes; the oldest versions are evicted first.
type Past struct {
	maxBytes int64

	mu    sync.Mutex
	byKey map[string][]former // guarded by mu; the oldest first
	order []string            // guarded by mu; the key of each version, in order of arrival
	first uint64              // guarded by mu; the sequence number of order[0]
	bytes int64               // guarded by mu
	// gaps are the versions at which gaps begin, each with the sequence number of
	// its first kept object.
	gaps map[kv.Revision]uint64 // guarded by mu
	// newestGap is the version at which the newest gap begins.
	newestGap kv.Revision // guarded by mu
}

// former is a version of an object, current at all versions of the resource in
// [from, until).
type former struct {
	object      []byte
	from, until kv.Revision
}

// maxGaps bounds the number of recorded gaps, as a cache does for its leaps.
const maxGaps = 16

// New returns a Past that holds at most maxBytes bytes.
func New(maxBytes int64) *Past {
	return &Past{maxBytes: maxBytes, byKey: map[string][]former{}, gaps: map[kv.Revision]uint64{}}
}

func (f *former) size(key string) int64 { return int64(128 + 2*len(key) + len(f.object)) }

// Applied keeps the objects that a batch has deleted. It also keeps replaced objects that were held
// at the beginning of a gap: without them, an object that changes after the gap would seem not to
// have existed at its beginning.
func (p *Past) Applied(b *kv.Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range b.Events {
		e := &b.Events[i]
		if e.Type != kv.Delete {
			if len(p.gaps) > 0 && e.Prev != nil && e.Prev.ModRevision() <= p.newestGap {
				p.keepLocked(string(e.KV.Key()), former{object: e.Prev.Value(), from: e.Prev.ModRevision(), until: b.Revision})
			}
			continue
		}
		from := b.Revision // unknown
		if e.Prev != nil {
			from = e.Prev.ModRevision()
		}
		p.keepLocked(string(e.KV.Key()), former{object: e.KV.Value(), from: from, until: b.Revision})
	}
}

// Gap keeps the objects that were held before a gap and changed or deleted in
// it.
func (p *Past) Gap(after, before kv.Revision, held []*kv.KeyValue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.gaps) == maxGaps {
		clear(p.gaps)
	}
	p.gaps[after], p.newestGap = p.first+uint64(len(p.order)), after
	for _, item := range held {
		p.keepLocked(string(item.Key()), former{object: item.Value(), from: item.ModRevision(), until: before})
	}
}

func (p *Past) keepLocked(key string, f former) {
	p.byKey[key] = append(p.byKey[key], f)
	p.order = append(p.order, key)
	p.bytes += f.size(key)
	for p.bytes > p.maxBytes {
		oldest := p.order[0]
		versions := p.byKey[oldest]
		p.bytes -= versions[0].size(oldest)
		if p.byKey[oldest] = versions[1:]; len(versions) == 1 {
			delete(p.byKey, oldest)
		}
		for after, first := range p.gaps {
			if first <= p.first {
				delete(p.gaps, after) // it is no longer complete
			}
		}
		p.order[0] = ""
		p.order = p.order[1:]
		p.first++
	}
}

// At returns the object of a key that has changed since a version, as of that
// version; nil: it did not exist. known is false if this cannot be decided.
func (p *Past) At(key string, version kv.Revision) (object []byte, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.byKey[key] {
		if f.from <= version && version < f.until {
			return f.object, true
		}
	}
	_, known = p.gaps[version]
	return nil, known
}

// Last returns the last version of a deleted object, or nil.
func (p *Past) Last(key string) (object []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if versions := p.byKey[key]; len(versions) > 0 {
		return versions[len(versions)-1].object
	}
	return nil
}
