package api

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// A list in chunks fails when its version has left the window. The failure has a token, like an apiserver's, with
// which the list continues at the same key in the newest version.
func TestAnExpiredListContinuesAtTheNewestVersion(t *testing.T) {
	x := newFanned(t, func(cfg *cache.Config) { cfg.RootsBytes = 1 })
	for i := range 4 {
		x.change(t, &pod{namespace: "n0", name: fmt.Sprintf("p%d", i), version: 0}, false)
	}
	token := continueAt(x.cache.Progress(), []byte(x.r.Key("n0", "p2")))
	next := func(token string) *answer {
		q, ok := parse(get("/api/v1/pods?limit=2&continue="+token, ""))
		if !ok {
			t.Fatalf("a request with the token %q is forwarded, want it served here", token)
		}
		return &answer{f: x.feed, q: q}
	}
	if state, err := next(token).state(t.Context()); err != nil || state.Revision != x.cache.Progress() {
		t.Fatalf("the version of the first chunk cannot be read: %v", err)
	}
	x.change(t, &pod{namespace: "n0", name: "p0", version: 0}, true)
	x.change(t, &pod{namespace: "n0", name: "p1", version: 0}, true)
	_, err := next(token).state(t.Context())
	status, ok := errors.AsType[*object.Status](err)
	if !ok || status.Code != http.StatusGone || status.Continue == "" {
		t.Fatalf("a version that has left the window: %v, want 410 with a token", err)
	}
	if q := next(status.Continue).q; !q.unset || q.chunked || q.exact || q.next != x.r.Key("n0", "p2") || q.version != 0 {
		t.Errorf("the token for the rest of the list yields the query %+v", q)
	}
	for _, version := range []kv.Revision{0, -2} {
		if q, ok := parse(get("/api/v1/pods?continue="+continueAt(version, nil), "")); ok {
			t.Errorf("a token with version %d is accepted: %+v", version, q)
		}
	}
}

// A client may read the second chunk of a busy resource's list some minutes after the first, as at an apiserver,
// or as long as the window reaches back.
func TestAListInChunksHasMinutes(t *testing.T) {
	for _, c := range []struct{ window, known, gone time.Duration }{
		{10 * time.Minute, 4*time.Minute + 50*time.Second, 5*time.Minute + 10*time.Second},
		{time.Minute, 50 * time.Second, 70 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			x := newFanned(t, func(cfg *cache.Config) {
				own := Defaults()
				own.SetWindow(1<<20, c.window)
				own.Cache.Range, own.Cache.Source, own.Cache.Applied = cfg.Range, cfg.Source, cfg.Applied
				*cfg = own.Cache
			})
			defer x.stop()
			x.change(t, &pod{namespace: "n0", name: "p0"}, false)
			began, version := time.Now(), x.cache.Progress()
			next := func() error {
				q, ok := parse(get("/api/v1/pods?limit=2&continue="+continueAt(version, []byte(x.r.Key("n0", "p0"))), ""))
				if !ok {
					t.Fatal("a request with the token is forwarded, want it served here")
				}
				_, err := (&answer{f: x.feed, q: q}).state(t.Context())
				return err
			}
			until := func(after time.Duration) {
				for time.Since(began) < after {
					x.change(t, &pod{namespace: "n0", name: "p0"}, false)
					time.Sleep(time.Second)
				}
			}
			until(c.known)
			if err := next(); err != nil {
				t.Errorf("window of %v: the second chunk after %v fails: %v", c.window, c.known, err)
			}
			until(c.gone)
			if status, ok := errors.AsType[*object.Status](next()); !ok || status.Code != http.StatusGone {
				t.Errorf("window of %v: the second chunk after %v: %v, want 410", c.window, c.gone, status)
			}
		})
	}
}

// The states of older versions take a bounded part of the window's bytes.
func TestOlderStatesHaveABound(t *testing.T) {
	for window, want := range map[int64]int64{1 << 20: 32 << 20, 256 << 20: 64 << 20, 4 << 30: 1 << 30} {
		var cfg Config
		if cfg.SetWindow(window, time.Minute); cfg.Cache.RootsBytes != want {
			t.Errorf("window of %d bytes: the bound of older states is %d, want %d", window, cfg.Cache.RootsBytes, want)
		}
	}
}
