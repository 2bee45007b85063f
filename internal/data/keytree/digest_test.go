package keytree

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
)

func stateOf(kvs ...*kv.KeyValue) *Snapshot {
	s := &Snapshot{Revision: 100, Root: New()}
	for _, k := range kvs {
		s.Root.Set(k)
	}
	return s
}

func some(n int) []*kv.KeyValue {
	out := make([]*kv.KeyValue, n)
	for i := range out {
		out[i] = kv.NewKeyValue(kv.Fields{
			Key: fmt.Appendf(nil, "/k/%04d", i), Value: fmt.Appendf(nil, "value %d", i),
			CreateRevision: 3, ModRevision: kv.Revision(i + 3), Version: 2, Lease: int64(i % 3),
		})
	}
	return out
}

func never(context.Context) error { return nil }

func sumUp(t *testing.T, s *Snapshot) *Digest {
	t.Helper()
	d, err := s.Digest(t.Context(), never)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The digest changes with any byte of any key, and its differing buckets contain that key.
func TestDigestDependsOnEveryByte(t *testing.T) {
	const n = 1000
	want := sumUp(t, stateOf(some(n)...))
	if want.Keys != n || want.Revision != 100 {
		t.Fatalf("digest of %d keys at revision %d", want.Keys, want.Revision)
	}
	rng := testseed.Rand(t)
	order := some(n)
	rng.Shuffle(n, func(i, k int) { order[i], order[k] = order[k], order[i] })
	if got := sumUp(t, stateOf(order...)); *got != *want {
		t.Error("equal states have different digests")
	}
	for range 300 {
		list := some(n)
		s := stateOf(list...)
		bad := list[rng.IntN(n)]
		key := string(bad.Key())
		at, bit := rng.IntN(len(bad.Encoded())), rng.IntN(8)
		bad.Encoded()[at] ^= 1 << bit
		got := sumUp(t, s)
		buckets := want.Differ(got)
		if got.Sum() == want.Sum() || len(buckets) == 0 {
			t.Fatalf("bit %d of byte %d of %s was flipped, but the digest is equal", bit, at, key)
		}
		bad.Encoded()[at] ^= 1 << bit // restore it, so that the key can be found
		is, _, err := s.KeyDigests(t.Context(), buckets, n, never)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, k := range is {
			found = found || k.Key == key
		}
		if !found {
			t.Fatalf("%s is not in the differing buckets", key)
		}
	}
}

func TestDifferences(t *testing.T) {
	list := some(5)
	mine, other := stateOf(list[0], list[1], list[3]), stateOf(list[0], list[2], kv.NewKeyValue(kv.Fields{Key: list[3].Key(), ModRevision: 77}))
	var got []string
	for _, d := range Differences(mine.Keys(kv.Range{}, -1), other.Keys(kv.Range{}, -1)) {
		got = append(got, fmt.Sprintf("%s %d %d", d.Key, d.Mine.ModRevision, d.Other.ModRevision))
	}
	if want := "[/k/0001 4 0 /k/0002 0 5 /k/0003 6 77]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestDigestIsPaced(t *testing.T) {
	big := make([]*kv.KeyValue, 64)
	for i := range big {
		big[i] = kv.NewKeyValue(kv.Fields{Key: fmt.Appendf(nil, "%d", i), Value: make([]byte, 128<<10), ModRevision: 3})
	}
	calls, errStop := 0, errors.New("stop")
	_, err := stateOf(big...).Digest(t.Context(), func(context.Context) error {
		if calls++; calls == 3 {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) || calls != 3 {
		t.Errorf("%d calls of the pacing function, want 3; error %v", calls, err)
	}
	list, more, err := stateOf(big...).KeyDigests(t.Context(), []uint32{3}, 10, never)
	if len(list) != 10 || !more || err != nil {
		t.Errorf("%d keys, more %v, %v; want the first 10 of more", len(list), more, err)
	}
}

// BenchmarkDigest measures the cost of verification: the bytes per second of one CPU.
func BenchmarkDigest(b *testing.B) {
	for _, size := range []int{256, 1024, 16 << 10} {
		b.Run(fmt.Sprintf("value=%d", size), func(b *testing.B) {
			const total = 256 << 20
			n := total / size
			s := &Snapshot{Root: New()}
			for _, i := range testseed.Rand(b).Perm(n) { // in random order, like the memory of a node after a while
				s.Root.Set(kv.NewKeyValue(kv.Fields{Key: fmt.Appendf(nil, "/registry/pods/%08d", i), Value: make([]byte, size), ModRevision: kv.Revision(i)}))
			}
			var bytes int64
			for b.Loop() {
				d, err := s.Digest(b.Context(), never)
				if err != nil {
					b.Fatal(err)
				}
				bytes = d.Bytes
			}
			b.SetBytes(bytes)
		})
	}
}
