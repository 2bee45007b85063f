package keytree

import (
	"context"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// DigestBuckets is the number of buckets of a Digest.
const DigestBuckets = 256

// Digest summarizes a state: equal states have equal digests on all nodes, and
// different states have different ones except for one in 2⁶⁴. It is computed from the
// served bytes, so it detects memory errors.
type Digest struct {
	Revision kv.Revision
	Keys     int64
	Bytes    int64 // encoded
	// Buckets are the sums of the hashes of keys, by mod revision: a comparison of two
	// states has to read only the keys of the differing buckets.
	Buckets [DigestBuckets]uint64
}

// Sum returns the digest as one number.
func (d *Digest) Sum() uint64 {
	var sum uint64
	for i, b := range d.Buckets {
		sum += b * uint64(2*i+1)
	}
	return sum
}

// Differ returns the buckets in which two digests of one revision differ.
func (d *Digest) Differ(o *Digest) []uint32 {
	var out []uint32
	for i := range d.Buckets {
		if d.Buckets[i] != o.Buckets[i] {
			out = append(out, uint32(i))
		}
	}
	return out
}

// KeyDigest is the digest of one key of a state.
type KeyDigest struct {
	Key         string
	ModRevision kv.Revision // 0: the key does not exist
	Hash        uint64
}

func bucketOf(item *kv.KeyValue) uint32 { return uint32(item.ModRevision()) % DigestBuckets } //nolint:gosec // the lower bits do

// HashOf returns the hash of all fields of a key: key, value, revisions, version and
// lease.
func HashOf(item *kv.KeyValue) uint64 {
	return xxhash.Sum64(item.Encoded())
}

// digestStep is the number of bytes that are hashed between two calls of pace.
const digestStep = 1 << 20

// Digest computes the digest of the state. It calls pace every digestStep bytes, which
// may block. An error of pace or ctx ends it.
func (s *Snapshot) Digest(ctx context.Context, pace func(context.Context) error) (*Digest, error) {
	d := &Digest{Revision: s.Revision}
	err := s.each(ctx, pace, func(item *kv.KeyValue) bool {
		d.Keys++
		d.Bytes += int64(len(item.Encoded()))
		d.Buckets[bucketOf(item)] += HashOf(item)
		return true
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// KeyDigests returns up to most keys of some buckets, in order, and whether there are
// more.
func (s *Snapshot) KeyDigests(ctx context.Context, buckets []uint32, most int, pace func(context.Context) error) (out []KeyDigest, more bool, err error) {
	err = s.each(ctx, pace, func(item *kv.KeyValue) bool {
		if !slices.Contains(buckets, bucketOf(item)) {
			return true
		}
		if more = len(out) == most; more {
			return false
		}
		out = append(out, KeyDigest{Key: string(item.Key()), ModRevision: item.ModRevision(), Hash: HashOf(item)})
		return true
	})
	return out, more, err
}

// Keys returns up to most keys of r, in order; -1: all.
func (s *Snapshot) Keys(r kv.Range, most int) []KeyDigest {
	var out []KeyDigest
	s.Ascend(r, func(item *kv.KeyValue) bool {
		if len(out) == most {
			return false
		}
		out = append(out, KeyDigest{Key: string(item.Key()), ModRevision: item.ModRevision(), Hash: HashOf(item)})
		return true
	})
	return out
}

// each calls fn with every key in order until it returns false, and pace between.
func (s *Snapshot) each(ctx context.Context, pace func(context.Context) error, fn func(*kv.KeyValue) bool) (err error) {
	const overhead = 128 // cost of reading a key, as hashed bytes
	done := 0
	s.Root.Scan(func(item *kv.KeyValue) bool {
		if done += len(item.Encoded()) + overhead; done >= digestStep {
			done = 0
			if err = ctx.Err(); err == nil {
				err = pace(ctx)
			}
			if err != nil {
				return false
			}
		}
		return fn(item)
	})
	return err
}

// Difference is a key that differs between two states, as each has it. A missing key
// has the mod revision 0.
type Difference struct {
	Key         string
	Mine, Other KeyDigest
}

// Differences compares the keys of two states, both in order.
func Differences(mine, other []KeyDigest) []Difference {
	var out []Difference
	for len(mine) > 0 || len(other) > 0 {
		var d Difference
		switch order := compareHeads(mine, other); {
		case order < 0:
			d, mine = Difference{Key: mine[0].Key, Mine: mine[0]}, mine[1:]
		case order > 0:
			d, other = Difference{Key: other[0].Key, Other: other[0]}, other[1:]
		default:
			d = Difference{Key: mine[0].Key, Mine: mine[0], Other: other[0]}
			mine, other = mine[1:], other[1:]
			if d.Mine == d.Other {
				continue
			}
		}
		out = append(out, d)
	}
	return out
}

// compareHeads compares the first keys of two lists, of which at most one is empty.
func compareHeads(mine, other []KeyDigest) int {
	switch {
	case len(mine) == 0:
		return 1
	case len(other) == 0:
		return -1
	}
	return strings.Compare(mine[0].Key, other[0].Key)
}
