package past

import (
	"fmt"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

func old(key string, from kv.Revision, value string) *kv.KeyValue {
	return kv.NewKeyValue(kv.Fields{Key: []byte(key), Value: []byte(value), ModRevision: from})
}

func TestThePastOfAnObject(t *testing.T) {
	p := New(1 << 20)
	p.Gap(10, 20, []*kv.KeyValue{old("a", 4, "a4"), old("b", 9, "b9")})
	p.Applied(&kv.Batch{Revision: 30, Events: []kv.Event{
		{Type: kv.Delete, KV: old("a", 30, "a30"), Prev: old("a", 25, "a25")}, {Type: kv.Put, KV: old("c", 30, "c30")},
	}})
	for _, c := range []struct {
		key   string
		at    kv.Revision
		want  string
		known bool
	}{
		{"a", 4, "a4", true},
		{"a", 19, "a4", true},
		{"a", 3, "", false},  // older than the held version
		{"a", 20, "", false}, // created again meanwhile
		{"a", 25, "a30", true},
		{"a", 30, "", false},
		{"b", 9, "b9", true},
		{"c", 10, "", true}, // all objects that existed at the gap are known
		{"c", 11, "", false},
	} {
		if got, known := p.At(c.key, c.at); string(got) != c.want || known != c.known {
			t.Errorf("%s at %d: %q, %v; want %q, %v", c.key, c.at, got, known, c.want, c.known)
		}
	}
	if got := p.Last("a"); string(got) != "a30" {
		t.Errorf("the last version of a is %q, want a30", got)
	}
	if got := p.Last("c"); got != nil {
		t.Errorf("c was not deleted, but has the last version %q", got)
	}
}

// A watch from the beginning of a gap gets the later changes of objects that the gap did not touch. It must learn
// that an object no longer matches its selector, or is gone.
func TestThePastOfAnObjectThatChangesAfterAGap(t *testing.T) {
	p := New(1 << 20)
	p.Gap(10, 20, nil)
	put := func(at kv.Revision, key string, prev *kv.KeyValue) {
		p.Applied(&kv.Batch{Revision: at, Events: []kv.Event{{Type: kv.Put, KV: old(key, at, "new"), Prev: prev}}})
	}
	put(30, "a", old("a", 10, "a10"))
	put(40, "a", old("a", 30, "a30"))
	p.Applied(&kv.Batch{Revision: 50, Events: []kv.Event{{Type: kv.Delete, KV: old("a", 50, "a40"), Prev: old("a", 40, "a40")}}})
	put(60, "b", nil)
	put(70, "b", old("b", 60, "b60"))
	if got, known := p.At("a", 10); string(got) != "a10" || !known {
		t.Errorf("a at 10: %q, %v; want a10, known", got, known)
	}
	if got, known := p.At("b", 10); got != nil || !known {
		t.Errorf("b at 10: %q, %v; want none, known", got, known)
	}
	if len(p.order) != 2 { // the first version of a and the last
		t.Errorf("%d versions are kept: %v", len(p.order), p.order)
	}
}

func TestThePastHasABound(t *testing.T) {
	p := New(2000)
	p.Gap(1, 2, []*kv.KeyValue{old("a", 1, "a1")})
	if _, known := p.At("x", 1); !known {
		t.Error("the state of x in the gap is not known")
	}
	for at := kv.Revision(3); at < 100; at++ {
		p.Applied(&kv.Batch{Revision: at, Events: []kv.Event{{Type: kv.Delete, KV: old(fmt.Sprint("k", at%30), at, "value"), Prev: old("", at-1, "")}}})
	}
	if p.bytes > p.maxBytes || p.bytes <= 0 || len(p.order) == 0 || len(p.byKey) > len(p.order) {
		t.Errorf("bound of bytes exceeded, or content inconsistent: %d bytes in %d versions of %d keys", p.bytes, len(p.order), len(p.byKey))
	}
	if got := p.Last("k9"); string(got) != "value" {
		t.Errorf("the newest version is %q, want value", got)
	}
	if _, known := p.At("a", 1); known {
		t.Error("a version is known, though its entry was dropped")
	}
	for gap := range kv.Revision(3 * maxGaps) {
		p.Gap(200+gap, 201+gap, nil)
	}
	if len(p.gaps) > maxGaps {
		t.Errorf("%d gaps are kept, more than the bound", len(p.gaps))
	}
}
