package wire_test

import (
	"math"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// etcdItem is the encoding of an item in the given form by etcd's code.
func etcdItem(t *testing.T, item *kv.KeyValue, form wire.ItemForm) *mvccpb.KeyValue {
	t.Helper()
	out := mvccKV(t, item)
	if form != wire.WholeItem {
		out.Value = nil
	}
	if form == wire.KeyItem {
		out.Lease = 0
	}
	return out
}

// Range responses from our own encoder equal those of etcd's code: all forms, copied and shared items, with and
// without a header.
func TestEtcdRangeAnswers(t *testing.T) {
	sizes := [][]int{nil, {0}, {1, 100, 5000}, {wire.SharedItem + 7}, {10, wire.SharedItem, 20, 30, 2 * wire.SharedItem, wire.SharedItem, 5}}
	for _, encoded := range sizes {
		for _, plain := range sizes {
			for _, form := range []wire.ItemForm{wire.WholeItem, wire.KeyItem, wire.KeyLeaseItem} {
				for _, withHeader := range []bool{false, true} {
					checkAnswer(t, encoded, plain, form, withHeader)
				}
			}
		}
	}
}

func checkAnswer(t *testing.T, encoded, plain []int, form wire.ItemForm, withHeader bool) {
	t.Helper()
	want := &etcdserverpb.RangeResponse{}
	answer := func() *wire.RangeAnswer {
		a := &wire.RangeAnswer{Form: form, More: withHeader}
		want = &etcdserverpb.RangeResponse{More: withHeader}
		if withHeader {
			a.Header = &wire.Header{Cluster: math.MaxUint64, Member: 7, Revision: math.MaxInt64, Term: 3}
			a.Count, want.Count = math.MaxInt64, math.MaxInt64
			want.Header = &etcdserverpb.ResponseHeader{ClusterId: math.MaxUint64, MemberId: 7, Revision: math.MaxInt64, RaftTerm: 3}
		}
		items := func(sizes []int) (list []*kv.KeyValue) {
			for i, size := range sizes {
				list = append(list, kv.NewKeyValue(kv.Fields{
					Key: []byte{'k', byte(i)}, Value: make([]byte, size), CreateRevision: 2, ModRevision: math.MaxInt64, Version: 300, Lease: -int64(i),
				}))
				want.Kvs = append(want.Kvs, etcdItem(t, list[i], form))
			}
			return list
		}
		shared := items(encoded)
		length := 0
		for _, item := range shared {
			length += wire.RangeItemSize(item, form)
		}
		for _, part := range wire.RangeItems(shared, form) {
			a.Encoded = append(a.Encoded, mem.SliceBuffer(part))
		}
		if a.Encoded.Len() != length {
			t.Fatalf("sizes %v, form %d: %d bytes, announced %d", encoded, form, a.Encoded.Len(), length)
		}
		a.Items = items(plain)
		return a
	}
	var got etcdserverpb.RangeResponse
	if err := proto.Unmarshal(bytesOf(t, answer().Encode()), &got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&got, want) {
		t.Fatalf("sizes %v and %v, form %d: responses differ from etcd's", encoded, plain, form)
	}
	var chunk etcdserverpb.RangeStreamResponse
	if err := proto.Unmarshal(bytesOf(t, answer().EncodeChunk()), &chunk); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(chunk.GetRangeResponse(), want) || len(chunk.ProtoReflect().GetUnknown()) > 0 {
		t.Fatalf("sizes %v and %v, form %d: chunks differ from etcd's", encoded, plain, form)
	}
}
