package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/port"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// difference has the changes since a version below the window, for a watch that resumes from
// that version. Deletes come first, with the client's own version, so that a client that is
// disconnected in the middle gets all of them again; then the changed objects in the order of
// their versions, each once; then a bookmark.
type difference struct {
	since, upTo kv.Revision
	rest        []change // not encoded yet
	held        *budget.Reservation
}

// change is an event of a difference; an empty type means no event. The cache owns the bytes of
// the object; a delete has the last version of it.
type change struct {
	typ    string
	object []byte
}

// changeBytes is the memory of one change in a difference.
const changeBytes = 64

// catchUp begins the watch with the difference since a version.
//
// A selector requires the former version of an object, to decide whether it matched before. If
// that, or the last state of a deleted object, is unknown, an apiserver must answer: its window may
// reach further back, and otherwise it makes the client list. So the node computes the whole
// difference before it sends any of it.
func (s *stream) catchUp(ctx context.Context, since kv.Revision) error {
	if s.s.cfg.NoDelta {
		return expired(since, "")
	}
	keys := s.f.r.InNamespace(s.q.namespace)
	changes, err := s.f.cache.Changes(ctx, keys, since, 0)
	var compacted *kv.CompactedError
	if errors.As(err, &compacted) {
		err = fmt.Errorf("%w: %w", errUpstream, err)
	}
	var d *difference
	if err == nil {
		d, err = s.compare(ctx, changes, since)
	}
	if err == nil {
		if s.watcher, err = s.f.cache.Watch(keys, changes.Revision+1, s.wake); err != nil {
			d.held.Release()
		}
	}
	if err != nil {
		s.s.counts.undifferable.Add(1)
		s.s.cfg.Logger.Info("no difference for a watch below the window", "resource", s.f.r.String(), "since", since, "error", err)
		return err
	}
	s.s.counts.differences.Add(1)
	s.behind = d
	return nil
}

// compare returns the difference that changes make for the watch.
func (s *stream) compare(ctx context.Context, changes *cache.Changes, since kv.Revision) (*difference, error) {
	slices.SortFunc(changes.Changed, func(a, b *kv.KeyValue) int { return int(a.ModRevision() - b.ModRevision()) })
	held, err := s.s.cfg.Budget.Reserve(ctx, s.client, budget.CatchUps, int64(len(changes.Changed)+len(changes.Deleted))*changeBytes)
	if err != nil {
		return nil, err
	}
	d := &difference{since: since, upTo: changes.Revision, held: held}
	var after []change
	add := func(key string, item *kv.KeyValue) error {
		c, err := s.change(key, item, since)
		switch {
		case err != nil:
			return err
		case c.typ == object.Deleted:
			d.rest = append(d.rest, c)
		case c.typ != "":
			after = append(after, c)
		}
		return nil
	}
	for _, item := range changes.Changed { // an object that no longer matches is a delete
		if err == nil {
			err = add(string(item.Key()), item)
		}
	}
	for _, key := range changes.Deleted {
		if err == nil {
			err = add(key, nil)
		}
	}
	if err != nil {
		held.Release()
		return nil, err
	}
	d.rest = append(d.rest, after...)
	return d, nil
}

// encodeDifference encodes the rest of the difference, and writes it in pieces. It returns false
// if the watch cannot continue.
func (s *stream) encodeDifference() bool {
	d := s.behind
	if d == nil {
		return true
	}
	began, bytes := time.Now(), 0
	for _, c := range d.rest {
		o, err := object.Parse(s.f.r.Encoding, c.object)
		if err == nil && c.typ == object.Deleted {
			o, err = object.Parse(s.f.r.Encoding, o.WithVersion(int64(d.since)))
		}
		if err != nil {
			return false
		}
		bytes += len(o.Raw)
		if !s.encodeEvent(c.typ, &o) || port.TooSlow(began, bytes, writeTime) { // d holds its objects in memory
			return false
		}
	}
	d.held.Release()
	s.behind, s.sent = nil, d.upTo
	if s.q.bookmarks {
		s.bookmark(d.upTo, false)
	}
	return true
}

// change returns the event of a key for a client that is at version since. item is the
// current object; nil: it does not exist.
func (s *stream) change(key string, item *kv.KeyValue, since kv.Revision) (c change, err error) {
	was, known := s.f.past.At(key, since)
	is := false
	var now object.Object
	if item != nil {
		if now, err = object.Parse(s.f.r.Encoding, item.Value()); err != nil {
			return c, err
		}
		is = s.q.selector.Matches(&now)
	}
	if !known {
		if !s.q.selector.Everything() {
			return c, fmt.Errorf("%w: %s may have matched the selector before", errUpstream, kv.Quote(key))
		}
		if is {
			return change{object.Modified, now.Raw}, nil
		}
		if was = s.f.past.Last(key); was == nil {
			return c, fmt.Errorf("%w: the last state of %s is not known", errUpstream, kv.Quote(key))
		}
	}
	matched := false
	var before object.Object
	if was != nil {
		if before, err = object.Parse(s.f.r.Encoding, was); err != nil {
			return c, err
		}
		matched = s.q.selector.Matches(&before)
	}
	switch {
	case is && matched:
		return change{object.Modified, now.Raw}, nil
	case is:
		return change{object.Added, now.Raw}, nil
	case matched:
		return change{object.Deleted, was}, nil
	}
	return c, nil
}
