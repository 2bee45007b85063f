package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// difference encodes what has changed since a version that the window does not
// reach back to, and goes on watching from there. Deletes come first, with the
// client's own version, so that a client that is cut off in the middle begins
// again; then the changed objects in the order of their versions, each once; then
// a bookmark.
//
// A selector needs to know whether an object matched before. If that is not
// known, or a deleted object's last state is not, an apiserver has to answer:
// its window may reach further back, and if not it says that the client must
// list.
func (s *stream) difference(ctx context.Context, since kv.Revision) error {
	keys := s.f.r.InNamespace(s.q.namespace)
	changes, err := s.f.cache.Changes(ctx, keys, since, 0)
	var compacted *kv.CompactedError
	if errors.As(err, &compacted) {
		err = fmt.Errorf("%w: %w", errUpstream, err)
	}
	encoded := len(s.out)
	if err == nil {
		err = s.encode(changes, since)
	}
	if err == nil {
		s.watcher, err = s.f.cache.Watch(keys, changes.Revision+1, s.wake)
	}
	if err != nil {
		s.out = s.out[:encoded]
		s.s.counts.undifferable.Add(1)
		s.s.cfg.Logger.Info("no difference for a watch below the window", "resource", s.f.r.String(), "since", since, "error", err)
		return err
	}
	s.s.counts.differences.Add(1)
	s.sent = changes.Revision
	if s.q.bookmarks {
		s.bookmark(changes.Revision, false)
	}
	return nil
}

// encode encodes changes as events.
func (s *stream) encode(changes *cache.Changes, since kv.Revision) error {
	slices.SortFunc(changes.Changed, func(a, b *kv.KeyValue) int { return int(a.ModRevision() - b.ModRevision()) })
	var after []change
	for _, item := range changes.Changed {
		c, err := s.change(string(item.Key()), item, since)
		if err != nil {
			return err
		}
		if c.typ == object.Deleted { // it does not match any more
			s.encodeEvent(c.typ, &c.o)
		} else if c.typ != "" {
			after = append(after, c)
		}
	}
	for _, key := range changes.Deleted {
		c, err := s.change(key, nil, since)
		if err != nil {
			return err
		}
		if c.typ != "" {
			s.encodeEvent(c.typ, &c.o)
		}
	}
	for i := range after {
		s.encodeEvent(after[i].typ, &after[i].o)
	}
	return nil
}

// change is an event of a difference; without a type it is none.
type change struct {
	typ string
	o   object.Object
}

// change returns what a client at a version has to know of a key. item is the
// object as it is now; nil: it does not exist.
func (s *stream) change(key string, item *kv.KeyValue, since kv.Revision) (c change, err error) {
	was, known := s.f.past.at(key, since)
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
			return change{object.Modified, now}, nil
		}
		if was = s.f.past.last(key); was == nil {
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
		return change{object.Modified, now}, nil
	case is:
		return change{object.Added, now}, nil
	case matched:
		gone, err := object.Parse(s.f.r.Encoding, before.WithVersion(int64(since)))
		return change{object.Deleted, gone}, err
	}
	return c, nil
}
