package cache

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

func TestHistoryAgreesWithAState(t *testing.T) {
	put := func(key string, r kv.Revision, value string) kv.Event {
		return kv.Event{Type: kv.Put, KV: kv.NewKeyValue(kv.Fields{Key: []byte(key), Value: []byte(value), CreateRevision: r, ModRevision: r, Version: 1})}
	}
	del := func(key string, r kv.Revision) kv.Event {
		return kv.Event{Type: kv.Delete, KV: kv.NewKeyValue(kv.Fields{Key: []byte(key), ModRevision: r})}
	}
	// Complete from 10 to 20: a was put, b put and deleted, c put twice.
	h := &Past{Progress: 20, Floor: 10}
	for _, e := range []kv.Event{put("a", 11, "1"), put("b", 12, "1"), put("c", 13, "1"), del("b", 14), put("c", 18, "2")} {
		h.Batches = append(h.Batches, &kv.Batch{Revision: e.KV.ModRevision(), Events: []kv.Event{e}})
	}
	for name, x := range map[string]struct {
		revision kv.Revision
		state    []kv.Event
		other    bool
	}{
		"of its end":               {20, []kv.Event{put("a", 11, "1"), put("c", 18, "2"), put("old", 9, "")}, false},
		"later":                    {30, []kv.Event{put("a", 25, "3"), put("b", 26, "2"), put("new", 21, "")}, false},
		"later, much is deleted":   {30, nil, false},
		"of a node that lags":      {15, []kv.Event{put("a", 11, "1"), put("c", 13, "1")}, false},
		"older than the history":   {9, []kv.Event{put("old", 9, "")}, false},
		"another content":          {20, []kv.Event{put("a", 11, "2"), put("c", 18, "2")}, true},
		"a change is missing":      {30, []kv.Event{put("c", 13, "1")}, true},
		"a change too many":        {30, []kv.Event{put("a", 15, "1")}, true},
		"a deleted key":            {30, []kv.Event{put("b", 12, "1")}, true},
		"a key that was never put": {30, []kv.Event{put("d", 10, "1")}, true},
		"a key is missing":         {20, []kv.Event{put("a", 11, "1")}, true},
		"missing in the middle":    {15, []kv.Event{put("a", 11, "1")}, true},
	} {
		state := keytree.New()
		for _, e := range x.state {
			state.Set(e.KV)
		}
		if err := h.agree(state, x.revision); errors.Is(err, kv.ErrOtherHistory) != x.other {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A contradiction names every key to compare with etcd, with its cached version: two wrong
// keys indicate a restore of etcd, a single one a flipped byte.
func TestAContradictionNamesTheCachedVersions(t *testing.T) {
	h := &Past{Progress: 20, Floor: 10}
	for _, e := range []kv.Event{put("a", 11), put("b", 12), del("b", 14), put("c", 18), put("e", 20)} {
		b := batch(e.KV.ModRevision(), e)
		h.Batches = append(h.Batches, &b)
	}
	a, c, e := item("a", "v11", 11), item("c", "v18", 18), item("e", "v20", 20)
	other := func(key string, at kv.Revision) *kv.KeyValue { return item(key, "another", at) }
	for name, x := range map[string]struct {
		revision kv.Revision
		state    []*kv.KeyValue
		want     []kv.Claim // by key
	}{
		"nothing":                     {20, []*kv.KeyValue{a, c, e, item("old", "", 9)}, nil},
		"another content":             {20, []*kv.KeyValue{other("a", 11), c, e}, []kv.Claim{{Key: "a", Revision: 20, Held: a}}},
		"of the last revision":        {20, []*kv.KeyValue{a, c, other("e", 20)}, []kv.Claim{{Key: "e", Revision: 20, Held: e}}},
		"after the last revision":     {21, []*kv.KeyValue{a, c, other("e", 21)}, nil},
		"another revision":            {20, []*kv.KeyValue{item("a", "v11", 13), c, e}, []kv.Claim{{Key: "a", Revision: 20, Held: a}}},
		"not deleted":                 {20, []*kv.KeyValue{a, item("b", "v12", 12), c, e}, []kv.Claim{{Key: "b", Revision: 20}}},
		"there at its delete":         {20, []*kv.KeyValue{a, item("b", "v14", 14), c, e}, []kv.Claim{{Key: "b", Revision: 20}}},
		"at the floor, unknown":       {20, []*kv.KeyValue{a, c, e, item("x", "", 10)}, []kv.Claim{{Key: "x", Revision: 20, Below: 10}}},
		"missing":                     {20, []*kv.KeyValue{a, e}, []kv.Claim{{Key: "c", Revision: 20, Held: c}}},
		"missing later":               {21, []*kv.KeyValue{a, e}, nil},
		"two keys":                    {20, []*kv.KeyValue{other("a", 11), other("c", 18), e}, []kv.Claim{{Key: "a", Revision: 20, Held: a}, {Key: "c", Revision: 20, Held: c}}},
		"one wrong, one missing":      {20, []*kv.KeyValue{other("a", 11), e}, []kv.Claim{{Key: "a", Revision: 20, Held: a}, {Key: "c", Revision: 20, Held: c}}},
		"two missing":                 {20, []*kv.KeyValue{e}, []kv.Claim{{Key: "a", Revision: 20, Held: a}, {Key: "c", Revision: 20, Held: c}}},
		"of a state that is older":    {18, []*kv.KeyValue{a, other("c", 18)}, []kv.Claim{{Key: "c", Revision: 18, Held: c}}},
		"of one just before a change": {17, []*kv.KeyValue{a}, nil},
	} {
		state := keytree.New()
		for _, i := range x.state {
			state.Set(i)
		}
		var found *kv.ContradictionError
		if err := h.agree(state, x.revision); err != nil && !errors.As(err, &found) {
			t.Fatal(err)
		}
		if found == nil {
			if x.want != nil {
				t.Errorf("%s: agrees", name)
			}
			continue
		}
		slices.SortFunc(found.Claims, func(a, b kv.Claim) int { return strings.Compare(a.Key, b.Key) })
		if !slices.EqualFunc(found.Claims, x.want, sameClaim) || found.Detail == "" {
			t.Errorf("%s: %s: claims %+v, want %+v", name, found.Detail, found.Claims, x.want)
		}
	}
}

func sameClaim(a, b kv.Claim) bool {
	if a.Key != b.Key || a.Revision != b.Revision || a.Below != b.Below || (a.Held == nil) != (b.Held == nil) {
		return false
	}
	return a.Held == nil || bytes.Equal(a.Held.Encoded(), b.Held.Encoded())
}

// A contradiction with very many keys names only some of them.
func TestClaimsAreBounded(t *testing.T) {
	h := &Past{Progress: 100, Floor: 1}
	present, absent := keytree.New(), keytree.New()
	for i := range kv.Revision(40) {
		b := puts(i+1, fmt.Sprintf("k%02d", i))
		h.Batches = append(h.Batches, &b)
		present.Set(item(fmt.Sprintf("k%02d", i), "another", i+1))
	}
	for what, x := range map[string]struct {
		state    *keytree.Tree
		revision kv.Revision
	}{"other contents": {present, 101}, "other contents and no later write": {present, 100}, "missing": {absent, 100}} {
		var found *kv.ContradictionError
		if err := h.agree(x.state, x.revision); !errors.As(err, &found) || len(found.Claims) != maxClaims {
			t.Errorf("%s: %d claims, want %d: %v", what, len(found.Claims), maxClaims, err)
		}
	}
	claims := h.claims()
	if len(claims) != maxClaims || claims[0].Key != "k39" || claims[0].Revision != 40 || claims[0].Held == nil || claims[maxClaims-1].Key != "k24" {
		t.Errorf("of the history: %d, the first is %+v, the last %+v", len(claims), claims[0], claims[len(claims)-1])
	}
	h.Batches = h.Batches[:3]
	gone := batch(50, del("k00", 50))
	h.Batches = append(h.Batches, &gone)
	if claims := h.claims(); len(claims) != 3 || claims[0].Key != "k00" || claims[0].Held != nil || claims[0].Revision != 50 {
		t.Errorf("of a short history: %+v", claims)
	}
}

// A cache claims the versions of the most recently changed keys, deleted keys
// included, as of its last change.
func TestACacheClaimsTheLatestChanges(t *testing.T) {
	if claims := New(small(nil)).Claims(); claims != nil {
		t.Errorf("before it is loaded: %+v", claims)
	}
	stateless := small(nil)
	stateless.Stateless = true
	relay, c := loaded(stateless, 10), loaded(small(nil), 10)
	var b kv.Batch
	for i := range kv.Revision(20) {
		b = puts(11+i, fmt.Sprintf("k%02d", i))
		c.apply(&b)
		relay.apply(&b)
	}
	if claims := relay.Claims(); claims != nil {
		t.Errorf("of a relay: %+v", claims)
	}
	for i := range kv.Revision(12) {
		b := batch(31+i, del(fmt.Sprintf("k%02d", i), 31+i))
		c.apply(&b)
	}
	b = puts(43, "k11")
	c.apply(&b)
	c.advance(60)
	claims := c.Claims()
	var held, gone []string
	for _, x := range claims {
		if x.Revision != 43 {
			t.Errorf("%s as of revision %d, want that of the last change, 43", x.Key, x.Revision)
		}
		if x.Held == nil {
			gone = append(gone, x.Key)
		} else {
			held = append(held, x.Key)
		}
	}
	if want := []string{"k10", "k09", "k08", "k07", "k06", "k05", "k04"}; !slices.Equal(gone, want) {
		t.Errorf("gone: %v, want %v", gone, want)
	}
	if want := []string{"k11", "k19", "k18", "k17", "k16", "k15", "k14", "k13", "k12"}; !slices.Equal(held, want) || len(claims) != maxClaims {
		t.Errorf("held: %v, want %v", held, want)
	}
}
