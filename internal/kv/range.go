package kv

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Range is a set of keys in byte order: every k with Start <= k < End, or every k >=
// Start when End is empty. The zero Range is the whole key space.
//
// It is always normalised; etcd's forms (a single key, "\x00" as an open end)
// exist at the edges only: see [RangeFromEtcd] and [Range.Etcd].
type Range struct {
	Start string
	End   string
}

// ErrEmptyKey reports that a request named no key.
var ErrEmptyKey = errors.New("key is empty: name a key, or use \"\\x00\" for the lowest possible one")

// RangeFromEtcd returns the range of etcd's key and rangeEnd: one key when rangeEnd is empty,
// everything from key on when it is "\x00". It fails with [ErrEmptyKey], and when rangeEnd is not
// after key. Bytes are copied, strings are shared.
func RangeFromEtcd[K ~string | ~[]byte](key, rangeEnd K) (Range, error) {
	switch {
	case len(key) == 0:
		return Range{}, ErrEmptyKey
	case len(rangeEnd) == 0:
		return Single(string(key)), nil
	case len(rangeEnd) == 1 && rangeEnd[0] == 0:
		r := Range{Start: string(key)}
		if r.Start == "\x00" {
			r.Start = "" // in etcd's notation, all keys
		}
		return r, nil
	}
	r := Range{Start: string(key), End: string(rangeEnd)}
	if r.End <= r.Start {
		return Range{}, fmt.Errorf("range_end %s is not after key %s", Quote(rangeEnd), Quote(key))
	}
	if r.Start == "\x00" {
		r.Start = ""
	}
	return r, nil
}

// Etcd returns the range in etcd's notation. The whole key space is "\x00", "\x00".
func (r Range) Etcd() (key, rangeEnd []byte) {
	key = []byte(r.Start)
	if len(key) == 0 {
		key = []byte{0}
	}
	switch {
	case r.End == "":
		return key, []byte{0}
	case r.IsSingle():
		return key, nil
	}
	return key, []byte(r.End)
}

// Single returns the range of one key.
func Single(key string) Range { return Range{Start: key, End: key + "\x00"} }

// Prefix returns the range of all keys that start with p. The empty prefix is
// the whole key space.
func Prefix(p string) Range { return Range{Start: p, End: PrefixEnd(p)} }

// PrefixEnd returns the first key after all keys that start with p, or the empty string
// when there is none.
func PrefixEnd(p string) string {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] < 0xff {
			return p[:i] + string([]byte{p[i] + 1})
		}
	}
	return ""
}

// IsSingle reports whether the range holds exactly one key.
func (r Range) IsSingle() bool {
	return len(r.End) == len(r.Start)+1 && r.End[len(r.Start)] == 0 && strings.HasPrefix(r.End, r.Start)
}

// Contains reports whether key lies in r.
func (r Range) Contains(key string) bool {
	return key >= r.Start && (r.End == "" || key < r.End)
}

// ContainsBytes is Contains without a conversion.
func (r Range) ContainsBytes(key []byte) bool {
	return string(key) >= r.Start && (r.End == "" || string(key) < r.End)
}

// Covers reports whether every key of o lies in r.
func (r Range) Covers(o Range) bool {
	return o.Start >= r.Start && (r.End == "" || (o.End != "" && o.End <= r.End))
}

// Overlaps reports whether some key lies in both.
func (r Range) Overlaps(o Range) bool {
	return (r.End == "" || o.Start < r.End) && (o.End == "" || r.Start < o.End)
}

// Intersect returns the keys in both ranges, and false when there are none.
func (r Range) Intersect(o Range) (Range, bool) {
	if !r.Overlaps(o) {
		return Range{}, false
	}
	out := Range{Start: max(r.Start, o.Start), End: r.End}
	if r.End == "" || (o.End != "" && o.End < r.End) {
		out.End = o.End
	}
	return out, true
}

// String returns the range for logs and errors: a quoted key, or [start, end). Long
// keys are clipped; see Quote.
func (r Range) String() string {
	switch {
	case r.IsSingle():
		return Quote(r.Start)
	case r.End == "":
		return fmt.Sprintf("[%s, ∞)", Quote(r.Start))
	}
	return fmt.Sprintf("[%s, %s)", Quote(r.Start), Quote(r.End))
}

// maxQuoted bounds the bytes of a key in logs and errors.
const maxQuoted = 256

// Quote returns a key for logs and errors: quoted, and at most its first 256 bytes.
// Clients use keys of megabytes.
func Quote[K ~string | ~[]byte](key K) string {
	if len(key) <= maxQuoted {
		return strconv.Quote(string(key))
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(string(key[:maxQuoted])), len(key))
}
