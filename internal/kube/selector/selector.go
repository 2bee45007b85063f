package selector

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/shardwatch/shardwatch/internal/kube/object"
)

// MaxBytes bounds a selector: an open watch keeps it, and evaluates it for each event. An apiserver
// serves requests with longer selectors.
const MaxBytes = 1 << 10

// ErrInvalid reports that this package cannot evaluate a selector. An apiserver
// evaluates it, or reports its error.
var ErrInvalid = errors.New("selector is not supported")

// operator compares the value of a label or field with the values of a requirement.
type operator uint8

const (
	in operator = iota
	notIn
	exists
	missing
	greater
	less
)

// requirement is one term of a selector; all must hold.
type requirement struct {
	key    string
	op     operator
	values []string // of in and notIn, in order
	bound  int64    // of greater and less
}

// Selector is a label selector and a field selector. The zero Selector matches
// everything.
type Selector struct {
	labels []requirement
	fields []requirement
}

// Parse reads the query parameters labelSelector and fieldSelector.
func Parse(labels, fields string) (Selector, error) {
	if len(labels)+len(fields) > MaxBytes {
		return Selector{}, fmt.Errorf("%w: longer than %d bytes", ErrInvalid, MaxBytes)
	}
	var s Selector
	var err error
	if s.labels, err = parseLabels(labels); err != nil {
		return Selector{}, err
	}
	s.fields, err = parseFields(fields)
	return s, err
}

// Everything reports whether the selector matches every object.
func (s *Selector) Everything() bool { return len(s.labels) == 0 && len(s.fields) == 0 }

// Fields yields the fields that the selector names.
func (s *Selector) Fields(yield func(path string) bool) {
	for i := range s.fields {
		if !yield(s.fields[i].key) {
			return
		}
	}
}

// Exact returns the only value of a field that the selector matches, if there is
// one.
func (s *Selector) Exact(path string) (value string, ok bool) {
	for i := range s.fields {
		if r := &s.fields[i]; r.key == path && r.op == in {
			return r.values[0], true
		}
	}
	return "", false
}

// Demanded returns a field with the only value that the selector matches: of several fields,
// the one whose values the fewest objects share. The path is "" if there is none.
func (s *Selector) Demanded() (path, value string) {
	for _, path := range []string{"metadata.name", "spec.nodeName"} {
		if value, ok := s.Exact(path); ok {
			return path, value
		}
	}
	for path := range s.Fields {
		if value, ok := s.Exact(path); ok {
			return path, value
		}
	}
	return "", ""
}

// Supports reports whether the fields that the selector names can be evaluated
// on objects of a kind.
func (s *Selector) Supports(apiVersion, kind string) bool {
	for path := range s.Fields {
		if _, ok := object.FieldOf(apiVersion, kind, path); !ok {
			return false
		}
	}
	return true
}

// Matches reports whether an object matches.
func (s *Selector) Matches(o *object.Object) bool {
	for i := range s.fields {
		r := &s.fields[i]
		f, ok := object.FieldOf(string(o.APIVersion), string(o.Kind), r.key)
		if !ok || !r.holds(f.Value(o), true) {
			return false
		}
	}
	if len(s.labels) == 0 {
		return true
	}
	found := make([]string, len(s.labels))
	has := make([]bool, len(s.labels))
	for k, v := range o.Labels() {
		for i := range s.labels {
			if s.labels[i].key == string(k) {
				found[i], has[i] = string(v), true
			}
		}
	}
	for i := range s.labels {
		if !s.labels[i].holds(found[i], has[i]) {
			return false
		}
	}
	return true
}

// holds reports whether the requirement holds for a value; has is false if it is missing.
func (r *requirement) holds(value string, has bool) bool {
	switch r.op {
	case in:
		return has && r.names(value)
	case notIn:
		return !has || !r.names(value)
	case exists:
		return has
	case missing:
		return !has
	case greater, less:
		n, err := strconv.ParseInt(value, 10, 64)
		if !has || err != nil {
			return false
		}
		return r.op == greater && n > r.bound || r.op == less && n < r.bound
	}
	return false
}

func (r *requirement) names(value string) bool {
	_, found := slices.BinarySearch(r.values, value)
	return found
}

// parseFields reads terms such as spec.nodeName=a,status.phase!=Failed. A
// backslash escapes a comma, an equals sign or a backslash in a value.
func parseFields(text string) (out []requirement, err error) {
	for _, term := range splitTerms(text) {
		if term == "" {
			continue
		}
		key, op, value, ok := cutTerm(term)
		if !ok {
			return nil, fmt.Errorf("%w: field selector term %.100q", ErrInvalid, term)
		}
		if value, err = unescape(value); err != nil {
			return nil, err
		}
		out = append(out, requirement{key: key, op: op, values: []string{value}})
	}
	return out, nil
}

// splitTerms splits at commas that are not escaped.
func splitTerms(text string) (terms []string) {
	start := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case ',':
			terms = append(terms, text[start:i])
			start = i + 1
		}
	}
	return append(terms, text[start:])
}

func cutTerm(term string) (key string, op operator, value string, ok bool) {
	at := strings.IndexByte(term, '=')
	switch {
	case at < 0:
		return "", in, "", false
	case at > 0 && term[at-1] == '!':
		return term[:at-1], notIn, term[at+1:], true
	}
	return term[:at], in, strings.TrimPrefix(term[at+1:], "="), true
}

func unescape(value string) (string, error) {
	if !strings.ContainsAny(value, `\,=`) {
		return value, nil
	}
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c == '\\' && i+1 < len(value) && strings.IndexByte(`\,=`, value[i+1]) >= 0 {
			i++
			b.WriteByte(value[i])
			continue
		}
		if c == '\\' || c == '=' {
			return "", fmt.Errorf("%w: field selector value %.100q", ErrInvalid, value)
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}
