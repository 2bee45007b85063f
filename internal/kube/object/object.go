package object

import (
	"errors"
	"fmt"
	"iter"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Encoding is a form in which an apiserver sends objects.
type Encoding uint8

// The encodings.
const (
	JSON Encoding = iota
	Protobuf
)

// String returns the name that logs and keys use.
func (e Encoding) String() string {
	if e == Protobuf {
		return "protobuf"
	}
	return "json"
}

// MediaType returns the type that HTTP negotiates.
func (e Encoding) MediaType() string {
	if e == Protobuf {
		return "application/vnd.kubernetes.protobuf"
	}
	return "application/json"
}

// WatchType returns the type of a watch's stream.
func (e Encoding) WatchType() string {
	if e == Protobuf {
		return e.MediaType() + ";stream=watch"
	}
	return e.MediaType()
}

// ErrMalformed reports that bytes are not valid in their encoding.
var ErrMalformed = errors.New("malformed Kubernetes object")

// Object is an object as an apiserver encoded it. Its fields are parts of Raw,
// or copies if the JSON has escapes. No caller may change them.
type Object struct {
	Encoding Encoding
	// Raw is the whole object: protobuf with the prefix "k8s\0" and the envelope,
	// JSON without a newline after it.
	Raw []byte

	APIVersion, Kind                      []byte
	Name, Namespace, UID, ResourceVersion []byte

	// body is the message inside the envelope (protobuf), or Raw.
	body []byte
	// meta is the metadata: an ObjectMeta, or a JSON object.
	meta []byte
}

// Parse finds the parts of an object.
func Parse(enc Encoding, raw []byte) (Object, error) {
	o := Object{Encoding: enc, Raw: raw}
	if err := o.parse(); err != nil {
		return Object{}, err
	}
	return o, nil
}

// Whole returns an object of which only Raw and Item are set. This is enough for a list of
// all objects, and the search for the metadata of JSON takes as long as sending the object.
func Whole(enc Encoding, raw []byte) (o Object, err error) {
	o = Object{Encoding: enc, Raw: raw, body: raw}
	if enc == Protobuf {
		_, _, o.body, err = openEnvelope(raw)
	}
	return o, err
}

func (o *Object) parse() error {
	if o.Encoding == Protobuf {
		return o.parseProtobuf()
	}
	return o.parseJSON()
}

// Version returns the resourceVersion as a number. Kubernetes guarantees that the
// versions of one resource are ordered as decimal numbers.
func (o *Object) Version() (int64, error) {
	v, err := strconv.ParseInt(string(o.ResourceVersion), 10, 64)
	if err != nil || v <= 0 {
		return 0, fmt.Errorf("%w: resourceVersion %.20q of %s is not a positive number", ErrMalformed, o.ResourceVersion, o.Kind)
	}
	return v, nil
}

// Labels yields the labels, in the order of the encoding.
func (o *Object) Labels() iter.Seq2[[]byte, []byte] { return o.pairs(metaLabels, "labels") }

// Annotations yields the annotations, in the order of the encoding.
func (o *Object) Annotations() iter.Seq2[[]byte, []byte] {
	return o.pairs(metaAnnotations, "annotations")
}

func (o *Object) pairs(number protowire.Number, name string) iter.Seq2[[]byte, []byte] {
	if o.Encoding == Protobuf {
		return pairsProtobuf(o.meta, number)
	}
	return pairsJSON(o.meta, name)
}

// WithVersion returns the object's bytes with another resourceVersion. An
// apiserver sends the same bytes for the object at that version.
func (o *Object) WithVersion(version int64) []byte {
	digits := strconv.AppendInt(nil, version, 10)
	if o.Encoding == Protobuf {
		return o.withVersionProtobuf(digits)
	}
	return o.withVersionJSON(digits)
}

const (
	partialKind    = "PartialObjectMetadata"
	partialVersion = "meta.k8s.io/v1"
	partialHead    = `{"kind":"` + partialKind + `","apiVersion":"` + partialVersion + `","metadata":`
)

// Partial returns the object as a PartialObjectMetadata of meta.k8s.io/v1.
func (o *Object) Partial() []byte {
	if o.Encoding == Protobuf {
		return appendEnvelope(nil, partialVersion, partialKind, appendField(nil, objectMeta, o.meta))
	}
	return append(append([]byte(partialHead), o.meta...), '}')
}

// Item returns the object as an item of a list: without the envelope that names
// its kind in protobuf.
func (o *Object) Item() []byte { return o.body }

// PartialItem returns the object as an item of a list of PartialObjectMetadata, for WriteList: its metadata,
// without a copy.
func (o *Object) PartialItem() []byte { return o.meta }

// FromItem returns an item of a list as a complete object.
func FromItem(enc Encoding, apiVersion, kind string, item []byte) ([]byte, error) {
	if enc == Protobuf {
		return appendEnvelope(nil, apiVersion, kind, item), nil
	}
	o := Object{Encoding: JSON, Raw: item}
	if err := o.parse(); err != nil {
		return nil, err
	}
	if len(o.Kind) > 0 {
		return item, nil
	}
	at := skipSpace(item, 0) + 1 // after the brace
	out := append([]byte(nil), `{"kind":`...)
	out = appendString(out, kind)
	out = append(out, `,"apiVersion":`...)
	out = appendString(out, apiVersion)
	if next := skipSpace(item, at); next < len(item) && item[next] != '}' {
		out = append(out, ',')
	}
	return append(out, item[at:]...), nil
}
