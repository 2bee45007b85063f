package transition

import (
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/selector"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Event is an event of a resource: the object after it, and the object before it. It encodes
// each frame once. It is not safe for concurrent use.
type Event struct {
	Now     object.Object // for a delete: as the apiserver sent it
	Before  object.Object
	Existed bool // Before is set

	enc      object.Encoding
	deleted  bool
	revision kv.Revision
	frames   map[frameKey][]byte
}

// frameKey distinguishes the frames of one event.
type frameKey struct {
	typ     string
	partial bool
}

// Parse reads an event and its previous value. It fails if a value is not an object.
func Parse(enc object.Encoding, e *kv.Event, revision kv.Revision) (*Event, error) {
	v := &Event{enc: enc, deleted: e.Type == kv.Delete, revision: revision, Existed: e.Prev != nil}
	var err error
	if v.Now, err = object.Parse(enc, e.KV.Value()); err != nil {
		return nil, err
	}
	if v.Existed {
		v.Before, err = object.Parse(enc, e.Prev.Value())
	}
	return v, err
}

// TypeFor returns the type of the event for a selector: an object that begins to match is
// added, an object that no longer matches is deleted. "": the selector does not match.
func (v *Event) TypeFor(s *selector.Selector) string {
	was := v.Existed && s.Matches(&v.Before)
	is := !v.deleted && s.Matches(&v.Now)
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

// Frame returns the frame of the event with a type. Watches share it; callers must not change
// it.
func (v *Event) Frame(typ string, partial bool) ([]byte, error) {
	k := frameKey{typ, partial}
	if frame := v.frames[k]; frame != nil {
		return frame, nil
	}
	o := v.Now
	if typ == object.Deleted && !v.deleted {
		var err error
		if o, err = object.Parse(v.enc, v.Before.WithVersion(int64(v.revision))); err != nil {
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

// frameHead bounds the size of a frame without its object, in bytes.
const frameHead = 48
