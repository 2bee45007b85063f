package client

import (
	"fmt"
	"strconv"

	"github.com/shardwatch/shardwatch/client/internal/keyrange"
)

// Range is a set of keys in byte order: all k with Start <= k < End, or every k >=
// Start if End is empty. The zero Range is the whole key space. [Key], [Prefix] and
// [Between] build the usual ones.
type Range struct {
	Start string
	End   string
}

// Key returns the range that holds one key.
func Key(key string) Range { return Range{Start: key, End: key + "\x00"} }

// Prefix returns the range of all keys that begin with prefix; for an empty prefix, the
// whole key space.
func Prefix(prefix string) Range {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return Range{Start: prefix, End: prefix[:i] + string([]byte{prefix[i] + 1})}
		}
	}
	return Range{Start: prefix}
}

// Between returns the range of all keys k with start <= k < end. An empty end means the
// end of the key space.
func Between(start, end string) Range { return Range{Start: start, End: end} }

// Contains reports whether the range holds key.
func (r Range) Contains(key string) bool { return key >= r.Start && (r.End == "" || key < r.End) }

// has is Contains without a copy of the key.
func (r Range) has(key []byte) bool {
	return string(key) >= r.Start && (r.End == "" || string(key) < r.End)
}

// String returns the range as readable text: one key as itself, others as [a, b).
func (r Range) String() string {
	switch r.End {
	case r.Start + "\x00":
		return strconv.Quote(r.Start)
	case "":
		return fmt.Sprintf("[%q, ∞)", r.Start)
	}
	return fmt.Sprintf("[%q, %q)", r.Start, r.End)
}

// keys returns the range for internal packages.
func (r Range) keys() keyrange.Range { return keyrange.Range(r) }

func (r Range) validate() error {
	switch {
	case r == Key(""):
		return fmt.Errorf("%w: key is empty: name a key, or watch the whole key space with the zero Range", ErrInvalid)
	case r.End != "" && r.End <= r.Start:
		return fmt.Errorf("%w: range end %q is not after its start %q", ErrInvalid, r.End, r.Start)
	}
	return nil
}

// wire returns the range in the form of etcd's API.
func (r Range) wire() (key, end []byte) { return keyrange.Encode(r.Start, r.End) }
