package wire_test

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

func bytesOf(t *testing.T, e *wire.Encoded) []byte {
	t.Helper()
	b, err := wire.NewCodec().Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	return b.Materialize()
}

// item returns a key/value with a value of size bytes. The tests use sizes below, at and above the size from which
// bytes are shared.
func item(key string, size int, mod kv.Revision) *kv.KeyValue {
	return kv.NewKeyValue(kv.Fields{Key: []byte(key), Value: bytes.Repeat([]byte{'v'}, size), CreateRevision: 2, ModRevision: mod, Version: 3})
}

// The generated code decodes the messages of our own encoder, with small and shared values.
func TestHandEncodingIsTheAPI(t *testing.T) {
	for _, size := range []int{0, 10, 1000, 1024, 5000, 200000} {
		put := &kv.Event{KV: item("/a", size, 9), Prev: item("/a", size+1, 5)}
		del := &kv.Event{Type: kv.Delete, KV: kv.NewKeyValue(kv.Fields{Key: []byte("/b"), ModRevision: 9}), Prev: item("/b", size, 4)}
		events := []*kv.Event{put, del}
		for _, prev := range []bool{false, true} {
			var w shardwatchv1.WatchResponse
			if err := proto.Unmarshal(bytesOf(t, new(wire.Fan).WatchEvents(wire.NewRecipient(7), 9, true, events, prev)), &w); err != nil {
				t.Fatal(err)
			}
			if w.GetWatchId() != 7 || w.GetRevision() != 9 || !w.GetFragment() || w.GetDetail() != nil {
				t.Fatalf("response %v", &w)
			}
			checkEvents(t, w.GetEvents(), prev, size)
			var f peerv1.FollowResponse
			if err := proto.Unmarshal(bytesOf(t, wire.FollowEvents(9, true, true, events, prev)), &f); err != nil {
				t.Fatal(err)
			}
			if f.GetRevision() != 9 || !f.GetFragment() || !f.GetHistory() || f.GetPart() != nil {
				t.Fatalf("follow %v", &f)
			}
			checkEvents(t, f.GetEvents(), prev, size)
		}
		for _, prev := range []bool{false, true} {
			var f peerv1.FollowResponse
			if err := proto.Unmarshal(bytesOf(t, wire.FollowSeveral(9, events, prev)), &f); err != nil {
				t.Fatal(err)
			}
			if f.GetRevision() != 9 || !f.GetSeveral() || f.GetFragment() || f.GetHistory() || f.GetPart() != nil {
				t.Fatalf("follow %v", &f)
			}
			checkEvents(t, f.GetEvents(), prev, size)
		}
		list := []*kv.KeyValue{put.KV, item("/z", size, 3)}
		var l shardwatchv1.ListResponse
		if err := proto.Unmarshal(bytesOf(t, wire.ListChunk(11, kv.HistoryID{Cluster: "c", Lineage: 2}, list)), &l); err != nil {
			t.Fatal(err)
		}
		if l.GetRevision() != 11 || l.GetLineage() != 2 || l.GetClusterId() != "c" || l.NextPageToken != nil || l.Count != nil || len(l.GetKvs()) != 2 || len(l.GetKvs()[1].GetValue()) != size {
			t.Fatalf("list %v", &l)
		}
		var s shardwatchv1.WatchResponse
		if err := proto.Unmarshal(bytesOf(t, wire.WatchSync(3, wire.NewSyncPart(wire.Sync{
			Kind: 1, Begin: true, End: true, Revision: 12, From: 10, KVs: list, Deleted: []string{"/gone", "/too"},
		}))), &s); err != nil {
			t.Fatal(err)
		}
		if y := s.GetSync(); s.GetWatchId() != 3 || y.GetFromRevision() != 10 || len(y.GetDeleted()) != 2 || string(y.GetDeleted()[1]) != "/too" || len(y.GetKvs()[1].GetValue()) != size || y.GetKind() != shardwatchv1.SyncKind_SYNC_KIND_STATE || !y.GetBegin() || !y.GetEnd() || y.GetRevision() != 12 || len(y.GetKvs()) != 2 {
			t.Fatalf("sync %v", &s)
		}
		var d shardwatchv1.ListResponse
		gone := wire.ListDeleted(11, kv.HistoryID{Cluster: "c", Lineage: 2}, []string{"/gone", "/too"})
		if m, err := wire.DecodeListMessage(bytesOf(t, gone)); err != nil || m.Revision != 11 || m.Lineage != 2 || m.Cluster != "c" || len(m.Deleted) != 2 || m.Deleted[1] != "/too" {
			t.Fatalf("deleted %v, %v", m, err)
		}
		if err := proto.Unmarshal(bytesOf(t, wire.ListDeleted(11, kv.HistoryID{Cluster: "c", Lineage: 2}, []string{"/gone"})), &d); err != nil || len(d.GetDeleted()) != 1 || string(d.GetDeleted()[0]) != "/gone" {
			t.Fatalf("deleted %v, %v", &d, err)
		}
		var c peerv1.FollowResponse
		if err := proto.Unmarshal(bytesOf(t, wire.FollowState(list)), &c); err != nil {
			t.Fatal(err)
		}
		if len(c.GetState().GetKvs()) != 2 || string(c.GetState().GetKvs()[1].GetKey()) != "/z" {
			t.Fatalf("state %v", &c)
		}
	}
}

