package api

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// TestAnExpiredListContinuesAtTheNewestVersion has a list in chunks whose version has left the window. The
// failure has a token, as an apiserver's: with it the list continues at the same key.
func TestAnExpiredListContinuesAtTheNewestVersion(t *testing.T) {
	x := newFanned(t, func(cfg *cache.Config) { cfg.RootsBytes = 1 })
	for i := range 4 {
		x.change(t, &pod{namespace: "n0", name: fmt.Sprintf("p%d", i), version: 0}, false)
	}
	token := continueAt(x.cache.Progress(), []byte(x.r.Key("n0", "p2")))
	next := func(token string) *answer {
		q, ok := parse(get("/api/v1/pods?limit=2&continue="+token, ""))
		if !ok {
			t.Fatalf("the token %q is for an apiserver", token)
		}
		return &answer{f: x.feed, q: q}
	}
	if state, err := next(token).state(t.Context()); err != nil || state.Revision != x.cache.Progress() {
		t.Fatalf("the version of the first chunk: %v", err)
	}
	x.change(t, &pod{namespace: "n0", name: "p0", version: 0}, true)
	x.change(t, &pod{namespace: "n0", name: "p1", version: 0}, true)
	_, err := next(token).state(t.Context())
	status, ok := errors.AsType[*object.Status](err)
	if !ok || status.Code != http.StatusGone || status.Continue == "" {
		t.Fatalf("a version that has left the window: %v", err)
	}
	if q := next(status.Continue).q; !q.unset || q.chunked || q.exact || q.next != x.r.Key("n0", "p2") || q.version != 0 {
		t.Errorf("the rest of the list is asked for with %+v", q)
	}
	for _, version := range []kv.Revision{0, -2} {
		if q, ok := parse(get("/api/v1/pods?continue="+continueAt(version, nil), "")); ok {
			t.Errorf("version %d: %+v", version, q)
		}
	}
}
