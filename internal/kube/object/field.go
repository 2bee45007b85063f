package object

import (
	"bytes"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// numbers are the field numbers of a message within an object and of a field in it; or of a field, and 0.
type numbers [2]protowire.Number

// selectable is a field that a field selector may name.
type selectable struct {
	kind, path string
	numbers    numbers
	boolean    bool // a missing field is "false"
}

// selectables are the fields that field selectors may name, besides
// metadata.name and metadata.namespace of all kinds: the selectable fields of
// kube-apiserver that are a plain field of the object. An apiserver answers
// requests with another field.
func selectables() []selectable {
	return []selectable{
		{kind: "Pod", path: "spec.nodeName", numbers: numbers{2, 10}},
		{kind: "Pod", path: "spec.restartPolicy", numbers: numbers{2, 3}},
		{kind: "Pod", path: "spec.schedulerName", numbers: numbers{2, 19}},
		{kind: "Pod", path: "spec.serviceAccountName", numbers: numbers{2, 8}},
		{kind: "Pod", path: "spec.hostNetwork", numbers: numbers{2, 11}, boolean: true},
		{kind: "Pod", path: "status.phase", numbers: numbers{3, 1}},
		{kind: "Pod", path: "status.podIP", numbers: numbers{3, 6}},
		{kind: "Pod", path: "status.nominatedNodeName", numbers: numbers{3, 11}},
		{kind: "Node", path: "spec.unschedulable", numbers: numbers{2, 4}, boolean: true},
		{kind: "Namespace", path: "status.phase", numbers: numbers{3, 1}},
		{kind: "Secret", path: "type", numbers: numbers{3, 0}},
		{kind: "Service", path: "spec.clusterIP", numbers: numbers{2, 3}},
		{kind: "Service", path: "spec.type", numbers: numbers{2, 4}},
	}
}

// Field locates a selectable field.
type Field struct {
	selectable
	of func(*Object) []byte // metadata
}

// FieldOf returns the field that a selector names by path, of the objects of a
// kind. It returns false if an apiserver has to evaluate selectors on it.
func FieldOf(apiVersion, kind, path string) (Field, bool) {
	switch path {
	case "metadata.name":
		return Field{of: func(o *Object) []byte { return o.Name }}, true
	case "metadata.namespace":
		return Field{of: func(o *Object) []byte { return o.Namespace }}, true
	}
	for _, s := range selectables() {
		if apiVersion == "v1" && s.kind == kind && s.path == path {
			return Field{selectable: s}, true
		}
	}
	return Field{}, false
}

// Value returns the field's value in the form that selectors compare.
func (f *Field) Value(o *Object) string {
	switch {
	case f.of != nil:
		return string(f.of(o))
	case o.Encoding == Protobuf:
		return f.protobuf(o.body)
	}
	return f.json(o.body)
}

func (f *Field) protobuf(b []byte) string {
	number := f.numbers[0]
	if f.numbers[1] != 0 {
		inner, err := find(b, f.numbers[0])
		if err != nil {
			return f.missing()
		}
		b, number = inner.Bytes, f.numbers[1]
	}
	value := f.missing()
	for x, err := range fields(b) {
		switch {
		case err != nil:
			return f.missing()
		case x.Number != number:
		case f.boolean && x.Type == protowire.VarintType:
			value = strconv.FormatBool(x.Uint != 0)
		case !f.boolean && x.Type == protowire.BytesType:
			value = string(x.Bytes)
		}
	}
	return value
}

func (f *Field) json(b []byte) string {
	for name := range strings.SplitSeq(f.path, ".") {
		b = memberOf(b, name)
	}
	if f.boolean && (bytes.Equal(b, []byte("true")) || bytes.Equal(b, []byte("false"))) {
		return string(b)
	}
	if value, ok := text(b); ok && !f.boolean {
		return string(value)
	}
	return f.missing()
}

func (f *Field) missing() string {
	if f.boolean {
		return "false"
	}
	return ""
}
