package object

import (
	"bytes"
	"fmt"
	"io"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of metav1.ListMeta.
const (
	listVersion   = 2
	listContinue  = 3
	listRemaining = 4
)

// ListMeta is the metadata of a list.
type ListMeta struct {
	APIVersion, Kind string // Kind is the kind of the list: PodList
	ResourceVersion  string
	Continue         string
	Remaining        int64 // items after this chunk; 0: unknown, or none
}

// WriteList writes a list of items, in the form that [Object.Item] returns; the items of a list of
// PartialObjectMetadata are in the form of [Object.PartialItem].
func WriteList(w io.Writer, enc Encoding, meta ListMeta, items [][]byte) error {
	head := meta.appendHead(nil, enc, items)
	if _, err := w.Write(head); err != nil {
		return err
	}
	scratch := make([]byte, 0, 2*len(partialHead))
	for i, item := range items {
		scratch = scratch[:0]
		end := ""
		switch enc {
		case Protobuf:
			scratch = protowire.AppendTag(scratch, listItems, protowire.BytesType)
			scratch = protowire.AppendVarint(scratch, uint64(meta.itemSize(item))) //nolint:gosec // a length
			if meta.partial() {
				scratch = protowire.AppendTag(scratch, objectMeta, protowire.BytesType)
				scratch = protowire.AppendVarint(scratch, uint64(len(item)))
			}
		default:
			if i > 0 {
				scratch = append(scratch, ',')
			}
			if meta.partial() {
				scratch, end = append(scratch, partialHead...), "}"
			} else if rest, ok := untyped(item); ok {
				scratch, item = append(scratch, '{'), rest
			}
		}
		if _, err := w.Write(scratch); err != nil {
			return err
		}
		if _, err := w.Write(item); err != nil {
			return err
		}
		if _, err := io.WriteString(w, end); err != nil {
			return err
		}
	}
	end := "]}\n"
	switch {
	case enc == Protobuf:
		end = envelopeTail
	case meta.noItems(items):
		end = "}\n"
	}
	_, err := io.WriteString(w, end)
	return err
}

// untyped returns the rest of a JSON object after the kind and version of a built-in resource,
// which apiservers omit in the items of a list. In built-in resources these come first, in this
// order; in custom resources they do not, and the items keep them.
func untyped(item []byte) (rest []byte, ok bool) {
	if rest, ok = bytes.CutPrefix(item, []byte(`{"kind":"`)); !ok {
		return nil, false
	}
	_, rest, _ = bytes.Cut(rest, []byte(`"`))
	if rest, ok = bytes.CutPrefix(rest, []byte(`,"apiVersion":"`)); !ok {
		return nil, false
	}
	_, rest, ok = bytes.Cut(rest, []byte(`",`))
	return rest, ok
}

func (m *ListMeta) appendHead(dst []byte, enc Encoding, items [][]byte) []byte {
	if enc == Protobuf {
		meta := m.protobuf()
		size := fieldSize(len(meta))
		for _, item := range items {
			size += fieldSize(m.itemSize(item))
		}
		dst = appendEnvelopeHead(dst, m.APIVersion, m.Kind, size)
		return appendField(dst, objectMeta, meta)
	}
	dst = append(dst, `{"kind":`...)
	dst = appendString(dst, m.Kind)
	dst = append(dst, `,"apiVersion":`...)
	dst = appendString(dst, m.APIVersion)
	dst = append(dst, `,"metadata":{"resourceVersion":`...)
	dst = appendString(dst, m.ResourceVersion)
	if m.Continue != "" {
		dst = append(dst, `,"continue":`...)
		dst = appendString(dst, m.Continue)
	}
	if m.Remaining > 0 {
		dst = append(dst, `,"remainingItemCount":`...)
		dst = strconv.AppendInt(dst, m.Remaining, 10)
	}
	if m.noItems(items) {
		return append(dst, `},"items":null`...)
	}
	return append(dst, `},"items":[`...)
}

// noItems reports whether apiservers send null for the items: in empty lists of metadata.
func (m *ListMeta) noItems(items [][]byte) bool {
	return len(items) == 0 && m.partial()
}

// partial reports whether the items are metadata alone.
func (m *ListMeta) partial() bool { return m.Kind == partialKind+"List" }

// itemSize returns the length of an item in protobuf.
func (m *ListMeta) itemSize(item []byte) int {
	if m.partial() {
		return fieldSize(len(item))
	}
	return len(item)
}

func (m *ListMeta) protobuf() []byte {
	meta := appendField(nil, 1, "") // selfLink, which apiservers send empty
	meta = appendField(meta, listVersion, m.ResourceVersion)
	meta = appendField(meta, listContinue, m.Continue)
	if m.Remaining > 0 {
		meta = protowire.AppendTag(meta, listRemaining, protowire.VarintType)
		meta = protowire.AppendVarint(meta, uint64(m.Remaining))
	}
	return meta
}

// ParseList reads a list of an apiserver. The items are unchanged; see
// [FromItem].
func ParseList(enc Encoding, raw []byte) (meta ListMeta, items [][]byte, err error) {
	if enc == Protobuf {
		return parseListProtobuf(raw)
	}
	return parseListJSON(raw)
}

func parseListProtobuf(raw []byte) (meta ListMeta, items [][]byte, err error) {
	apiVersion, kind, body, err := openEnvelope(raw)
	if err != nil {
		return meta, nil, err
	}
	meta.APIVersion, meta.Kind = string(apiVersion), string(kind)
	for f, err := range fields(body) {
		switch {
		case err != nil:
			return meta, nil, err
		case f.Type != protowire.BytesType:
		case f.Number == listItems:
			items = append(items, f.Bytes)
		case f.Number == objectMeta:
			if err := meta.read(f.Bytes); err != nil {
				return meta, nil, err
			}
		}
	}
	return meta, items, nil
}

func (m *ListMeta) read(b []byte) error {
	for f, err := range fields(b) {
		switch {
		case err != nil:
			return err
		case f.Number == listVersion:
			m.ResourceVersion = string(f.Bytes)
		case f.Number == listContinue:
			m.Continue = string(f.Bytes)
		case f.Number == listRemaining:
			m.Remaining = int64(f.Uint) //nolint:gosec // proto's int64 is two's complement
		}
	}
	return nil
}

func parseListJSON(raw []byte) (meta ListMeta, items [][]byte, err error) {
	var metadata, array []byte
	for m, err := range members(raw) {
		if err != nil {
			return meta, nil, err
		}
		value, _ := text(m.value)
		switch string(m.name) {
		case "apiVersion":
			meta.APIVersion = string(value)
		case "kind":
			meta.Kind = string(value)
		case "metadata":
			metadata = m.value
		case "items":
			array = m.value
		}
	}
	if metadata == nil || array == nil {
		return meta, nil, fmt.Errorf("%w: a list without metadata or items", ErrMalformed)
	}
	for m, err := range members(metadata) {
		if err != nil {
			return meta, nil, err
		}
		value, _ := text(m.value)
		switch string(m.name) {
		case "resourceVersion":
			meta.ResourceVersion = string(value)
		case "continue":
			meta.Continue = string(value)
		case "remainingItemCount":
			if meta.Remaining, err = strconv.ParseInt(string(m.value), 10, 64); err != nil {
				return meta, nil, fmt.Errorf("%w: remainingItemCount: %w", ErrMalformed, err)
			}
		}
	}
	for item, err := range elements(array) {
		if err != nil {
			return meta, nil, err
		}
		items = append(items, item)
	}
	return meta, items, nil
}
