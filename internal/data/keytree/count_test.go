package keytree

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Counts and counted reads agree with a scan of all keys, for any range. Its ends are keys, lie between keys, or
// are open, and may be reversed.
func TestCountAgainstAScan(t *testing.T) {
	rng := testseed.Rand(t)
	for _, n := range []int{0, 1, 2, 100, 5000} {
		s := &Snapshot{Root: New()}
		for range n {
			s.Root.Set(kv.NewKeyValue(kv.Fields{Key: fmt.Appendf(nil, "%04d", rng.IntN(2*n))}))
		}
		for range 200 {
			r := kv.Range{Start: fmt.Sprintf("%04d", rng.IntN(2*n+2)), End: fmt.Sprintf("%04d", rng.IntN(2*n+2))}
			switch rng.IntN(4) {
			case 0:
				r.Start = ""
			case 1:
				r.End = ""
			}
			var want []string
			s.Ascend(r, func(item *kv.KeyValue) bool {
				want = append(want, string(item.Key()))
				return true
			})
			if got := s.Count(r); got != len(want) {
				t.Fatalf("%d keys are in %v, Count returned %d", len(want), r, got)
			}
			var got []string
			most := rng.IntN(len(want) + 1)
			s.AscendN(r.Start, most, func(item *kv.KeyValue) bool {
				got = append(got, string(item.Key()))
				return true
			})
			if !slices.Equal(got, want[:most]) {
				t.Fatalf("%v: %d keys read, want the first %d of %d", r, len(got), most, len(want))
			}
		}
	}
}

func BenchmarkCount(b *testing.B) {
	for _, n := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			s := &Snapshot{Root: New()}
			for i := range n {
				s.Root.Load(kv.NewKeyValue(kv.Fields{Key: fmt.Appendf(nil, "/registry/pods/%08d", i)}))
			}
			r := kv.Range{Start: fmt.Sprintf("/registry/pods/%08d", n/4), End: fmt.Sprintf("/registry/pods/%08d", 3*n/4)}
			b.ReportAllocs()
			for b.Loop() {
				if s.Count(r) != n/2 {
					b.Fatal("wrong")
				}
			}
		})
	}
}
