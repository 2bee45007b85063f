package wire_test

import (
	"fmt"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// BenchmarkListChunk is the cost of a chunk of a list, and what it holds until
// it is sent.
func BenchmarkListChunk(b *testing.B) {
	for _, size := range []int{100, 1024, 4096} {
		b.Run(fmt.Sprintf("value=%d", size), func(b *testing.B) {
			var list []*kv.KeyValue
			for i := range (512 << 10) / size {
				list = append(list, item(fmt.Sprintf("/key/%06d", i), size, 7))
			}
			b.ReportAllocs()
			for b.Loop() {
				e := wire.ListChunk(9, 1, list)
				e.Buffers.Free()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(list)), "ns/key")
		})
	}
}
