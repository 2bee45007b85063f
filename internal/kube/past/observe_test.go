package past

import (
	"context"
	"iter"
	"testing"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// state is a source that has a state, and no changes.
type state []*kv.KeyValue

func (s state) Follow(ctx context.Context, _ kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		for _, u := range []kv.Update{{Kind: kv.UpdateBegin, Revision: 10, Floor: 11}, {Kind: kv.UpdateState, KVs: s}, {Kind: kv.UpdateReady}} {
			if !yield(u, nil) {
				return
			}
		}
		<-ctx.Done()
	}
}

func of(key, value string, version kv.Revision) *kv.KeyValue { return old(key, version, value) }

// A node that gets a window or a difference from another node keeps the former versions of the objects. Without
// them, a watch below its window would have to list.
func TestFormerVersionsOfObjectsFromAnotherNodeAreKept(t *testing.T) {
	cfg := cache.Defaults()
	cfg.Source = state{of("a", "a-5", 5), of("b", "b-6", 6), of("c", "c-7", 7)}
	p, c := New(1<<20), cache.New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	<-c.Ready()
	see := p.Observe(c, kv.FollowRequest{From: 11})
	gone := kv.Event{Type: kv.Delete, KV: of("d", "d-9", 9), Prev: of("d", "d-4", 4)}
	for _, u := range []kv.Update{
		{Kind: kv.UpdateBegin, Revision: 10, Floor: 11},
		{Kind: kv.UpdateHistory, Batch: kv.Batch{Revision: 9, Events: []kv.Event{gone}}},
		{Kind: kv.UpdateReady},
	} {
		see(&u)
	}
	if object, known := p.At("d", 8); !known || string(object) != "d-9" {
		t.Errorf("the version before a delete in the window: %q, known: %v", object, known)
	}
	if object, known := p.At("a", 10); known {
		t.Errorf("the version before the beginning of a stream without a gap is known: %q", object)
	}
	held := func(yield func(*kv.KeyValue) bool) {
		for _, item := range cfg.Source.(state) {
			if !yield(item) {
				return
			}
		}
	}
	for _, test := range []struct {
		name  string
		req   kv.FollowRequest
		state []kv.Update
	}{
		{"a difference", kv.FollowRequest{From: 11}, []kv.Update{
			{Kind: kv.UpdateBegin, Revision: 20, Leap: true},
			{Kind: kv.UpdateState, KVs: []*kv.KeyValue{of("a", "a-19", 19), of("c", "c-7", 7)}, Gone: []string{"b", "x"}},
			{Kind: kv.UpdateReady},
		}},
		{"a whole state", kv.FollowRequest{Held: held, HeldAt: 10}, []kv.Update{
			{Kind: kv.UpdateBegin, Revision: 20, Floor: 21},
			{Kind: kv.UpdateState, KVs: []*kv.KeyValue{of("a", "a-19", 19)}},
			{Kind: kv.UpdateState, KVs: []*kv.KeyValue{of("c", "c-7", 7)}},
			{Kind: kv.UpdateReady},
		}},
	} {
		p = New(1 << 20)
		see := p.Observe(c, test.req)
		for _, u := range test.state {
			see(&u)
		}
		for key, want := range map[string]string{"a": "a-5", "b": "b-6"} {
			if object, known := p.At(key, 10); !known || string(object) != want {
				t.Errorf("%s: the version of %s before the gap is %q, known: %v; want %q", test.name, key, object, known, want)
			}
		}
		if object, known := p.At("x", 10); !known || object != nil {
			t.Errorf("%s: an object that did not exist before the gap has the version %q, known: %v", test.name, object, known)
		}
		if p.Last("c") != nil {
			t.Errorf("%s: an unchanged object has a former version", test.name)
		}
	}
	p = New(1 << 20)
	see = p.Observe(c, kv.FollowRequest{})
	for _, u := range []kv.Update{{Kind: kv.UpdateBegin, Revision: 20, Floor: 21}, {Kind: kv.UpdateState, KVs: []*kv.KeyValue{of("a", "a-19", 19)}}, {Kind: kv.UpdateReady}} {
		see(&u)
	}
	if _, known := p.At("x", c.Progress()); known {
		t.Error("the first state counts as a gap")
	}
}
