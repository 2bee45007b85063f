package object

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"unicode/utf8"
)

func skipSpace(b []byte, at int) int {
	for at < len(b) && (b[at] == ' ' || b[at] == '\n' || b[at] == '\t' || b[at] == '\r') {
		at++
	}
	return at
}

// skipString returns the end of the string that begins at at.
func skipString(b []byte, at int) (end int, ok bool) {
	for at++; at < len(b); at++ {
		next := bytes.IndexAny(b[at:min(len(b), at+64)], `"\`) // most strings are short
		if next < 0 {
			at += min(len(b)-at, 64) - 1
			continue
		}
		at += next
		if b[at] == '"' {
			return at + 1, true
		}
		at++ // the character after the backslash
	}
	return at, false
}

// skipValue returns the end of the value that begins at at. It skips strings and
// counts brackets, without recursion, and does not validate numbers and words.
func skipValue(b []byte, at int) (end int, ok bool) {
	depth := 0
	for at = skipSpace(b, at); at < len(b); at = skipSpace(b, at) {
		switch b[at] {
		case '"':
			if at, ok = skipString(b, at); !ok {
				return at, false
			}
		case '{', '[':
			at++
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return at, false
			}
			at++
		case ',', ':':
			if depth == 0 {
				return at, false
			}
			at++
		default:
			for at < len(b) && !bytes.ContainsRune([]byte(" \n\t\r,:{}[]\""), rune(b[at])) {
				at++
			}
		}
		if depth == 0 {
			return at, true
		}
	}
	return at, false
}

// member is a name and value of a JSON object.
type member struct {
	name  []byte
	value []byte // as written
	at    int    // start of the value
}

// members yields the members of a JSON object, and an error at the first
// malformed member. null has no members.
func members(b []byte) iter.Seq2[member, error] {
	return func(yield func(member, error) bool) {
		at := skipSpace(b, 0)
		if string(b[at:]) == "null" {
			return
		}
		if at >= len(b) || b[at] != '{' {
			yield(member{}, fmt.Errorf("%w: not a JSON object", ErrMalformed))
			return
		}
		if at = skipSpace(b, at+1); at < len(b) && b[at] == '}' {
			return
		}
		for {
			m, end, err := memberAt(b, at)
			if !yield(m, err) || err != nil {
				return
			}
			switch at = skipSpace(b, end); {
			case at < len(b) && b[at] == '}':
				return
			case at < len(b) && b[at] == ',':
				at = skipSpace(b, at+1)
			default:
				yield(member{}, fmt.Errorf("%w: a JSON object that does not end", ErrMalformed))
				return
			}
		}
	}
}

func memberAt(b []byte, at int) (m member, end int, err error) {
	bad := fmt.Errorf("%w: JSON at %d", ErrMalformed, at)
	if at >= len(b) || b[at] != '"' {
		return m, at, bad
	}
	nameEnd, ok := skipString(b, at)
	if !ok {
		return m, at, bad
	}
	if m.name, ok = text(b[at:nameEnd]); !ok {
		return m, at, bad
	}
	colon := skipSpace(b, nameEnd)
	if colon >= len(b) || b[colon] != ':' {
		return m, at, bad
	}
	m.at = skipSpace(b, colon+1)
	if end, ok = skipValue(b, m.at); !ok {
		return m, at, bad
	}
	m.value = b[m.at:end:end]
	return m, end, nil
}

// elements yields the elements of a JSON array, unchanged.
func elements(b []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		bad := fmt.Errorf("%w: not a JSON array", ErrMalformed)
		at := skipSpace(b, 0)
		if string(b[at:]) == "null" {
			return
		}
		if at >= len(b) || b[at] != '[' {
			yield(nil, bad)
			return
		}
		if at = skipSpace(b, at+1); at < len(b) && b[at] == ']' {
			return
		}
		for {
			at = skipSpace(b, at)
			end, ok := skipValue(b, at)
			if !ok {
				yield(nil, bad)
				return
			}
			if !yield(b[at:end:end], nil) {
				return
			}
			switch at = skipSpace(b, end); {
			case at < len(b) && b[at] == ']':
				return
			case at < len(b) && b[at] == ',':
				at++
			default:
				yield(nil, bad)
				return
			}
		}
	}
}

// text returns the content of a JSON string, and false for other values.
func text(quoted []byte) ([]byte, bool) {
	if len(quoted) < 2 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
		return nil, false
	}
	inner := quoted[1 : len(quoted)-1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return inner, true
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return nil, false
	}
	return []byte(s), true
}

// appendString appends a JSON string.
func appendString(dst []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil { // impossible for a string
		return append(dst, `""`...)
	}
	return append(dst, quoted...)
}

func (o *Object) parseJSON() error {
	o.body = o.Raw
	for m, err := range members(o.Raw) {
		if err != nil {
			return err
		}
		switch string(m.name) {
		case "apiVersion":
			o.APIVersion, _ = text(m.value)
		case "kind":
			o.Kind, _ = text(m.value)
		case "metadata":
			o.meta = m.value
		}
	}
	if o.meta == nil {
		o.meta = []byte("{}")
	}
	for m, err := range members(o.meta) {
		if err != nil {
			return err
		}
		switch string(m.name) {
		case "name":
			o.Name, _ = text(m.value)
		case "namespace":
			o.Namespace, _ = text(m.value)
		case "uid":
			o.UID, _ = text(m.value)
		case "resourceVersion":
			o.ResourceVersion, _ = text(m.value)
		}
	}
	return nil
}

// withVersionJSON replaces the version in its place, or adds it.
func (o *Object) withVersionJSON(digits []byte) []byte {
	quoted := append(append([]byte{'"'}, digits...), '"')
	meta := setMember(o.meta, "resourceVersion", quoted)
	return setMember(o.Raw, "metadata", meta)
}

// setMember returns a JSON object with another value for one member.
func setMember(b []byte, name string, value []byte) []byte {
	empty, from, to := true, -1, -1
	for m, err := range members(b) {
		if err != nil {
			break
		}
		empty = false
		if string(m.name) == name { // the last member counts
			from, to = m.at, m.at+len(m.value)
		}
	}
	out := make([]byte, 0, len(b)+len(name)+len(value)+8)
	if from >= 0 {
		out = append(out, b[:from]...)
		out = append(out, value...)
		return append(out, b[to:]...)
	}
	out = append(out, '{')
	out = appendString(out, name)
	out = append(append(out, ':'), value...)
	if empty {
		return append(out, '}')
	}
	return append(append(out, ','), b[skipSpace(b, 0)+1:]...)
}

// pairsJSON yields the members of an object of strings.
func pairsJSON(meta []byte, name string) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for p, err := range members(memberOf(meta, name)) {
			if err != nil {
				return
			}
			if value, ok := text(p.value); ok && !yield(p.name, value) {
				return
			}
		}
	}
}

// memberOf returns the value of a member as written, or null.
func memberOf(b []byte, name string) []byte {
	found := []byte("null")
	for m, err := range members(b) {
		if err != nil {
			break
		}
		if string(m.name) == name {
			found = m.value
		}
	}
	return found
}
