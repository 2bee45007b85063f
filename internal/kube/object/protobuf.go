package object

import (
	"bytes"
	"fmt"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of Kubernetes' protobuf messages, from k8s.io/apimachinery:
// pkg/runtime/generated.proto and pkg/apis/meta/v1/generated.proto. test/kube
// compares what is made of them with the generated code.
const (
	unknownType = 1 // runtime.Unknown
	unknownRaw  = 2

	typeAPIVersion = 1 // runtime.TypeMeta
	typeKind       = 2

	objectMeta = 1 // of every object and every list
	listItems  = 2 // of every list

	metaName        = 1 // ObjectMeta
	metaNamespace   = 3
	metaUID         = 5
	metaVersion     = 6
	metaLabels      = 11
	metaAnnotations = 12

	pairKey   = 1 // an entry of a map
	pairValue = 2
)

// prefix begins every protobuf object.
const prefix = "k8s\x00"

// field is one field of a message.
type field struct {
	number   int32
	typ      protowire.Type
	at       int    // where its tag begins
	end      int    // where the next field begins
	value    []byte // of a field of bytes
	unsigned uint64 // of a varint
}

// fields yields the fields of a message, and an error at the first malformed one.
func fields(b []byte) iter.Seq2[field, error] {
	return func(yield func(field, error) bool) {
		for at := 0; at < len(b); {
			f, err := fieldAt(b, at)
			if !yield(f, err) || err != nil {
				return
			}
			at = f.end
		}
	}
}

func fieldAt(b []byte, at int) (field, error) {
	number, typ, n := protowire.ConsumeTag(b[at:])
	if n < 0 {
		return field{}, fmt.Errorf("%w: tag: %w", ErrMalformed, protowire.ParseError(n))
	}
	f := field{number: int32(number), typ: typ, at: at}
	var size int
	switch typ {
	case protowire.BytesType:
		f.value, size = protowire.ConsumeBytes(b[at+n:])
		f.value = f.value[:len(f.value):len(f.value)]
	case protowire.VarintType:
		f.unsigned, size = protowire.ConsumeVarint(b[at+n:])
	default:
		size = protowire.ConsumeFieldValue(number, typ, b[at+n:])
	}
	if size < 0 {
		return field{}, fmt.Errorf("%w: field %d: %w", ErrMalformed, number, protowire.ParseError(size))
	}
	f.end = at + n + size
	return f, nil
}

// find returns the last bytes field of a number, which is the one that counts.
// It returns the zero field if there is none.
func find(b []byte, number int32) (found field, err error) {
	for f, err := range fields(b) {
		if err != nil {
			return field{}, err
		}
		if f.number == number && f.typ == protowire.BytesType {
			found = f
		}
	}
	return found, nil
}

// openEnvelope returns the type and the message of a runtime.Unknown.
func openEnvelope(raw []byte) (apiVersion, kind, body []byte, err error) {
	if !bytes.HasPrefix(raw, []byte(prefix)) {
		return nil, nil, nil, fmt.Errorf("%w: no protobuf prefix", ErrMalformed)
	}
	for f, err := range fields(raw[len(prefix):]) {
		switch {
		case err != nil:
			return nil, nil, nil, err
		case f.typ != protowire.BytesType:
		case f.number == unknownRaw:
			body = f.value
		case f.number == unknownType:
			for t, err := range fields(f.value) {
				switch {
				case err != nil:
					return nil, nil, nil, err
				case t.typ != protowire.BytesType:
				case t.number == typeAPIVersion:
					apiVersion = t.value
				case t.number == typeKind:
					kind = t.value
				}
			}
		}
	}
	return apiVersion, kind, body, nil
}

func (o *Object) parseProtobuf() error {
	var err error
	if o.APIVersion, o.Kind, o.body, err = openEnvelope(o.Raw); err != nil {
		return err
	}
	meta, err := find(o.body, objectMeta)
	if err != nil {
		return err
	}
	o.meta = meta.value
	for f, err := range fields(o.meta) {
		switch {
		case err != nil:
			return err
		case f.typ != protowire.BytesType:
		case f.number == metaName:
			o.Name = f.value
		case f.number == metaNamespace:
			o.Namespace = f.value
		case f.number == metaUID:
			o.UID = f.value
		case f.number == metaVersion:
			o.ResourceVersion = f.value
		}
	}
	return nil
}

// appendEnvelope appends an object of its own: what apiservers send.
func appendEnvelope(dst []byte, apiVersion, kind string, body []byte) []byte {
	dst = appendEnvelopeHead(dst, apiVersion, kind, len(body))
	dst = append(dst, body...)
	return append(dst, envelopeTail...)
}

// appendEnvelopeHead appends the head of the envelope of a body of size bytes.
func appendEnvelopeHead(dst []byte, apiVersion, kind string, size int) []byte {
	dst = append(dst, prefix...)
	dst = protowire.AppendTag(dst, unknownType, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(fieldSize(len(apiVersion))+fieldSize(len(kind)))) //nolint:gosec // a length
	dst = appendField(dst, typeAPIVersion, apiVersion)
	dst = appendField(dst, typeKind, kind)
	dst = protowire.AppendTag(dst, unknownRaw, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(size)) //nolint:gosec // a length
}

// envelopeTail is contentEncoding and contentType, which apiservers send empty.
const envelopeTail = "\x1a\x00\x22\x00"

// appendField appends a field of bytes.
func appendField[B ~string | ~[]byte](dst []byte, number protowire.Number, value B) []byte {
	dst = protowire.AppendTag(dst, number, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(value)))
	return append(dst, value...)
}

// fieldSize returns the length of a field of size bytes with a number below 16.
func fieldSize(size int) int { return 1 + protowire.SizeBytes(size) }

// replaced returns a message with another value for one field: in its place, or
// at its end if there is none.
func replaced(b []byte, number int32, value []byte) []byte {
	out := make([]byte, 0, len(b)+len(value)+8)
	f, err := find(b, number)
	if err != nil || f.end == 0 {
		return appendField(append(out, b...), protowire.Number(number), value)
	}
	out = append(out, b[:f.at]...)
	out = appendField(out, protowire.Number(number), value)
	return append(out, b[f.end:]...)
}

func (o *Object) withVersionProtobuf(digits []byte) []byte {
	body := replaced(o.body, objectMeta, replaced(o.meta, metaVersion, digits))
	return append([]byte(prefix), replaced(o.Raw[len(prefix):], unknownRaw, body)...)
}

// pairsProtobuf yields the entries of a map of strings.
func pairsProtobuf(meta []byte, number int32) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for f, err := range fields(meta) {
			if err != nil {
				return
			}
			if f.number != number || f.typ != protowire.BytesType {
				continue
			}
			var key, value []byte
			for p, err := range fields(f.value) {
				switch {
				case err != nil:
					return
				case p.typ != protowire.BytesType:
				case p.number == pairKey:
					key = p.value
				case p.number == pairValue:
					value = p.value
				}
			}
			if !yield(key, value) {
				return
			}
		}
	}
}
