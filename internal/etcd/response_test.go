package etcd

import (
	"bytes"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// What is decoded is what etcd's own code encodes, however often one response
// is used, and nothing of the buffer is kept.
func TestResponsesAreEtcds(t *testing.T) {
	rng := testkit.Rand(t)
	blob := func(most int) []byte {
		b := make([]byte, rng.IntN(most))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	item := func() *mvccpb.KeyValue {
		return &mvccpb.KeyValue{
			Key: append(blob(200), 'k'), Value: blob(300), CreateRevision: rng.Int64(), ModRevision: rng.Int64(),
			Version: rng.Int64N(3), Lease: rng.Int64N(2) * rng.Int64(),
		}
	}
	var got watchResponse
	for range 500 {
		m := &etcdserverpb.WatchResponse{
			WatchId: rng.Int64N(5) - 1, Created: rng.IntN(2) == 0, Canceled: rng.IntN(2) == 0, Fragment: rng.IntN(2) == 0,
			CompactRevision: rng.Int64N(3), CancelReason: string(bytes.Repeat([]byte("why"), rng.IntN(3))),
		}
		if rng.IntN(5) > 0 {
			m.Header = &etcdserverpb.ResponseHeader{ClusterId: rng.Uint64(), MemberId: rng.Uint64(), Revision: rng.Int64N(3) * rng.Int64N(1<<40), RaftTerm: rng.Uint64()}
		}
		for range rng.IntN(6) {
			e := &mvccpb.Event{Kv: item(), Type: mvccpb.Event_EventType(rng.IntN(2))}
			if rng.IntN(3) == 0 {
				e.PrevKv = item()
			}
			m.Events = append(m.Events, e)
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.decode(b); err != nil {
			t.Fatal(err)
		}
		clear(b)
		if got.watch != m.GetWatchId() || got.created != m.GetCreated() || got.canceled != m.GetCanceled() || got.fragment != m.GetFragment() ||
			int64(got.compacted) != m.GetCompactRevision() || got.reason != m.GetCancelReason() || int64(got.revision) != m.GetHeader().GetRevision() ||
			len(got.events) != len(m.GetEvents()) {
			t.Fatalf("decoded %+v from %v", got, m)
		}
		for i, want := range m.GetEvents() {
			e := got.events[i]
			if int32(e.Type) != int32(want.GetType()) || !bytes.Equal(e.KV.Encoded(), keyValue(want.GetKv()).Encoded()) || (e.Prev == nil) != (want.GetPrevKv() == nil) {
				t.Fatalf("decoded %+v from %v", e, want)
			}
			if e.Prev != nil && !bytes.Equal(e.Prev.Encoded(), keyValue(want.GetPrevKv()).Encoded()) {
				t.Fatalf("the previous value is %+v in %v", e.Prev, want)
			}
		}
	}
}

// A response is decoded up to the end of the revision that has the bytes that are wanted, and the
// next one anew.
func TestAResponseIsCut(t *testing.T) {
	m := &etcdserverpb.WatchResponse{WatchId: 1}
	for _, revision := range []int64{5, 5, 6, 6, 6, 7, 8} {
		m.Events = append(m.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, 100), ModRevision: revision}})
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		keep, events int
		cut          bool
	}{{0, 7, false}, {1, 2, true}, {250, 5, true}, {600, 6, true}, {700, 7, false}, {1 << 20, 7, false}} {
		got := watchResponse{keep: x.keep}
		for range 2 {
			if err := got.decode(b); err != nil {
				t.Fatal(err)
			}
			if len(got.events) != x.events || got.cut != x.cut {
				t.Errorf("of %d bytes: %d events, cut %v; want %d, %v", x.keep, len(got.events), got.cut, x.events, x.cut)
			}
		}
	}
}

func FuzzDecodeResponse(f *testing.F) {
	b, err := proto.Marshal(response(9, true, 5, 6))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x5a, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r watchResponse
		err := r.decode(b)
		if err != nil && !errors.Is(err, errProtocol) {
			t.Fatal(err)
		}
		for _, e := range r.events {
			if len(e.KV.Key()) == 0 || e.Type > kv.Delete {
				t.Fatalf("%x: %+v", b, e)
			}
		}
	})
}

// The progress request that is encoded once is what etcd's own code encodes.
func TestTheProgressRequestIsEtcds(t *testing.T) {
	if want, err := proto.Marshal(progressRequest()); err != nil || !bytes.Equal(encodedProgressRequest(), want) {
		t.Errorf("%x, want %x, %v", encodedProgressRequest(), want, err)
	}
}
