package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/selector"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// pieces is a viewer that records the size of the largest write.
type pieces struct {
	*viewer
	largest int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.largest = max(p.largest, len(b))
	return p.viewer.Write(b)
}

// below creates, changes and deletes pods until a version in the middle is below the window, and returns a watch
// from that version. before lists the names of the pods at that version.
func below(t *testing.T) (x *fanned, p *pieces, since kv.Revision, before []string) {
	t.Helper()
	x = newFanned(t, func(cfg *cache.Config) { cfg.WindowBytes, cfg.RootsBytes = 1, 1 })
	large := strings.Repeat("h", 10_000)
	for i := range 80 {
		x.change(t, &pod{"n0", fmt.Sprintf("p%d", i), "a1", large, 0}, false)
	}
	since = x.cache.Progress()
	for _, held := range x.there {
		before = append(before, held.name)
	}
	p = &pieces{viewer: x.view(t, "", "", "", len(x.events), nil)}
	p.w, p.s.cfg.Budget, p.client = p, budget.New(1<<20), budget.Client{Name: "a", Max: budget.HalfOfTotal}
	p.s.cfg.Logger = slog.New(slog.DiscardHandler)
	p.close()
	for i := range 60 {
		x.change(t, &pod{"n0", fmt.Sprintf("p%d", i), "a2", large, 0}, false)
	}
	for i := range 10 {
		x.change(t, &pod{"n0", fmt.Sprintf("p%d", i), "a2", large, 0}, true)
	}
	x.change(t, &pod{"n0", "new", "a2", large, 0}, false)
	var compacted *kv.CompactedError
	if _, err := x.cache.Watch(pods().InNamespace(""), since+1, p.wake); !errors.As(err, &compacted) {
		t.Fatalf("version %d is still in the window: %v", since, err)
	}
	return x, p, since, before
}

// A client that applies the difference to its state gets the current state. Deletes come first, with the version
// of the client, then changed objects in the order of their versions, then a bookmark. The node never holds the
// whole difference in encoded form.
func TestAWatchBelowTheWindowGetsTheDifference(t *testing.T) {
	x, p, since, has := below(t)
	if err := p.catchUp(t.Context(), since); err != nil {
		t.Fatal(err)
	}
	if held := p.s.cfg.Budget.Held(budget.CatchUps); held != 61*changeBytes || len(p.out) > 0 {
		t.Errorf("before the client reads, the node holds %d bytes of the budget, and %d encoded bytes", held, len(p.out))
	}
	p.step(t)
	if p.largest > ownBytes+20_000 {
		t.Errorf("%d bytes were encoded at once", p.largest)
	}
	if held := p.s.cfg.Budget.Held(budget.CatchUps); held != 0 {
		t.Errorf("%d bytes of the budget are held after the last event", held)
	}
	at, ended := since, false
	for frames := object.NewFrames(object.JSON, &p.body, 1<<20); ; {
		e, err := frames.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || ended {
			t.Fatalf("got %s after the bookmark, or an error: %v", e.Type, err)
		}
		o, err := object.Parse(object.JSON, e.Object)
		if err != nil {
			t.Fatal(err)
		}
		version, _ := strconv.ParseInt(string(o.ResourceVersion), 10, 64)
		name := string(o.Name)
		switch e.Type {
		case object.Deleted:
			if kv.Revision(version) != since || at != since || !slices.Contains(has, name) {
				t.Errorf("unexpected delete of %s at version %d, after version %d", name, version, at)
			}
			has = slices.DeleteFunc(has, func(held string) bool { return held == name })
			continue
		case object.Bookmark:
			ended = true
		case object.Modified:
			if !slices.Contains(has, name) {
				has = append(has, name)
			}
		}
		if kv.Revision(version) < at || e.Type != object.Bookmark && kv.Revision(version) == at {
			t.Errorf("out of order: %s %s at version %d follows version %d", e.Type, name, version, at)
		}
		at = kv.Revision(version)
	}
	if !ended || at != x.cache.Progress() {
		t.Errorf("the difference ends at version %d, want a bookmark at version %d", at, x.cache.Progress())
	}
	var want []string
	for _, held := range x.there {
		want = append(want, held.name)
	}
	slices.Sort(has)
	slices.Sort(want)
	if !slices.Equal(has, want) {
		t.Errorf("the client has the pods %q, want %q", has, want)
	}
	// The watch continues after the difference.
	x.change(t, &pod{"n0", "p70", "a3", "h", 0}, false)
	x.fan.progress()
	p.step(t)
	p.progress()
	p.flush()
	if got := p.body.String(); strings.Count(got, "\n") != 2 || !strings.HasPrefix(got, `{"type":"MODIFIED"`) {
		t.Errorf("frames after the difference: %.300q", got)
	}
	p.close()
}

