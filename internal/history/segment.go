package history

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

func shardOf(name []byte) shard.ID { return shard.ID(binary.BigEndian.Uint64(name)) }

// segment is the decoded content of a segment.
//
// Invariant: batches and deletes are in order, are later than after, and are complete
// up to progress.
type segment struct {
	after, progress kv.Revision
	batches         []*kv.Batch
	deletes         []kv.Tombstone
}

// readSegment reads the intact part of a segment; torn is the error that ends it early.
func readSegment(b *bbolt.Bucket, at place, r kv.Range) (s *segment, torn error) {
	s = &segment{after: at.after, progress: at.after}
	if b == nil {
		return s, fmt.Errorf("%w: no bucket", errDamaged)
	}
	latest := make(map[string]*kv.KeyValue)
	c := b.Cursor()
	for key, value := c.First(); key != nil; key, value = c.Next() {
		// With a wrong length, key or value lie outside of the file: reading them may panic, or
		// read other memory of the process. Both cost the rest of the segment, not the file.
		if err := guard(func() error {
			if string(key) == extentKey {
				return nil
			}
			body, err := unseal(at, key, value)
			if err != nil {
				return err
			}
			return s.take(at.kind, key, body, r, latest)
		}); err != nil {
			return s, fmt.Errorf("after revision %d: %w", s.progress, err)
		}
	}
	value := b.Get([]byte(extentKey))
	if value == nil {
		return s, nil // the process died before it wrote an extent
	}
	body, err := unseal(at, []byte(extentKey), value)
	if err != nil {
		return s, err
	}
	e, err := decodeExtent(body, at.after)
	switch {
	case err != nil:
		return s, err
	case e.last > s.progress:
		return s, fmt.Errorf("%w: the last record is that of revision %d, not %d", errDamaged, s.progress, e.last)
	}
	s.progress = max(s.progress, e.progress)
	return s, nil
}

// take adds a record, whose predecessor must be the last one added.
func (s *segment) take(k kind, key, body []byte, r kv.Range, latest map[string]*kv.KeyValue) error {
	if len(key) != len(revisionKey(0)) {
		return fmt.Errorf("%w: a key of %d bytes", errDamaged, len(key))
	}
	revision := kv.Revision(binary.BigEndian.Uint64(key)) //nolint:gosec // compared below
	in := reader{b: body}
	if before := in.revision(); in.bad || before != s.progress {
		return fmt.Errorf("%w: the record before revision %d is that of %d, not %d", errDamaged, revision, before, s.progress)
	}
	if revision <= s.progress {
		return fmt.Errorf("%w: revision %d follows %d", errDamaged, revision, s.progress)
	}
	outside := func(key []byte) error {
		if !r.ContainsBytes(key) {
			return fmt.Errorf("%w: %q is not in %v", errDamaged, key, r)
		}
		return nil
	}
	if k == kindDeletes {
		keys, err := decodeDeletes(in.b)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if err := outside([]byte(key)); err != nil {
				return err
			}
		}
		for _, key := range keys {
			s.deletes = append(s.deletes, kv.Tombstone{Key: key, Revision: revision})
		}
		s.progress = revision
		return nil
	}
	b, err := decodeBatch(in.b, latest)
	if err != nil {
		return err
	}
	if b.Revision != revision {
		return fmt.Errorf("%w: revision %d at %d", errDamaged, b.Revision, revision)
	}
	for i := range b.Events {
		if err := outside(b.Events[i].KV.Key()); err != nil {
			return err
		}
	}
	s.batches, s.progress = append(s.batches, b), revision
	return nil
}

// chain joins the newest segments without a gap between them. segments is in order.
func chain(segments []*segment) (joined segment, used int) {
	if len(segments) == 0 {
		return segment{}, 0
	}
	first := len(segments) - 1
	for first > 0 && segments[first-1].progress >= segments[first].after {
		first--
	}
	joined.after, joined.progress = segments[first].after, segments[first].after
	for _, s := range segments[first:] {
		// A segment without a recorded end may overlap its successor.
		for _, b := range s.batches {
			if b.Revision > joined.progress {
				joined.batches = append(joined.batches, b)
			}
		}
		for _, d := range s.deletes {
			if d.Revision > joined.progress {
				joined.deletes = append(joined.deletes, d)
			}
		}
		joined.progress = max(joined.progress, s.progress)
	}
	return joined, len(segments) - first
}
