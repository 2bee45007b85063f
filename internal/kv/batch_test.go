package kv_test

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// etcd omits previous values that it has compacted. Clients do not get the history of a revision that lacks one.
func TestPreviousValueThatEtcdLeavesOut(t *testing.T) {
	item := func(version int64) *kv.KeyValue {
		return kv.NewKeyValue(kv.Fields{Key: []byte("/a"), Version: version})
	}
	put := func(version int64) kv.Event { return kv.Event{Type: kv.Put, KV: item(version)} }
	remove := kv.Event{Type: kv.Delete, KV: item(0)}
	with := func(e kv.Event) kv.Event { e.Prev = item(1); return e }
	for name, x := range map[string]struct {
		events []kv.Event
		lacks  bool
	}{
		"a key is created":                    {[]kv.Event{put(1)}, false},
		"a key is changed":                    {[]kv.Event{with(put(2))}, false},
		"a key is changed, without":           {[]kv.Event{put(2)}, true},
		"a key is deleted":                    {[]kv.Event{with(remove)}, false},
		"a key is deleted, without":           {[]kv.Event{remove}, true},
		"created and deleted in one revision": {[]kv.Event{put(1), remove}, false},
		"the last one lacks it":               {[]kv.Event{put(1), with(put(2)), put(3)}, true},
	} {
		if got := (&kv.Batch{Events: x.events}).LacksPrevious(); got != x.lacks {
			t.Errorf("%s: lacks a previous value: %v, want %v", name, got, x.lacks)
		}
	}
}
