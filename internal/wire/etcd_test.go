package wire_test

import (
	"math"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// mvccKV is a key/value as etcd's own type.
func mvccKV(t *testing.T, item *kv.KeyValue) *mvccpb.KeyValue {
	t.Helper()
	if item == nil {
		return nil
	}
	var out mvccpb.KeyValue
	if err := proto.Unmarshal(item.Encoded(), &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

// Messages for etcd's clients from our own encoder equal those of etcd's code.
func TestEtcdWatchEvents(t *testing.T) {
	for _, size := range []int{0, 10, 1000, 1024, 5000} {
		events := []*kv.Event{
			{KV: item("/a", size, 9), Prev: item("/a", size+1, 5)},
			{Type: kv.Delete, KV: kv.NewKeyValue(kv.Fields{Key: []byte("/b"), ModRevision: 9}), Prev: item("/b", size, 4)},
			{KV: item("/c", size, 9)},
		}
		for _, prev := range []bool{false, true} {
			for _, id := range []int64{0, 1, -1, math.MaxInt64} {
				want := &etcdserverpb.WatchResponse{
					Header:  &etcdserverpb.ResponseHeader{ClusterId: math.MaxUint64, MemberId: 7, Revision: 9, RaftTerm: 3},
					WatchId: id, Fragment: prev,
				}
				for _, e := range events {
					out := &mvccpb.Event{Type: mvccpb.Event_EventType(e.Type), Kv: mvccKV(t, e.KV)}
					if prev {
						out.PrevKv = mvccKV(t, e.Prev)
					}
					want.Events = append(want.Events, out)
				}
				var got etcdserverpb.WatchResponse
				h := wire.Header{Cluster: math.MaxUint64, Member: 7, Revision: 9, Term: 3}
				if err := proto.Unmarshal(bytesOf(t, new(wire.Fan).EtcdWatchEvents(wire.NewEtcdRecipient(id), h, prev, events, prev)), &got); err != nil {
					t.Fatal(err)
				}
				if !proto.Equal(&got, want) {
					t.Fatalf("got %v, want %v", &got, want)
				}
			}
		}
	}
}

// An empty header is encoded, not omitted.
func TestEtcdHeaderOfNothing(t *testing.T) {
	var got etcdserverpb.WatchResponse
	if err := proto.Unmarshal(bytesOf(t, new(wire.Fan).EtcdWatchEvents(wire.NewEtcdRecipient(0), wire.Header{}, false, nil, false)), &got); err != nil {
		t.Fatal(err)
	}
	if got.GetHeader() == nil || !proto.Equal(&got, &etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{}}) {
		t.Errorf("got %v", &got)
	}
}
