package cachetest_test

import (
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// Batches may begin above the newest revision. It returns none then, and the history stays usable.
func TestBatchesAboveTheNewestRevision(t *testing.T) {
	h := cachetest.New()
	if got := h.Batches(kv.Range{}, cachetest.Start+1, cachetest.Start); len(got) != 0 {
		t.Errorf("an empty history has %d batches", len(got))
	}
	newest := h.Commit(cachetest.Put("a", "1"))
	for _, after := range []kv.Revision{newest, newest + 1, newest + 1000} {
		if got := h.Batches(kv.Range{}, after, after+1); len(got) != 0 {
			t.Errorf("%d batches after revision %d, with %d as the newest", len(got), after, newest)
		}
	}
	if got := h.Batches(kv.Range{}, 0, newest+5); len(got) != 1 || got[0].Revision != newest {
		t.Errorf("all batches: %v, want one of revision %d", got, newest)
	}
}
