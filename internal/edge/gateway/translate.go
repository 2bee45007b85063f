package gateway

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// form describes how messages of a type are written as JSON.
type form struct {
	fields []formField // by number; unknown fields have no name
}

type formField struct {
	name string // as in the proto files
	kind protoreflect.Kind
	list bool
	enum protoreflect.EnumValueDescriptors
	form *form // of a message
}

// formOf returns the form of a type. Field numbers must be below 64, and lists must be of messages: etcd's
// answers have no others.
func formOf(d protoreflect.MessageDescriptor) *form {
	f := new(form)
	for i := range d.Fields().Len() {
		d := d.Fields().Get(i)
		for len(f.fields) <= int(d.Number()) {
			f.fields = append(f.fields, formField{})
		}
		field := formField{name: d.TextName(), kind: d.Kind(), list: d.IsList()}
		switch field.kind {
		case protoreflect.MessageKind:
			field.form = formOf(d.Message())
		case protoreflect.EnumKind:
			field.enum = d.Enum().Values()
		default:
		}
		f.fields[d.Number()] = field
	}
	return f
}

// translator translates a message from its wire form to JSON as it reads it, and never holds a whole value. To
// decode the message and encode it takes twenty times as long.
type translator struct {
	in   *bufio.Reader // has all of the message
	left int           // bytes of the message that is being read
	out  io.Writer
	json []byte
	err  error // of reading and writing
}

// Bounds of a translator's buffers, in bytes: JSON not yet written, and the part of a value that is encoded at
// a time. The latter is divisible by three, because base64 must not have padding in the middle.
const (
	translatorBytes = 32 << 10
	valuePart       = 3 << 10
)

// translators pools translators, without JSON buffers that have become large.
type translators struct{ pool sync.Pool }

// translate writes a message of a form as JSON. Its fields keep the order of their encoding.
func (t *translators) translate(to io.Writer, f *form, message mem.BufferSlice, prefix, suffix string) error {
	w, ok := t.pool.Get().(*translator)
	if !ok {
		w = &translator{in: bufio.NewReaderSize(nil, valuePart)}
	}
	r := message.Reader()
	defer r.Close()
	w.in.Reset(r)
	w.left, w.out, w.err, w.json = message.Len(), to, nil, append(w.json[:0], prefix...)
	w.message(f)
	w.json = append(w.json, suffix...)
	w.flush(0)
	err := w.err
	if w.in.Reset(nil); cap(w.json) > 2*translatorBytes {
		w.json = nil
	}
	w.out = nil
	t.pool.Put(w)
	if err != nil {
		return fmt.Errorf("write an answer: %w", err)
	}
	return nil
}

// errTwice reports a field that occurs twice, or both before and after the items of a list. Its JSON key would
// occur twice. Neither etcd nor this node encodes messages so.
var errTwice = errors.New("a field occurs twice")

// message writes a message that takes all bytes left.
func (w *translator) message(f *form) {
	var seen uint64 // bit set of field numbers
	list := -1      // the number of the list that is open
	w.json = append(w.json, '{')
	for first := true; w.left > 0 && w.err == nil; {
		tag := w.varint()
		number, kind := protowire.DecodeTag(tag)
		if number <= 0 || int(number) >= len(f.fields) || f.fields[number].name == "" {
			w.skip(kind)
			continue
		}
		field := &f.fields[number]
		var size, value uint64
		if size = w.varint(); kind != protowire.BytesType {
			size, value = 0, size
		}
		switch {
		case w.err != nil:
		case kind != field.wire() || size > uint64(w.left):
			w.err = io.ErrUnexpectedEOF
		case list == int(number): // another item
			w.json = append(w.json, ',')
			w.value(field, value, int(size))
		case seen&(1<<number) != 0:
			w.err = errTwice
		case field.form == nil && value == 0 && size == 0: // JSON omits default values
			seen |= 1 << number
		default:
			seen |= 1 << number
			if list >= 0 {
				w.json, list = append(w.json, ']'), -1
			}
			if !first {
				w.json = append(w.json, ',')
			}
			first = false
			w.json = append(append(append(w.json, '"'), field.name...), `":`...)
			if field.list {
				w.json, list = append(w.json, '['), int(number)
			}
			w.value(field, value, int(size))
		}
	}
	if list >= 0 {
		w.json = append(w.json, ']')
	}
	w.json = append(w.json, '}')
}