func checkEvents(t *testing.T, got []*shardwatchv1.Event, prev bool, size int) {
	t.Helper()
	if len(got) != 2 || got[0].GetType() != shardwatchv1.EventType_PUT || got[1].GetType() != shardwatchv1.EventType_DELETE ||
		len(got[0].GetKv().GetValue()) != size || (got[0].GetPrevKv() != nil) != prev || (got[1].GetPrevKv() != nil) != prev {
		t.Fatalf("events %v", got)
	}
	if prev && (len(got[0].GetPrevKv().GetValue()) != size+1 || got[1].GetPrevKv().GetModRevision() != 4) {
		t.Fatalf("previous values %v", got)
	}
}

func TestFragmentsKeepOrderAndMarkTheLast(t *testing.T) {
	var events []*kv.Event
	for i := range 100 {
		events = append(events, &kv.Event{KV: item(string(rune('a'+i%26)), i*10, kv.Revision(i))})
	}
	for _, limit := range []int{1, 500, 5000, 1 << 30} {
		var all []*kv.Event
		last := false
		if err := wire.Fragments(events, false, limit, func(run []*kv.Event, more bool) error {
			if last || len(run) == 0 {
				t.Fatal("got an empty run, or a run after the last one")
			}
			all, last = append(all, run...), !more
			return nil
		}); err != nil || !last || len(all) != len(events) {
			t.Fatalf("limit %d: got %d events, last run seen: %v, %v", limit, len(all), last, err)
		}
		for i := range all {
			if all[i] != events[i] {
				t.Fatalf("limit %d: wrong order at event %d", limit, i)
			}
		}
	}
}

func TestListEnd(t *testing.T) {
	for _, count := range []int64{-1, 0, 1, 1 << 40} {
		age := time.Duration(count)
		b := bytesOf(t, wire.ListEnd(11, kv.HistoryID{Cluster: "c", Lineage: 2}, []byte("token"), count, age))
		var l shardwatchv1.ListResponse
		if err := proto.Unmarshal(b, &l); err != nil {
			t.Fatal(err)
		}
		if m, err := wire.DecodeListMessage(b); err != nil || m.Age != age || (l.Age == nil) != (age < 0) || l.GetAge().AsDuration() != max(0, age) {
			t.Errorf("age %v: decoded %+v, %v, and by the generated code %v", age, m, err, &l)
		}
		if l.GetRevision() != 11 || l.GetLineage() != 2 || l.GetClusterId() != "c" || string(l.GetNextPageToken()) != "token" || l.GetCount() != max(0, count) || (l.Count == nil) != (count < 0) {
			t.Errorf("end of a list with count %d: %v", count, &l)
		}
	}
}

// A list that a slow client has not read yet holds the shared bytes and little more.
func TestSharedBytesCostLittleMore(t *testing.T) {
	var list []*kv.KeyValue
	for range 5000 {
		list = append(list, item("/some/key", 1024, 3))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	e := wire.ListChunk(9, kv.HistoryID{Lineage: 1}, list)
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / uint64(len(list)); each > 300 {
		t.Errorf("a message holds %d bytes of its own for each shared value of 1 KiB", each)
	}
	e.Buffers.Free()
}

// Runs of a buffer are released with it, and not earlier.
func TestRunsOutliveTheirMessage(t *testing.T) {
	list := []*kv.KeyValue{item("/a", 2000, 3), item("/b", 10, 3), item("/c", 2000, 3)}
	e := wire.ListChunk(9, kv.HistoryID{Lineage: 1}, list)
	want := e.Buffers.Materialize()
	last := e.Buffers[len(e.Buffers)-2:] // the last run and its shared value
	last.Ref()
	tail := last.Materialize()
	e.Buffers.Free()
	for range 100 { // later messages reuse the released buffers
		wire.ListChunk(8, kv.HistoryID{Lineage: 2}, []*kv.KeyValue{item("/other", 100, 2)}).Buffers.Free()
	}
	if got := last.Materialize(); !bytes.Equal(got, tail) || !bytes.HasSuffix(want, got) {
		t.Error("a run has changed, although a reference to it is held")
	}
	last.Free()
}
