package cache

import (
	"errors"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

func TestHistoryAgreesWithAState(t *testing.T) {
	put := func(key string, r kv.Revision, value string) kv.Event {
		return kv.Event{Type: kv.Put, KV: kv.NewKeyValue(kv.Fields{Key: []byte(key), Value: []byte(value), CreateRevision: r, ModRevision: r, Version: 1})}
	}
	del := func(key string, r kv.Revision) kv.Event {
		return kv.Event{Type: kv.Delete, KV: kv.NewKeyValue(kv.Fields{Key: []byte(key), ModRevision: r})}
	}
	// Everything from 10 up to 20: a was put, b put and deleted, c put twice.
	h := &History{Progress: 20, Floor: 10}
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
		"of a node that is behind": {15, []kv.Event{put("a", 11, "1"), put("c", 13, "1")}, false},
		"older than the history":   {9, []kv.Event{put("old", 9, "")}, false},
		"another content":          {20, []kv.Event{put("a", 11, "2"), put("c", 18, "2")}, true},
		"a change is missing":      {30, []kv.Event{put("c", 13, "1")}, true},
		"a change too many":        {30, []kv.Event{put("a", 15, "1")}, true},
		"what was deleted":         {30, []kv.Event{put("b", 12, "1")}, true},
		"what was never put":       {30, []kv.Event{put("d", 10, "1")}, true},
		"a key is missing":         {20, []kv.Event{put("a", 11, "1")}, true},
		"missing in the middle":    {15, []kv.Event{put("a", 11, "1")}, true},
	} {
		state := newTree()
		for _, e := range x.state {
			state.Set(e.KV)
		}
		if err := h.agree(state, x.revision); errors.Is(err, kv.ErrOtherHistory) != x.other {
			t.Errorf("%s: %v", name, err)
		}
	}
}
