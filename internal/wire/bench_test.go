package wire_test

import (
	"fmt"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// BenchmarkListChunk measures the cost of a chunk of a list, and its memory until it is sent.
func BenchmarkListChunk(b *testing.B) {
	for _, size := range []int{100, 1024, 4096} {
		b.Run(fmt.Sprintf("value=%d", size), func(b *testing.B) {
			var list []*kv.KeyValue
			for i := range (512 << 10) / size {
				list = append(list, item(fmt.Sprintf("/key/%06d", i), size, 7))
			}
			b.ReportAllocs()
			for b.Loop() {
				e := wire.ListChunk(9, kv.HistoryID{Lineage: 1}, list)
				e.Buffers.Free()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(list)), "ns/key")
		})
	}
}

// BenchmarkFan encodes one event for a thousand watches, like the pump: the cost of a delivery before the
// transport.
func BenchmarkFan(b *testing.B) {
	const watches = 1000
	for _, size := range []int{256, 16 << 10} {
		b.Run(fmt.Sprintf("value=%d", size), func(b *testing.B) {
			var to []wire.Recipient
			for i := range int64(watches) {
				to = append(to, wire.NewEtcdRecipient(i))
			}
			events := []*kv.Event{{KV: item("/some/key", size, 7)}}
			var f wire.Fan
			codec := wire.NewCodec()
			b.ReportAllocs()
			for i := 0; i < b.N; i++ { // b.Loop counts rounds, not deliveries
				out, err := codec.Marshal(f.EtcdWatchEvents(to[i%watches], wire.Header{Cluster: 1, Member: 2, Term: 3, Revision: kv.Revision(1 + i/watches)}, false, events, false))
				if err != nil {
					b.Fatal(err)
				}
				out.Free()
			}
		})
	}
}