// wire returns the wire type of the field's values.
func (f *formField) wire() protowire.Type {
	switch f.kind {
	case protoreflect.MessageKind, protoreflect.BytesKind, protoreflect.StringKind:
		return protowire.BytesType
	default:
		return protowire.VarintType
	}
}

// value writes a value: a number, or the next size bytes.
func (w *translator) value(f *formField, number uint64, size int) {
	switch f.kind {
	case protoreflect.MessageKind:
		rest := w.left - size
		w.left = size
		w.message(f.form)
		w.left += rest
	case protoreflect.BytesKind:
		w.json = append(w.json, '"')
		w.read(size, func(p []byte) { w.json = base64.StdEncoding.AppendEncode(w.json, p) })
		w.json = append(w.json, '"')
	case protoreflect.StringKind:
		var all []byte
		w.read(size, func(p []byte) { all = append(all, p...) })
		quoted, err := json.Marshal(string(all))
		w.json = append(w.json, quoted...)
		w.err = errors.Join(w.err, err)
	case protoreflect.Int64Kind:
		w.json = append(strconv.AppendInt(append(w.json, '"'), int64(number), 10), '"') //nolint:gosec // proto's int64
	case protoreflect.Uint64Kind:
		w.json = append(strconv.AppendUint(append(w.json, '"'), number, 10), '"')
	case protoreflect.BoolKind:
		w.json = strconv.AppendBool(w.json, number != 0)
	case protoreflect.EnumKind:
		if v := f.enum.ByNumber(protoreflect.EnumNumber(number)); v != nil { //nolint:gosec // proto's enum
			w.json = append(append(append(w.json, '"'), v.Name()...), '"')
		} else {
			w.json = strconv.AppendInt(w.json, int64(int32(number)), 10) //nolint:gosec // proto's enum
		}
	default:
		w.err = fmt.Errorf("values of type %v are not written", f.kind)
	}
	w.flush(translatorBytes)
}

// flush writes the JSON if it has more than most bytes.
func (w *translator) flush(most int) {
	if w.err == nil && len(w.json) > most {
		_, w.err = w.out.Write(w.json)
		w.json = w.json[:0]
	}
}

// read calls f with the next size bytes, part by part.
func (w *translator) read(size int, f func([]byte)) {
	for size > 0 && w.err == nil {
		var p []byte
		n := min(size, valuePart)
		if p, w.err = w.in.Peek(n); w.err != nil {
			return
		}
		f(p)
		_, _ = w.in.Discard(n) // Peek has buffered it
		size -= n
		w.left -= n
		w.flush(translatorBytes)
	}
}

// ReadByte implements io.ByteReader.
func (w *translator) ReadByte() (byte, error) {
	if w.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	w.left--
	return w.in.ReadByte()
}

// varint reads a varint.
func (w *translator) varint() uint64 {
	n, err := binary.ReadUvarint(w)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n
}

// skip skips the value of an unknown field.
func (w *translator) skip(kind protowire.Type) {
	size := 0
	switch kind {
	case protowire.VarintType:
		w.varint()
	case protowire.Fixed32Type:
		size = 4
	case protowire.Fixed64Type:
		size = 8
	case protowire.BytesType:
		size = int(min(w.varint(), 1<<32))
	default:
		size = -1
	}
	if size < 0 || size > w.left {
		w.err = errors.Join(w.err, io.ErrUnexpectedEOF)
		return
	}
	w.read(size, func([]byte) {})
}
