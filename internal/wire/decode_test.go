package wire_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Our own decoder accepts exactly the messages that the generated code accepts, with the same result.
func FuzzDecodeListMessage(f *testing.F) {
	list := []*kv.KeyValue{item("/a", 3, 9), item("/b", 0, 8)}
	for _, e := range []*wire.Encoded{
		wire.ListChunk(9, kv.HistoryID{Cluster: "c", Lineage: 2}, list), wire.ListEnd(9, kv.HistoryID{Cluster: "c", Lineage: 2}, []byte("token"), 7, time.Second), wire.ListEnd(9, kv.HistoryID{Cluster: "c", Lineage: 2}, nil, 0, 0), wire.ListEnd(0, kv.HistoryID{}, nil, -1, -1),
	} {
		f.Add(e.Buffers.Materialize())
	}
	f.Add([]byte{0x5a, 0x02, 0x0a})
	f.Fuzz(func(t *testing.T, b []byte) {
		var want shardwatchv1.ListResponse
		wantErr := proto.Unmarshal(b, &want)
		got, err := wire.DecodeListMessage(b)
		if err != nil {
			if wantErr == nil {
				t.Fatalf("%x: error %v, but the generated code decodes %v", b, err, &want)
			}
			return
		}
		if wantErr != nil {
			return // for example field numbers out of bounds, which no node sends
		}
		if int64(got.Revision) != want.GetRevision() || got.Lineage != want.GetLineage() || max(0, got.Count) != max(0, want.GetCount()) || len(got.KVs) != len(want.GetKvs()) {
			t.Fatalf("%x: got %+v, want %v", b, got, &want)
		}
		for i, item := range got.KVs {
			if w := want.GetKvs()[i]; string(item.Key()) != string(w.GetKey()) || string(item.Value()) != string(w.GetValue()) || int64(item.ModRevision()) != w.GetModRevision() {
				t.Fatalf("%x: item %d is %q, want %v", b, i, item.Encoded(), w)
			}
		}
	})
}