// Differences take memory from the budget of their client: one client exceeds it, another disconnects before it
// has received all events.
func TestADifferenceTakesMemoryOfItsClient(t *testing.T) {
	_, p, since, _ := below(t)
	if err := p.catchUp(t.Context(), since); err != nil {
		t.Fatal(err)
	}
	p.close()
	if held := p.s.cfg.Budget.Held(budget.CatchUps); held != 0 {
		t.Errorf("%d bytes of the budget are held for a client that has disconnected", held)
	}
	p.s.cfg.Budget = budget.New(100)
	if err := p.s.cfg.Budget.Take(p.client, budget.CatchUps, 1, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var limit *kv.LimitError
	if err := p.catchUp(ctx, since); !errors.As(err, &limit) {
		t.Errorf("a difference above the budget of its client: %v, want LimitError", err)
	}
}

// On a node that sends no differences, watches that begin below the window, or fall behind it, get 410. It does
// not matter whether the difference is known. A watch in the window continues.
func TestWithoutDifferencesAWatchBelowTheWindowGets410(t *testing.T) {
	x, p, since, _ := below(t)
	p.s.cfg.NoDelta = true
	for _, labels := range []string{"", "app=a2"} {
		p.q.selector, _ = selector.Parse(labels, "")
		p.q.version = since
		err := p.fromVersion(t.Context())
		if status, ok := errors.AsType[*object.Status](err); !ok || status.Code != http.StatusGone || status.Reason != "Expired" || status.RetryAfter != 0 {
			t.Errorf("with labels %q: got %+v", labels, err)
		}
		if p.alone(since) || p.watcher != nil || p.behind != nil {
			t.Errorf("with labels %q: a watch that has fallen behind continues", labels)
		}
	}
	if p.s.counts.undifferable.Load() != 0 {
		t.Error("watches are counted as forwarded")
	}
	p.q.version = x.cache.Progress()
	if err := p.fromVersion(t.Context()); err != nil {
		t.Errorf("a watch in the window: %v", err)
	}
	p.close()
}

// A watch with a selector is forwarded if the difference is unknown: only for objects that were replaced in a gap
// is it known whether they matched before.
func TestAnUnknownDifferenceIsForAnApiserver(t *testing.T) {
	x, p, since, _ := below(t)
	for _, labels := range []string{"app=a2", "app=a1"} { // some changed objects match now, or none
		p.q.selector, _ = selector.Parse(labels, "")
		if err := p.catchUp(t.Context(), since); !errors.Is(err, errUpstream) {
			t.Errorf("with labels %s: got %v, want errUpstream", labels, err)
		}
		if held := p.s.cfg.Budget.Held(budget.CatchUps); held != 0 || p.watcher != nil || p.behind != nil {
			t.Errorf("with labels %s: %d bytes of the budget are held, watcher %v", labels, held, p.watcher)
		}
	}
	var was []*kv.KeyValue
	for _, e := range x.events[:80] {
		was = append(was, e.now.item())
	}
	x.past.Gap(since, since+1_000, was)
	if err := p.catchUp(t.Context(), since); err != nil {
		t.Fatal(err)
	}
	p.step(t)
	p.close()
	if got := strings.Count(p.body.String(), `{"type":"DELETED"`); got != 60 || strings.Count(p.body.String(), "\n") != 61 {
		t.Errorf("got %d deletes of objects that no longer match, want 60 and a bookmark", got)
	}
}

// Watches end at an object that cannot be parsed, and send no bookmark at or after its version.
func TestNoBookmarkPassesAnEventThatWasNotSent(t *testing.T) {
	x := newFanned(t)
	joined, alone := x.view(t, "", "", "", 0, nil), x.view(t, "n0", "", "", 0, nil)
	joined.step(t)
	malformed := item(pods().Key("n0", "p0"), "{", 11)
	x.source <- kv.Batch{Revision: 11, Events: []kv.Event{{Type: kv.Put, KV: malformed}}}
	x.events = append(x.events, changed{})
	x.change(t, &pod{"n0", "p1", "a1", "h1", 0}, false)
	x.fan.progress()
	for _, v := range []*viewer{joined, alone} {
		for range 2 { // a watch that cannot continue sends its last bookmark
			if v.pending() {
				t.Error("the watch continues after an event that it could not send")
			}
			v.progress()
		}
		v.flush()
		if got := v.body.String(); got != "" {
			t.Errorf("the client gets %s, want nothing", got)
		}
	}
	if len(x.fan.all) > 0 || x.fan.watcher != nil {
		t.Errorf("%d groups of the fan remain", len(x.fan.all))
	}
}

// A large event takes memory from the budget before it is encoded, and releases it when the client has taken it.
func TestALargeEventTakesMemoryFromTheBudget(t *testing.T) {
	_, p, _, _ := below(t)
	p.ctx, p.s.cfg.Patience = t.Context(), time.Millisecond
	lists := func(want int64) {
		t.Helper()
		if held := p.s.cfg.Budget.Held(budget.Lists); held != want {
			t.Errorf("%d bytes of the share of lists are held, want %d", held, want)
		}
	}
	if !p.makeRoom(ownBytes) {
		t.Error("a small event got no memory")
	}
	lists(0)
	for range 2 { // the second event comes after the first one is written
		if !p.makeRoom(40_000) {
			t.Fatal("a large event got no memory")
		}
		p.out = append(p.out, make([]byte, 40_000)...)
		lists(80_000)
	}
	q := &stream{answer: p.answer, ctx: t.Context()}
	if q.makeRoom(40_000) {
		t.Error("one client got more than half of the share of lists")
	}
	if !p.flush() {
		t.Error("the event was not written")
	}
	lists(0)
	if !q.makeRoom(40_000) {
		t.Error("a large event got no memory after the other event was written")
	}
	q.releaseLarge() // as at the end of a watch
	lists(0)
}
