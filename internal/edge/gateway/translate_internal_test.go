package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// inPieces splits a message into buffers, as gRPC may.
func inPieces(b []byte, size int) (out mem.BufferSlice) {
	for len(b) > 0 {
		n := min(size, len(b))
		out, b = append(out, mem.SliceBuffer(b[:n])), b[n:]
	}
	return out
}

// forget removes unknown fields.
func forget(m protoreflect.Message) {
	m.SetUnknown(nil)
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.Message() == nil:
		case d.IsList():
			for i := range v.List().Len() {
				forget(v.List().Get(i).Message())
			}
		default:
			forget(v.Message())
		}
		return true
	})
}

func fuzzTranslate(f *testing.F, form *form, empty proto.Message, seeds ...proto.Message) {
	for _, m := range append(seeds, empty) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 3)
		f.Add(slices.Concat(b, b), 5) // single fields before the list and after it
	}
	kind := empty.ProtoReflect().Type()
	var all translators
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		var out bytes.Buffer
		written := all.translate(&out, form, inPieces(b, max(1, size)), "", "")
		want, got := kind.New().Interface(), kind.New().Interface()
		if err := proto.Unmarshal(b, want); err != nil || written != nil {
			return // invalid input is not translated
		}
		if err := protojson.Unmarshal(out.Bytes(), got); err != nil {
			t.Fatalf("%s: %v", out.Bytes(), err)
		}
		if forget(want.ProtoReflect()); !proto.Equal(want, got) {
			t.Errorf("%s: want %v", out.Bytes(), want)
		}
	})
}

// The translation of a list is the same as encoding the decoded list.
func FuzzTranslateList(f *testing.F) {
	fuzzTranslate(f, newServices(Config{}).list, &etcdserverpb.RangeResponse{},
		&etcdserverpb.RangeResponse{Count: 3},
		&etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: 1 << 40, ClusterId: 1 << 63}},
		&etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte("a"), Value: []byte("1"), ModRevision: 7}}},
		&etcdserverpb.RangeResponse{
			Header: &etcdserverpb.ResponseHeader{RaftTerm: 2}, Kvs: []*mvccpb.KeyValue{{Key: []byte("a")}, {}, {Key: []byte("b"), Lease: -1}}, More: true, Count: 3,
		},
	)
}

// Likewise, the translation of a watch message is the same as encoding the decoded message.
func FuzzTranslateWatch(f *testing.F) {
	fuzzTranslate(f, newServices(Config{}).watch, &etcdserverpb.WatchResponse{},
		&etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: 5}, WatchId: 3, Created: true},
		&etcdserverpb.WatchResponse{WatchId: -1, Created: true, Canceled: true, CancelReason: "a <reason> of \"Ä\"\n", CompactRevision: 9},
		&etcdserverpb.WatchResponse{Fragment: true, Events: []*mvccpb.Event{
			{Kv: &mvccpb.KeyValue{Key: []byte("a"), Value: bytes.Repeat([]byte("ab"), 5000), CreateRevision: 1, Version: 2}, PrevKv: &mvccpb.KeyValue{}},
			{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte("b")}},
			{},
			{Type: 7},
		}},
	)
}

// A watch message is written like etcd's: without fields that have default values.
func TestAWatchIsWrittenAsAtEtcd(t *testing.T) {
	b, err := proto.Marshal(&etcdserverpb.WatchResponse{
		Header: &etcdserverpb.ResponseHeader{ClusterId: 7, Revision: 9}, Created: true,
		Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: 9}}, {Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte("k")}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, 0x10, 0) // watch_id 0, which nodes encode
	const want = `{"result":{"header":{"cluster_id":"7","revision":"9"},"created":true,"events":[{"kv":{"key":"aw==","mod_revision":"9"}},{"type":"DELETE","kv":{"key":"aw=="}}]}}`
	s := newServices(Config{})
	var out bytes.Buffer
	if err := s.translate(&out, inPieces(b, 7), s.watch); err != nil || out.String() != want {
		t.Errorf("%v\n got %s\nwant %s", err, out.String(), want)
	}
}

// writes records the size of the largest Write.
type writes struct {
	bytes.Buffer

	largest int
}

func (w *writes) Write(p []byte) (int, error) {
	w.largest = max(w.largest, len(p))
	return w.Buffer.Write(p)
}

// Values are written in parts as they are read: the node never holds the JSON of a whole value.
func TestValuesAreWrittenInParts(t *testing.T) {
	m := &etcdserverpb.WatchResponse{Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Value: bytes.Repeat([]byte{0, 1, 2, 3}, 1<<18)}}}}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	s := newServices(Config{})
	var out writes
	if err := s.translate(&out, mem.BufferSlice{mem.SliceBuffer(b)}, s.watch); err != nil {
		t.Fatal(err)
	}
	if most := translatorBytes + 2*valuePart; out.largest > most {
		t.Errorf("the largest write has %d bytes, want at most %d", out.largest, most)
	}
	var got struct{ Result json.RawMessage }
	var back etcdserverpb.WatchResponse
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(got.Result, &back); err != nil || !proto.Equal(&back, m) {
		t.Errorf("the written message differs: %v", err)
	}
}

// A truncated message, or one with a length beyond its end, is an error.
func TestBrokenMessagesAreNotWritten(t *testing.T) {
	s := newServices(Config{})
	for name, b := range map[string]string{
		"an event beyond the end":              "\x5a\x7f\x12",
		"a key beyond its event":               "\x5a\x04\x12\x05\x0a\x01",
		"a key beyond its event that is there": "\x5a\x04\x12\x02\x0a\x05abcde",
		"an unknown beyond its event":          "\x5a\x03\xf2\x01\x05abcde",
		"a number without its end":             "\x10\xff",
		"an unknown beyond the end":            "\xf2\x07\x7f",
		"a revision as bytes":                  "\x12\x01a",
		"an event that is a number":            "\x58\x01",
		"a header after the header":            "\x0a\x02\x18\x01\x0a\x02\x18\x02",
		"events before and after one":          "\x5a\x00\x10\x01\x5a\x00",
	} {
		if err := s.translate(io.Discard, inPieces([]byte(b), 100), s.watch); err == nil {
			t.Errorf("%s: the message was accepted", name)
		}
	}
}

// BenchmarkWatchJSON writes a message with an event of 1 KiB, both with the streaming translation
// and with the translation for requests, which decodes the message first.
func BenchmarkWatchJSON(b *testing.B) {
	m := &etcdserverpb.WatchResponse{
		Header: &etcdserverpb.ResponseHeader{ClusterId: 1 << 60, MemberId: 1 << 61, Revision: 123456, RaftTerm: 2},
		Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Key: []byte("/crowd/000123"), Value: []byte(strings.Repeat("v", 1<<10)), CreateRevision: 100, ModRevision: 123456, Version: 9}}},
	}
	encoded, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("how=translate", func(b *testing.B) {
		s := newServices(Config{})
		data := mem.BufferSlice{mem.SliceBuffer(encoded)}
		b.ReportAllocs()
		for b.Loop() {
			if err := s.translate(io.Discard, data, s.watch); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("how=decode", func(b *testing.B) {
		j := runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{UseProtoNames: true}}
		b.ReportAllocs()
		for b.Loop() {
			var m etcdserverpb.WatchResponse
			if err := proto.Unmarshal(encoded, &m); err != nil {
				b.Fatal(err)
			}
			if _, err := j.Marshal(map[string]any{"result": &m}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
