package kv_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
)

func randomFields(rng *rand.Rand) kv.Fields {
	blob := func(min, max int) []byte {
		b := make([]byte, min+rng.IntN(max-min+1))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	return kv.Fields{
		Key: blob(1, 40), Value: blob(0, 400),
		CreateRevision: kv.Revision(rng.Int64N(1 << 40)), ModRevision: kv.Revision(rng.Int64N(1 << 40)),
		Version: rng.Int64N(100), Lease: rng.Int64() * int64(rng.IntN(2)),
	}
}

// Encoded events have the bytes of etcd's API and of ours, in both directions.
func TestEventBytesAreEtcds(t *testing.T) {
	rng := testseed.Rand(t)
	for range 500 {
		f, p := randomFields(rng), randomFields(rng)
		e := kv.Event{Type: kv.EventType(rng.IntN(2)), KV: kv.NewKeyValue(f)}
		if rng.IntN(2) == 0 {
			e.Prev = kv.NewKeyValue(p)
		}
		b := kv.AppendEvent(nil, &e, true)
		if got := kv.EventSize(&e, true); got != len(b) {
			t.Fatalf("EventSize = %d, encoded %d bytes", got, len(b))
		}
		var theirs mvccpb.Event
		if err := proto.Unmarshal(b, &theirs); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(theirs.Kv.Key, f.Key) || !bytes.Equal(theirs.Kv.Value, f.Value) ||
			theirs.Kv.CreateRevision != int64(f.CreateRevision) || theirs.Kv.ModRevision != int64(f.ModRevision) ||
			theirs.Kv.Version != f.Version || theirs.Kv.Lease != f.Lease ||
			int32(theirs.Type) != int32(e.Type) || (theirs.PrevKv != nil) != (e.Prev != nil) {
			t.Fatalf("etcd decodes %v from %+v", &theirs, f)
		}
		back, err := proto.MarshalOptions{Deterministic: true}.Marshal(&theirs)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back, b) {
			t.Fatalf("etcd encodes %x, we encode %x", back, b)
		}
		var ours shardwatchv1.Event
		if err := proto.Unmarshal(b, &ours); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(ours.GetKv().GetValue(), f.Value) || len(ours.ProtoReflect().GetUnknown()) > 0 {
			t.Fatalf("our API decodes %v", &ours)
		}
		d, err := kv.DecodeEvent(b)
		if err != nil {
			t.Fatal(err)
		}
		if d.Type != e.Type || !bytes.Equal(d.KV.Key(), f.Key) || !bytes.Equal(d.KV.Value(), f.Value) ||
			d.KV.ModRevision() != f.ModRevision || d.KV.CreateRevision() != f.CreateRevision ||
			d.KV.Version() != f.Version || d.KV.Lease() != f.Lease || !bytes.Equal(d.KV.Encoded(), e.KV.Encoded()) {
			t.Fatalf("decoded %+v from %+v", d.KV, f)
		}
		if (d.Prev != nil) != (e.Prev != nil) || (d.Prev != nil && !bytes.Equal(d.Prev.Value(), p.Value)) {
			t.Fatal("previous value lost")
		}
	}
}

// A decoded key/value has our encoding, whatever its original encoding: equality is decided by the bytes.
func TestDecodedBytesAreOurs(t *testing.T) {
	rng := testseed.Rand(t)
	for range 500 {
		f := randomFields(rng)
		fields := [][]byte{
			protowire.AppendBytes([]byte{1<<3 | 2}, f.Key),
			protowire.AppendVarint([]byte{2 << 3}, uint64(f.CreateRevision)),
			protowire.AppendVarint([]byte{3 << 3}, uint64(f.ModRevision)),
			protowire.AppendVarint([]byte{4 << 3}, uint64(f.Version)), // may be zero
			protowire.AppendBytes([]byte{5<<3 | 2}, f.Value),          // may be empty
			protowire.AppendVarint([]byte{6 << 3}, uint64(f.Lease)),
		}
		switch rng.IntN(4) {
		case 0:
			rng.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		case 1:
			fields = append(fields, []byte{7 << 3, 1}) // unknown
		case 2:
			fields = append([][]byte{{4 << 3, 9}}, fields...) // the last value counts
		}
		k, err := kv.DecodeKeyValue(bytes.Join(fields, nil))
		if err != nil {
			t.Fatal(err)
		}
		if want := kv.NewKeyValue(f); !bytes.Equal(k.Encoded(), want.Encoded()) || k.ModRevision() != f.ModRevision || k.Lease() != f.Lease {
			t.Fatalf("%+v is encoded as %x, want %x", f, k.Encoded(), want.Encoded())
		}
	}
}

