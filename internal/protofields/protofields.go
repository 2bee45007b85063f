// Package protofields reads the fields of encoded protobuf messages, if decoding would take too much memory or
// lose the original bytes.
package protofields

import (
	"fmt"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is one field of a message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	At     int    // offset of its tag
	End    int    // offset of the next field
	Bytes  []byte // of a length-delimited field: a slice of the message with no spare capacity
	Uint   uint64 // of a varint
}

// Next reads the field that begins where f ends: for the zero Field, the first one. At the end of
// the message it returns false, and at a malformed field an error, which wraps malformed.
func (f *Field) Next(b []byte, malformed error) (bool, error) {
	at := f.End
	if at >= len(b) {
		return false, nil
	}
	number, typ, n := protowire.Number(b[at]>>3), protowire.Type(b[at]&7), 1 // for a one-byte tag
	if b[at] >= 1<<7 || number < protowire.MinValidNumber {
		number, typ, n = protowire.ConsumeTag(b[at:])
	}
	if n < 0 {
		return false, fmt.Errorf("%w: tag at %d: %w", malformed, at, protowire.ParseError(n))
	}
	value := b[at+n:]
	var size int
	f.Number, f.Type, f.At, f.Bytes, f.Uint = number, typ, at, nil, 0
	switch typ {
	case protowire.BytesType:
		f.Bytes, size = protowire.ConsumeBytes(value)
		f.Bytes = f.Bytes[:len(f.Bytes):len(f.Bytes)]
	case protowire.VarintType:
		f.Uint, size = protowire.ConsumeVarint(value)
	default:
		size = protowire.ConsumeFieldValue(number, typ, value)
	}
	if size < 0 {
		return false, fmt.Errorf("%w: field %d: %w", malformed, number, protowire.ParseError(size))
	}
	f.End = at + n + size
	return true, nil
}

// All yields the fields of a message. At the first malformed field, it yields an error that wraps malformed,
// and stops.
func All(b []byte, malformed error) iter.Seq2[Field, error] {
	return func(yield func(Field, error) bool) {
		var f Field
		for {
			more, err := f.Next(b, malformed)
			if !more && err == nil || !yield(f, err) || err != nil {
				return
			}
		}
	}
}
