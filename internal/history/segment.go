package history

import (
	"fmt"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// segment is what one file says.
//
// Invariant: batches and deletes are in order, lie behind header.after, and are
// all that happened up to progress.
type segment struct {
	header
	progress kv.Revision
	batches  []*kv.Batch
	deletes  []kv.Tombstone
	valid    int // bytes
}

// decode reads a file as far as it is valid. It fails when not even the header
// is; torn says what ended it before its end, and is nil otherwise. The segment
// keeps file.
func decode(file []byte) (s *segment, torn, err error) {
	if len(file) < len(magic) || string(file[:len(magic)]) != magic {
		return nil, nil, fmt.Errorf("%w: it is no file of history that this version knows", errCorrupt)
	}
	body, offset, err := next(file, len(magic), 0)
	if err != nil {
		return nil, nil, err
	}
	if kind(body[0]) != kindHeader {
		return nil, nil, fmt.Errorf("%w: no header", errCorrupt)
	}
	s = &segment{valid: offset}
	if s.header, err = decodeHeader(body[1:]); err != nil {
		return nil, nil, err
	}
	s.progress = s.after
	latest := make(map[string]*kv.KeyValue)
	for offset < len(file) {
		body, end, err := next(file, offset, s.salt)
		if err == nil {
			err = s.take(body, latest)
		}
		if err != nil {
			return s, err, nil
		}
		offset, s.valid = end, end
	}
	return s, nil, nil
}

// take adds a record.
func (s *segment) take(body []byte, latest map[string]*kv.KeyValue) error {
	switch kind(body[0]) {
	case kindBatch:
		b, err := decodeBatch(body[1:], latest)
		if err != nil {
			return err
		}
		if b.Revision <= s.progress {
			return fmt.Errorf("%w: revision %d behind %d", errCorrupt, b.Revision, s.progress)
		}
		for i := range b.Events {
			if key := b.Events[i].KV.Key(); !s.rng.ContainsBytes(key) {
				return fmt.Errorf("%w: %q is not in %v", errCorrupt, key, s.rng)
			}
		}
		s.batches, s.progress = append(s.batches, b), b.Revision
	case kindDeletes:
		deletes, err := decodeDeletes(body[1:])
		if err != nil {
			return err
		}
		last := s.progress + 1
		for i := range deletes {
			if d := &deletes[i]; d.Revision < last || !s.rng.Contains(d.Key) {
				return fmt.Errorf("%w: %q deleted at %d, behind %d", errCorrupt, d.Key, d.Revision, last)
			}
			last = deletes[i].Revision
		}
		s.deletes = append(s.deletes, deletes...)
		if len(deletes) > 0 {
			s.progress = last
		}
	case kindProgress:
		r := reader{b: body[1:]}
		progress := r.revision()
		if !r.ended() || progress < s.progress {
			return fmt.Errorf("%w: progress %d behind %d", errCorrupt, progress, s.progress)
		}
		s.progress = progress
	default:
		return fmt.Errorf("%w: a record of kind %d", errCorrupt, body[0])
	}
	return nil
}

// chain joins the newest of the segments, which are given in their order, that
// follow each other without a gap.
func chain(segments []*segment) (joined segment, used int) {
	if len(segments) == 0 {
		return segment{}, 0
	}
	first := len(segments) - 1
	for first > 0 && segments[first-1].progress >= segments[first].after {
		first--
	}
	joined.header = segments[first].header
	for _, s := range segments[first:] {
		// One that could not be written to its end may go further than what its
		// successor begins with.
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
