package object

import (
	"bytes"
	"fmt"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/shardwatch/shardwatch/internal/protofields"
)

// Field numbers of Kubernetes' protobuf messages, from k8s.io/apimachinery:
// pkg/runtime/generated.proto and pkg/apis/meta/v1/generated.proto. test/kube
// compares the encoded messages with the generated code.
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

// fields yields the fields of a message, and an error at the first malformed one.
func fields(b []byte) iter.Seq2[protofields.Field, error] { return protofields.All(b, ErrMalformed) }

// find returns the last bytes field of a number: in protobuf, the last one
// counts. It returns the zero field if there is none.
func find(b []byte, number protowire.Number) (found protofields.Field, err error) {
	for f, err := range fields(b) {
		if err != nil {
			return protofields.Field{}, err
		}
		if f.Number == number && f.Type == protowire.BytesType {
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
		case f.Type != protowire.BytesType:
		case f.Number == unknownRaw:
			body = f.Bytes
		case f.Number == unknownType:
			for t, err := range fields(f.Bytes) {
				switch {
				case err != nil:
					return nil, nil, nil, err
				case t.Type != protowire.BytesType:
				case t.Number == typeAPIVersion:
					apiVersion = t.Bytes
				case t.Number == typeKind:
					kind = t.Bytes
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
	o.meta = meta.Bytes
	for f, err := range fields(o.meta) {
		switch {
		case err != nil:
			return err
		case f.Type != protowire.BytesType:
		case f.Number == metaName:
			o.Name = f.Bytes
		case f.Number == metaNamespace:
			o.Namespace = f.Bytes
		case f.Number == metaUID:
			o.UID = f.Bytes
		case f.Number == metaVersion:
			o.ResourceVersion = f.Bytes
		}
	}
	return nil
}

// appendEnvelope appends an object in its envelope, as apiservers send it.
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

// replaced returns a message with another value for one field, which is appended
// if there is none.
func replaced(b []byte, number protowire.Number, value []byte) []byte {
	out := make([]byte, 0, len(b)+len(value)+8)
	f, err := find(b, number)
	if err != nil || f.End == 0 {
		return appendField(append(out, b...), number, value)
	}
	out = append(out, b[:f.At]...)
	out = appendField(out, number, value)
	return append(out, b[f.End:]...)
}

func (o *Object) withVersionProtobuf(digits []byte) []byte {
	body := replaced(o.body, objectMeta, replaced(o.meta, metaVersion, digits))
	return append([]byte(prefix), replaced(o.Raw[len(prefix):], unknownRaw, body)...)
}

// pairsProtobuf yields the entries of a map of strings.
func pairsProtobuf(meta []byte, number protowire.Number) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for f, err := range fields(meta) {
			if err != nil {
				return
			}
			if f.Number != number || f.Type != protowire.BytesType {
				continue
			}
			var key, value []byte
			for p, err := range fields(f.Bytes) {
				switch {
				case err != nil:
					return
				case p.Type != protowire.BytesType:
				case p.Number == pairKey:
					key = p.Bytes
				case p.Number == pairValue:
					value = p.Bytes
				}
			}
			if !yield(key, value) {
				return
			}
		}
	}
}
