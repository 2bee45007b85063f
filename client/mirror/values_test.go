package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/tree"
)

// Changes reports all changes that a mirror has applied, and then its end.
func TestTheLastChangeComesBeforeTheEnd(t *testing.T) {
	for range 50 { // both are ready: select takes either
		m := &Mirror{done: make(chan struct{}), ready: make(chan struct{}), changed: make(chan struct{})}
		kvs := func(revision int64, keys ...string) View {
			u := client.Update{Kind: client.KindResync, Revision: revision}
			for _, k := range keys {
				u.KVs = append(u.KVs, client.KeyValue{Key: []byte(k), ModRevision: revision})
			}
			return apply(m.hash, View{}, &u)
		}
		m.hash = tree.NewHasher()
		m.set(kvs(2, "a"))
		var told []int
		var last error
		for ch, err := range m.Changes(context.Background()) {
			if last = err; err != nil {
				break
			}
			if told = append(told, len(ch.Events)); len(told) == 1 {
				m.set(kvs(3, "b", "c"))
				m.end(outcome.ErrEnded)
			}
		}
		if !slices.Equal(told, []int{1, 3}) || !errors.Is(last, outcome.ErrEnded) {
			t.Fatalf("got changes of %v events, then %v", told, last)
		}
	}
}

// A typed mirror does not show the value of a deleted key although the key was created again, with an invalid
// value, before the mirror saw the delete.
func TestTypedMirrorDropsTheValueOfAKeyThatWasCreatedAgain(t *testing.T) {
	var calls []string
	m := &Typed[int]{
		cfg: Config[int]{
			Decode: JSON[int],
			OnChange: func(key string, before, after *int) {
				calls = append(calls, fmt.Sprint(key, " changed: ", before != nil, after != nil))
			},
			OnInvalid: func(kv client.KeyValue, _ error) { calls = append(calls, fmt.Sprintf("%s invalid", kv.Key)) },
		},
		ready: make(chan struct{}), values: map[string]*int{}, changed: make(chan struct{}),
	}
	h := tree.NewHasher()
	var v View
	step := func(what string, revision, created int64, value string, shown bool, want ...string) {
		t.Helper()
		last := v
		v = apply(h, v, &client.Update{Kind: client.KindConflated, Revision: revision, KVs: []client.KeyValue{
			{Key: []byte("k"), CreateRevision: created, ModRevision: revision, Value: []byte(value)},
		}})
		calls = nil
		m.step(last, v)
		if _, ok := m.Get("k"); ok != shown || !slices.Equal(calls, want) {
			t.Errorf("%s: shown %v, calls %q; want %v, %q", what, ok, calls, shown, want)
		}
	}
	step("created", 2, 2, "1", true, "k changed: false true")
	step("invalid", 3, 2, "{", true, "k invalid")
	step("created again, invalid", 6, 5, "{", false, "k invalid", "k changed: true false")
	step("created again, invalid, without a value", 8, 7, "{", false, "k invalid")
	step("valid", 9, 7, "2", true, "k changed: false true")
	step("created again, valid", 11, 10, "3", true, "k changed: true true")
}

// For all kinds of updates, a view equals a map to which the same updates were applied,
// older views do not change, and the changes between views add up to the view.
func TestChangesAddUpToTheView(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := tree.NewHasher()
	content := func(v View) map[string]int64 {
		keys := map[string]int64{}
		for kv := range v.All() {
			keys[string(kv.Key)] = kv.ModRevision
		}
		return keys
	}
	var v View
	want, told, kinds := map[string]int64{}, map[string]int64{}, map[client.UpdateKind]int{}
	for revision := int64(1); revision <= 2000; revision++ {
		u := someUpdate(rng, revision, want)
		kinds[u.Kind]++
		old, oldKeys := v, content(v)
		put := func(kv client.KeyValue) error { want[string(kv.Key)] = kv.ModRevision; return nil }
		remove := func(key []byte) error { delete(want, string(key)); return nil }
		if err := u.Apply(put, remove, func() error { clear(want); return nil }); err != nil {
			t.Fatal(err)
		}
		v = apply(h, v, &u)
		for _, e := range changeBetween(old, v).Events {
			if before, had := told[string(e.KV.Key)]; had != (e.Prev != nil) || had && e.Prev.ModRevision != before {
				t.Fatalf("revision %d: %q had %d, the change has %+v", revision, e.KV.Key, before, e.Prev)
			}
			if told[string(e.KV.Key)] = e.KV.ModRevision; e.Type == client.EventDelete {
				delete(told, string(e.KV.Key))
			}
		}
		if got := content(v); !maps.Equal(got, want) || !maps.Equal(told, want) || v.Revision() != revision {
			t.Fatalf("after %v at %d: view %v, changes %v, want %v", u.Kind, revision, got, told, want)
		}
		if !maps.Equal(content(old), oldKeys) {
			t.Fatalf("%v at %d changed an older view", u.Kind, revision)
		}
	}
	if len(kinds) != 5 {
		t.Errorf("kinds of updates: %v", kinds)
	}
}

// someUpdate returns an update at a revision of a range that currently has these keys.
func someUpdate(rng *rand.Rand, revision int64, held map[string]int64) client.Update {
	u := client.Update{Kind: client.KindResync, Revision: revision, Lineage: 1, Cluster: "c"}
	if revision == 1 {
		u.Kind = client.KindState
	} else if rng.IntN(20) > 0 {
		u.Kind = []client.UpdateKind{client.KindBatch, client.KindDelta, client.KindConflated}[rng.IntN(3)]
	}
	for i := range 10 {
		kv := client.KeyValue{Key: fmt.Appendf(nil, "/k%d", i), ModRevision: revision}
		mod, has := held[string(kv.Key)]
		switch n := rng.IntN(6); {
		case u.Kind == client.KindBatch && n == 0:
			u.Events = append(u.Events, client.Event{KV: kv})
		case u.Kind == client.KindBatch && n == 1 && has:
			u.Events = append(u.Events, client.Event{Type: client.EventDelete, KV: kv})
		case u.Kind == client.KindBatch:
		case n == 0:
			u.KVs = append(u.KVs, kv)
		case n == 1 && (u.Kind == client.KindDelta || u.Kind == client.KindConflated):
			u.Deleted = append(u.Deleted, kv.Key) // may be a missing key
		case n > 2 && has && u.Kind == client.KindResync:
			kv.ModRevision = mod
			u.KVs = append(u.KVs, kv)
		}
	}
	return u
}
