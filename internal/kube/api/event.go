package api

import (
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/selector"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// event is one event of a feed: the object after it, and the one before it. It encodes
// each frame once.
type event struct {
	enc      object.Encoding
	deleted  bool
	revision kv.Revision
	now      object.Object // of a delete: as the apiserver sent it
	before   object.Object
	existed  bool // there is a before
	frames   map[frameKey][]byte
}

// frameKey is what frames of one event differ in.
type frameKey struct {
	typ     string
	partial bool
}

// parseEvent reads an event of a feed.
func parseEvent(enc object.Encoding, e *kv.Event, revision kv.Revision) (*event, error) {
	v := &event{enc: enc, deleted: e.Type == kv.Delete, revision: revision, existed: e.Prev != nil}
	var err error
	if v.now, err = object.Parse(enc, e.KV.Value()); err != nil {
		return nil, err
	}
	if v.existed {
		v.before, err = object.Parse(enc, e.Prev.Value())
	}
	return v, err
}

// typeFor returns the type of the event as a selector sees it: an object that begins to
// match is added, one that ends to is deleted. "": the selector does not see it.
func (v *event) typeFor(s *selector.Selector) string {
	was := v.existed && s.Matches(&v.before)
	is := !v.deleted && s.Matches(&v.now)
	switch {
	case is && was:
		return object.Modified
	case is:
		return object.Added
	case was:
		return object.Deleted
	}
	return ""
}

// frame returns the frame of the event with a type. Watches share it; no caller may change
// it.
func (v *event) frame(typ string, partial bool) ([]byte, error) {
	k := frameKey{typ, partial}
	if frame := v.frames[k]; frame != nil {
		return frame, nil
	}
	o := v.now
	if typ == object.Deleted && !v.deleted {
		var err error
		if o, err = object.Parse(v.enc, v.before.WithVersion(int64(v.revision))); err != nil {
			return nil, err
		}
	}
	raw := o.Raw
	if partial {
		raw = o.Partial()
	}
	frame := object.AppendEvent(make([]byte, 0, len(raw)+frameHead), v.enc, typ, raw)
	if v.frames == nil {
		v.frames = map[frameKey][]byte{}
	}
	v.frames[k] = frame
	return frame, nil
}

// frameHead is what a frame has beside its object, at most.
const frameHead = 48
