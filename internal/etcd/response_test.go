package etcd

import (
	"bytes"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// A decoded response equals the encoded one, even if one response is reused. It keeps no bytes of the buffer.
func TestResponsesAreEtcds(t *testing.T) {
	rng := testseed.Rand(t)
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
		large := watchResponse{}
		if err := large.decodeLarge(pieces(b, 1+rng.IntN(100))); err != nil {
			t.Fatal(err)
		}
		clear(b)
		if !sameResponse(&got, &large) {
			t.Fatalf("decoded %+v as a whole, and %+v in pieces", got, large)
		}
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
				t.Fatalf("previous value %+v in %v", e.Prev, want)
			}
		}
	}
}

// pieces returns a reader of b that arrives in pieces of the given size.
func pieces(b []byte, size int) *mem.Reader {
	var out mem.BufferSlice
	for piece := range slices.Chunk(b, size) {
		out = append(out, mem.SliceBuffer(bytes.Clone(piece)))
	}
	return out.Reader()
}

func sameResponse(a, b *watchResponse) bool {
	return a.watch == b.watch && a.revision == b.revision && a.created == b.created && a.canceled == b.canceled && a.fragment == b.fragment &&
		a.compacted == b.compacted && a.reason == b.reason && a.cut == b.cut && a.bytes == b.bytes &&
		slices.EqualFunc(a.events, b.events, func(x, y kv.Event) bool { return reflect.DeepEqual(x, y) })
}

// received is a stream with one response.
type received struct {
	etcdserverpb.Watch_WatchClient
	b mem.BufferSlice
}

func (r received) RecvMsg(m any) error {
	m.(*wire.Encoded).Buffers = r.b //nolint:forcetypeassert // all are
	return nil
}

// Decoding a large response makes no second copy. It reads the requested bytes and no more.
func TestALargeResponseIsNotCopied(t *testing.T) {
	const size, keep = 32 << 20, 1 << 20
	m := &etcdserverpb.WatchResponse{WatchId: 1}
	for i := range int64(size >> 10) {
		m.Events = append(m.Events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, 1<<10), ModRevision: i + 1}})
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	s := &watchStream{Watch_WatchClient: received{b: mem.BufferSlice{mem.SliceBuffer(b[:size/2]), mem.SliceBuffer(b[size/2:])}}}
	s.last.keep = keep
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := s.receive()
	runtime.ReadMemStats(&after)
	if err != nil || !r.cut || r.bytes < keep || r.bytes > keep+2<<10 {
		t.Fatalf("%d bytes are decoded, cut %v: %v", r.bytes, r.cut, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 4*keep {
		t.Errorf("%d bytes are allocated for %d requested bytes of a response of %d", took, keep, len(b))
	}
}

// A response is decoded up to the end of the revision that contains the last requested byte. The next response is
// decoded from the beginning.
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
		for _, decode := range []func([]byte) error{got.decode, got.decode, func(b []byte) error { return got.decodeLarge(pieces(b, 7)) }} {
			if err := decode(b); err != nil {
				t.Fatal(err)
			}
			if len(got.events) != x.events || got.cut != x.cut {
				t.Errorf("%d bytes requested: %d events, cut %v; want %d, %v", x.keep, len(got.events), got.cut, x.events, x.cut)
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
		var large watchResponse
		inPieces := large.decodeLarge(pieces(b, 5))
		switch {
		case inPieces != nil && !errors.Is(inPieces, errProtocol):
			t.Fatal(inPieces)
		case inPieces == nil && err == nil && !sameResponse(&r, &large):
			t.Fatalf("decoded %+v as a whole, and %+v in pieces", r, large)
		}
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

// The progress request that is encoded in advance equals that of etcd's own code.
func TestTheProgressRequestIsEtcds(t *testing.T) {
	if want, err := proto.Marshal(progressRequest()); err != nil || !bytes.Equal(encodedProgressRequest(), want) {
		t.Errorf("%x, want %x, %v", encodedProgressRequest(), want, err)
	}
}
