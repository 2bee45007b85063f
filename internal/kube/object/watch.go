package object

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// The types of watch events.
const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	Bookmark = "BOOKMARK"
	Error    = "ERROR"
)

// InitialEventsEnd is the annotation of the bookmark that ends the initial
// events of a streaming list.
const InitialEventsEnd = "k8s.io/initial-events-end"

// Field numbers of metav1.WatchEvent and runtime.RawExtension.
const (
	eventType    = 1
	eventObject  = 2
	extensionRaw = 1
)

// Event is one event of a watch.
type Event struct {
	Type   string
	Object []byte // as Parse takes it
}

// Frames reads the frames of a watch: protobuf frames with a length prefix, or
// JSON lines.
type Frames struct {
	enc Encoding
	r   *bufio.Reader
	max int
}

// NewFrames reads a stream whose frames have at most limit bytes each.
func NewFrames(enc Encoding, r io.Reader, limit int) *Frames {
	return &Frames{enc: enc, r: bufio.NewReaderSize(r, 32<<10), max: limit}
}

// Next returns the next event, which the caller may keep, or io.EOF at the end of
// the stream.
func (f *Frames) Next() (Event, error) {
	if f.enc == Protobuf {
		frame, err := f.lengthDelimited()
		if err != nil {
			return Event{}, err
		}
		return decodeEvent(frame)
	}
	frame, err := f.line()
	if err != nil {
		return Event{}, err
	}
	return decodeEventJSON(frame)
}

func (f *Frames) tooLarge() error {
	return fmt.Errorf("%w: a watch event has more than %d bytes", ErrMalformed, f.max)
}

func (f *Frames) lengthDelimited() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if int64(size) > int64(f.max) {
		return nil, f.tooLarge()
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(f.r, frame); err != nil {
		return nil, noEnd(err)
	}
	return frame, nil
}

func (f *Frames) line() ([]byte, error) {
	var line []byte
	for {
		part, err := f.r.ReadSlice('\n')
		if len(line)+len(part) > f.max {
			return nil, f.tooLarge()
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && len(bytes.TrimSpace(line)) > 0:
			return nil, noEnd(err)
		case err != nil:
			return nil, err
		case len(bytes.TrimSpace(line)) > 0:
			return line, nil
		default:
			line = line[:0]
		}
	}
}

// noEnd returns io.ErrUnexpectedEOF for a stream that ends within a frame.
func noEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func decodeEvent(frame []byte) (e Event, err error) {
	for f, err := range fields(frame) {
		switch {
		case err != nil:
			return Event{}, err
		case f.Type != protowire.BytesType:
		case f.Number == eventType:
			e.Type = string(f.Bytes)
		case f.Number == eventObject:
			raw, err := find(f.Bytes, extensionRaw)
			if err != nil {
				return Event{}, err
			}
			e.Object = raw.Bytes
		}
	}
	return e, e.complete()
}

func decodeEventJSON(frame []byte) (e Event, err error) {
	for m, err := range members(frame) {
		if err != nil {
			return Event{}, err
		}
		switch string(m.name) {
		case "type":
			t, _ := text(m.value)
			e.Type = string(t)
		case "object":
			e.Object = m.value
		}
	}
	return e, e.complete()
}

func (e *Event) complete() error {
	if e.Type == "" || len(e.Object) == 0 {
		return fmt.Errorf("%w: a watch event without a type or an object", ErrMalformed)
	}
	return nil
}

// AppendEvent appends a frame with an event.
func AppendEvent(dst []byte, enc Encoding, typ string, object []byte) []byte {
	if enc == JSON {
		dst = append(dst, `{"type":"`...)
		dst = append(dst, typ...)
		dst = append(dst, `","object":`...)
		dst = append(dst, object...)
		return append(dst, '}', '\n')
	}
	inner := fieldSize(len(object))
	size := fieldSize(len(typ)) + fieldSize(inner)
	dst = binary.BigEndian.AppendUint32(dst, uint32(size)) //nolint:gosec // sources bound what an object has
	dst = appendField(dst, eventType, typ)
	dst = protowire.AppendTag(dst, eventObject, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(inner)) //nolint:gosec // a length
	return appendField(dst, extensionRaw, object)
}

// NewBookmark returns the object of a bookmark.
func NewBookmark(enc Encoding, apiVersion, kind string, version int64, initialEventsEnd bool) []byte {
	digits := fmt.Sprint(version)
	if enc == Protobuf {
		meta := appendField(nil, metaVersion, digits)
		if initialEventsEnd {
			pair := appendField(appendField(nil, pairKey, InitialEventsEnd), pairValue, "true")
			meta = appendField(meta, metaAnnotations, pair)
		}
		return appendEnvelope(nil, apiVersion, kind, appendField(nil, objectMeta, meta))
	}
	out := append([]byte(nil), `{"kind":`...)
	out = appendString(out, kind)
	out = append(out, `,"apiVersion":`...)
	out = appendString(out, apiVersion)
	out = append(out, `,"metadata":{"resourceVersion":"`+digits+`"`...)
	if initialEventsEnd {
		out = append(out, `,"annotations":{"`+InitialEventsEnd+`":"true"}`...)
	}
	return append(out, "}}"...)
}
