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

// below creates, changes and deletes pods until a version in the middle is below the window, and
// returns a watch at that version. before are the names of the pods at that version.
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
		t.Fatalf("the window still has version %d: %v", since, err)
	}
	return x, p, since, before
}

// TestAWatchBelowTheWindowGetsTheDifference has a client apply the difference to the state that it
// has: deletes come first, with the version of the client, then changed objects in the order of
// their versions, then a bookmark. The node does not hold all of it in encoded form.
func TestAWatchBelowTheWindowGetsTheDifference(t *testing.T) {
	x, p, since, has := below(t)
	if err := p.catchUp(t.Context(), since); err != nil {
		t.Fatal(err)
	}
	if held := p.s.cfg.Budget.Held(budget.CatchUps); held != 61*changeBytes || len(p.out) > 0 {
		t.Errorf("%d bytes are held, and %d encoded, before the client reads", held, len(p.out))
	}
	p.step(t)
	if p.largest > ownBytes+20_000 {
		t.Errorf("%d bytes were encoded at once", p.largest)
	}
	if held := p.s.cfg.Budget.Held(budget.CatchUps); held != 0 {
		t.Errorf("%d bytes are held when all is sent", held)
	}
	at, ended := since, false
	for frames := object.NewFrames(object.JSON, &p.body, 1<<20); ; {
		e, err := frames.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || ended {
			t.Fatalf("after the bookmark: %s %v", e.Type, err)
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
				t.Errorf("%s is deleted at %d, after %d", name, version, at)
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
			t.Errorf("%s %s at %d comes after %d", e.Type, name, version, at)
		}
		at = kv.Revision(version)
	}
	if !ended || at != x.cache.Progress() {
		t.Errorf("the difference ends at %d, want %d, with a bookmark", at, x.cache.Progress())
	}
	var want []string
	for _, held := range x.there {
		want = append(want, held.name)
	}
	slices.Sort(has)
	slices.Sort(want)
	if !slices.Equal(has, want) {
		t.Errorf("the client has %q, want %q", has, want)
	}
	// The watch continues after the difference.
	x.change(t, &pod{"n0", "p70", "a3", "h", 0}, false)
	x.fan.progress()
	p.step(t)
	p.progress()
	p.flush()
	if got := p.body.String(); strings.Count(got, "\n") != 2 || !strings.HasPrefix(got, `{"type":"MODIFIED"`) {
		t.Errorf("after the difference: %.300q", got)
	}
	p.close()
}

// TestADifferenceTakesMemoryOfItsClient has one client whose difference exceeds its budget, and one
// that disconnects before it has received all of it.
func TestADifferenceTakesMemoryOfItsClient(t *testing.T) {
	_, p, since, _ := below(t)
	if err := p.catchUp(t.Context(), since); err != nil {
		t.Fatal(err)
	}
	p.close()
	if held := p.s.cfg.Budget.Held(budget.CatchUps); held != 0 {
		t.Errorf("a client that has gone makes the node hold %d bytes", held)
	}
	p.s.cfg.Budget = budget.New(100)
	if err := p.s.cfg.Budget.Take(p.client, budget.CatchUps, 1, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var limit *kv.LimitError
	if err := p.catchUp(ctx, since); !errors.As(err, &limit) {
		t.Errorf("a client may make the node hold any difference: %v", err)
	}
}

// TestWithoutDifferencesAWatchBelowTheWindowGets410 has watches begin below the window and get there, with
// known and unknown differences, at a node that sends none. One in the window goes on.
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
			t.Errorf("with labels %q: a watch that has fallen behind goes on", labels)
		}
	}
	if p.s.counts.undifferable.Load() != 0 {
		t.Error("watches are counted as passed on")
	}
	p.q.version = x.cache.Progress()
	if err := p.fromVersion(t.Context()); err != nil {
		t.Errorf("a watch in the window: %v", err)
	}
	p.close()
}

// TestAnUnknownDifferenceIsForAnApiserver has watches with selectors: only for objects that were
// replaced in a gap is it known whether they matched before.
func TestAnUnknownDifferenceIsForAnApiserver(t *testing.T) {
	x, p, since, _ := below(t)
	for _, labels := range []string{"app=a2", "app=a1"} { // which changed objects match now, and none of them
		p.q.selector, _ = selector.Parse(labels, "")
		if err := p.catchUp(t.Context(), since); !errors.Is(err, errUpstream) {
			t.Errorf("with %s: got %v", labels, err)
		}
		if held := p.s.cfg.Budget.Held(budget.CatchUps); held != 0 || p.watcher != nil || p.behind != nil {
			t.Errorf("with %s: %d bytes are held, watcher %v", labels, held, p.watcher)
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
		t.Errorf("%d objects do not match any more, want 60 and a bookmark", got)
	}
}

// TestNoBookmarkPassesAnEventThatWasNotSent adds an object that cannot be parsed. The watches end,
// and send no bookmark at or after its version.
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
		for range 2 { // as a watch that cannot go on sends its last bookmark
			if v.pending() {
				t.Error("the watch continues after an event that it could not send")
			}
			v.progress()
		}
		v.flush()
		if got := v.body.String(); got != "" {
			t.Errorf("the client gets %s", got)
		}
	}
	if len(x.fan.all) > 0 || x.fan.watcher != nil {
		t.Errorf("%d groups remain", len(x.fan.all))
	}
}

// A large event takes memory from the budget before it is encoded, until the client has taken it.
func TestALargeEventTakesMemoryFromTheBudget(t *testing.T) {
	_, p, _, _ := below(t)
	p.ctx, p.s.cfg.Patience = t.Context(), time.Millisecond
	lists := func(want int64) {
		t.Helper()
		if held := p.s.cfg.Budget.Held(budget.Lists); held != want {
			t.Errorf("%d bytes are held, want %d", held, want)
		}
	}
	if !p.makeRoom(ownBytes) {
		t.Error("no room for a small event")
	}
	lists(0)
	for range 2 { // the second one comes when the first one is written
		if !p.makeRoom(40_000) {
			t.Fatal("no room for a large event")
		}
		p.out = append(p.out, make([]byte, 40_000)...)
		lists(80_000)
	}
	q := &stream{answer: p.answer, ctx: t.Context()}
	if q.makeRoom(40_000) {
		t.Error("one client has more than half of the share of lists")
	}
	if !p.flush() {
		t.Error("the client does not take the event")
	}
	lists(0)
	if !q.makeRoom(40_000) {
		t.Error("no room when the other event is written")
	}
	q.releaseLarge() // as the end of a watch
	lists(0)
}