func FuzzDecodeEvent(f *testing.F) {
	e := kv.Event{Type: kv.Delete, KV: kv.NewKeyValue(kv.Fields{Key: []byte("k"), ModRevision: 7})}
	f.Add(kv.AppendEvent(nil, &e, true))
	f.Add([]byte{0x12, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := kv.DecodeEvent(b)
		if err != nil {
			return
		}
		again, err := kv.DecodeEvent(kv.AppendEvent(nil, &e, true))
		if err != nil || !bytes.Equal(again.KV.Key(), e.KV.Key()) || !bytes.Equal(again.KV.Value(), e.KV.Value()) {
			t.Fatalf("%x changes in a round trip: %v", b, err)
		}
	})
}

func TestRangeFromEtcd(t *testing.T) {
	for _, c := range []struct {
		key, end string
		want     kv.Range
		err      bool
	}{
		{"", "", kv.Range{}, true},
		{"a", "", kv.Range{Start: "a", End: "a\x00"}, false},
		{"a", "b", kv.Range{Start: "a", End: "b"}, false},
		{"a", "\x00", kv.Range{Start: "a"}, false},
		{"\x00", "\x00", kv.Range{}, false},
		{"\x00", "b", kv.Range{End: "b"}, false},
		{"b", "a", kv.Range{}, true},
		{"b", "b", kv.Range{}, true},
	} {
		got, err := kv.RangeFromEtcd([]byte(c.key), []byte(c.end))
		if (err != nil) != c.err || got != c.want {
			t.Errorf("RangeFromEtcd(%q, %q) = %v, %v; want %v", c.key, c.end, got, err, c.want)
		}
		if err == nil {
			k, e := got.Etcd()
			if back, err := kv.RangeFromEtcd(k, e); err != nil || back != got {
				t.Errorf("%v after a round trip: %v, %v", got, back, err)
			}
		}
	}
	if got := kv.Prefix("a\xff\xff"); got != (kv.Range{Start: "a\xff\xff", End: "b"}) {
		t.Errorf("Prefix = %v", got)
	}
	if got := kv.Prefix("\xff"); got != (kv.Range{Start: "\xff"}) {
		t.Errorf("Prefix = %v", got)
	}
}

// Operations on ranges agree with the same operations on sets of keys from a tiny alphabet.
func TestRangeAlgebra(t *testing.T) {
	keys := []string{"", "\x00", "a", "a\x00", "a\x00\x00", "ab", "b", "b\x00", "c"}
	var all []kv.Range
	for _, s := range keys {
		all = append(all, kv.Range{Start: s})
		for _, e := range keys {
			if e > s {
				all = append(all, kv.Range{Start: s, End: e})
			}
		}
	}
	set := func(r kv.Range) (s map[string]bool) {
		s = map[string]bool{}
		for _, k := range keys {
			if r.Contains(k) {
				s[k] = true
			}
		}
		return s
	}
	for _, a := range all {
		for _, b := range all {
			sa, sb := set(a), set(b)
			both := 0
			for k := range sa {
				if sb[k] {
					both++
				}
			}
			// The start of every range is among the keys, so that no set is empty and the comparison is exact.
			if got := a.Overlaps(b); got != (both > 0) {
				t.Errorf("%v overlaps %v = %v", a, b, got)
			}
			i, ok := a.Intersect(b)
			if ok != (both > 0) || (ok && len(set(i)) != both) {
				t.Errorf("%v ∩ %v = %v %v, want %d keys", a, b, i, ok, both)
			}
			if a.Covers(b) && both != len(sb) {
				t.Errorf("Covers is wrong for %v and %v", a, b)
			}
		}
	}
}

// A range made from two strings shares their bytes, because a client's keys may have megabytes.
func TestRangeFromStringsCopiesNothing(t *testing.T) {
	key, end := strings.Repeat("k", 1000), strings.Repeat("l", 1000)
	if n := testing.AllocsPerRun(100, func() {
		if r, err := kv.RangeFromEtcd(key, end); err != nil || r.Start != key || r.End != end {
			t.Errorf("got %v, %v", r, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
