package cache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// past returns a history of the key k: its deletes below floor, and a delete at every
// revision from floor on.
func past(deltaFloor, floor, progress kv.Revision) *Past {
	h := &Past{Progress: progress, Floor: floor, DeltaFloor: deltaFloor}
	for r := deltaFloor; r < floor; r++ {
		h.Tombstones = append(h.Tombstones, kv.Tombstone{Key: "k", Revision: r})
	}
	for r := floor; r <= progress; r++ {
		b := batch(r, del("k", r))
		h.Batches = append(h.Batches, &b)
	}
	return h
}

// told describes a history in words.
func told(h *Past) string {
	if h == nil {
		return "nothing"
	}
	deletes, batches := []kv.Revision{}, []kv.Revision{}
	for _, d := range h.Tombstones {
		deletes = append(deletes, d.Revision)
	}
	for _, b := range h.Batches {
		batches = append(batches, b.Revision)
	}
	return fmt.Sprint("deletes from ", h.DeltaFloor, " ", deletes, ", batches from ", h.Floor, " ", batches)
}

// An older history is joined only without a gap between the two. One missing revision is a
// gap.
func TestHistoriesJoinWithoutAGap(t *testing.T) {
	for name, c := range map[string]struct {
		newer, older *Past
		want         string
	}{
		"nothing older":                 {past(10, 10, 12), nil, "deletes from 10 [], batches from 10 [10 11 12]"},
		"side by side":                  {past(10, 10, 11), past(7, 8, 9), "deletes from 7 [7], batches from 8 [8 9 10 11]"},
		"a gap of one":                  {past(10, 10, 11), past(7, 7, 8), "deletes from 10 [], batches from 10 [10 11]"},
		"overlapping":                   {past(10, 10, 11), past(7, 8, 10), "deletes from 7 [7], batches from 8 [8 9 10 11]"},
		"deletes fill the gap":          {past(9, 10, 11), past(7, 7, 8), "deletes from 7 [7 8 9], batches from 10 [10 11]"},
		"deletes leave a gap of one":    {past(9, 10, 11), past(6, 6, 7), "deletes from 9 [9], batches from 10 [10 11]"},
		"batches instead of deletes":    {past(8, 10, 11), past(7, 8, 9), "deletes from 7 [7], batches from 8 [8 9 10 11]"},
		"nothing more":                  {past(8, 9, 11), past(9, 10, 10), "deletes from 8 [8], batches from 9 [9 10 11]"},
		"as far back":                   {past(8, 9, 11), past(8, 9, 10), "deletes from 8 [8], batches from 9 [9 10 11]"},
		"nothing happened in the newer": {past(10, 10, 9), past(7, 8, 9), "deletes from 7 [7], batches from 8 [8 9]"},
	} {
		t.Run(name, func(t *testing.T) {
			c.newer.join(c.older)
			if got := told(c.newer); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// The united history of neighbours begins where both are complete, and ends at the lower
// progress. They must share a revision or be adjacent.
func TestNeighboursUniteTheirCommonHistory(t *testing.T) {
	for name, c := range map[string]struct {
		a, b *Past
		want string
	}{
		"alike":        {past(7, 8, 10), past(7, 8, 10), "deletes from 7 [7 7], batches from 8 [8 9 10]"},
		"one longer":   {past(7, 8, 12), past(5, 6, 10), "deletes from 7 [7 7], batches from 8 [8 9 10]"},
		"just meeting": {past(11, 11, 12), past(5, 6, 10), "deletes from 11 [], batches from 11 []"},
		"a gap of one": {past(12, 12, 13), past(5, 6, 10), "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := told(Unite(c.a, c.b)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// The floor is the oldest revision that a watch may start from, and the watch delivers it.
// The revision below it is compacted, and the error names the floor.
func TestTheFloorIsTheOldestRevisionToWatchFrom(t *testing.T) {
	cfg := small(nil)
	cfg.WindowBytes = 64 << 10
	c := loaded(cfg, 1)
	behind := watch(t, c, all, 2, &wakes{})
	for r := kv.Revision(2); c.Floor() <= 10; r++ {
		b := batch(r, put("k", r))
		c.apply(&b)
	}
	floor := c.Floor()
	w := watch(t, c, all, floor, &wakes{})
	if got := drain(t, w); len(got) == 0 || got[0] != floor || got[len(got)-1] != c.Progress() {
		t.Errorf("delivered %v from the floor %d on", got, floor)
	}
	var compacted *kv.CompactedError
	if _, err := c.Watch(all, floor-1, &wakes{}); !errors.As(err, &compacted) || compacted.Requested != floor-1 || compacted.Floor != floor {
		t.Errorf("from below the floor %d: %v", floor, err)
	}
	if _, _, err := behind.Next(nil); !errors.As(err, &compacted) || compacted.Requested != 2 || compacted.Floor != floor {
		t.Errorf("a watcher that fell behind the floor %d: %v", floor, err)
	}
	// A watcher at the floor has missed no events.
	at := watch(t, c, all, floor, &wakes{})
	for old := c.Floor(); c.Floor() == old; {
		b := batch(c.Progress()+1, put("k", c.Progress()+1))
		c.apply(&b)
	}
	at.from = c.Floor()
	if revision, _, err := at.Next(nil); revision != c.Floor() || err != nil {
		t.Errorf("at the floor: %d, %v; want %d", revision, err, c.Floor())
	}
	late := watch(t, c, all, c.Floor(), &wakes{})
	late.state.Store(0)
	late.from = c.Floor() - 1
	if _, _, err := late.Next(nil); !errors.As(err, &compacted) {
		t.Errorf("one below the floor: %v", err)
	}
}

// asked is a source that records its requests, and begins at a given revision.
type asked struct {
	requests []kv.FollowRequest
	begin    kv.Revision
	more     []kv.Update
}

func (s *asked) Follow(_ context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	s.requests = append(s.requests, req)
	return func(yield func(kv.Update, error) bool) {
		if !yield(kv.Update{Kind: kv.UpdateBegin, Revision: s.begin, Floor: s.begin + 1}, nil) || !yield(kv.Update{Kind: kv.UpdateReady, Revision: s.begin}, nil) {
			return
		}
		for _, u := range s.more {
			if !yield(u, nil) {
				return
			}
		}
	}
}

// A cache asks its source for the revision after its last one: after the history on disk
// when it starts, after its progress when it resumes. A source that begins one revision
// later leaves a gap, and is refused.
func TestAskForTheRevisionAfterTheLast(t *testing.T) {
	s := &asked{begin: 10, more: []kv.Update{{Kind: kv.UpdateProgress, Revision: 12}}}
	cfg := small(s)
	cfg.History = past(5, 5, 8)
	c := New(cfg)
	if err := c.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.requests[0]; got.HistoryFrom != 9 || got.From != 0 {
		t.Errorf("at the start: from %d, history from %d, want history from 9", got.From, got.HistoryFrom)
	}
	for _, x := range []struct {
		begin kv.Revision
		ok    bool
	}{{13, false}, {12, true}, {11, true}} {
		s.begin, s.more = x.begin, nil
		err := c.follow(t.Context())
		if got := s.requests[len(s.requests)-1]; got.From != 13 || got.HistoryFrom != 0 {
			t.Errorf("resumed from %d, want 13", got.From)
		}
		if (err == nil) != x.ok {
			t.Errorf("a source that begins after %d: %v", x.begin, err)
		}
	}
}

// The data is as fresh as an observation once it reaches the observed revision, and not one
// revision earlier. This holds for the only observation, and for the second of two.
func TestFreshWithTheRevisionItself(t *testing.T) {
	for name, c := range map[string]struct {
		observed []kv.Revision // at 1 s, 2 s, …
		reached  kv.Revision
		want     time.Duration // 0: unknown
	}{
		"one before":            {[]kv.Revision{11}, 10, 0},
		"the revision":          {[]kv.Revision{11}, 11, time.Second},
		"one before the second": {[]kv.Revision{11, 13}, 12, time.Second},
		"the second":            {[]kv.Revision{11, 13}, 13, 2 * time.Second},
		"one before the newest": {[]kv.Revision{11, 13, 15}, 14, time.Second},
		"one revision more":     {[]kv.Revision{11}, 12, time.Second},
		"later, and one before": {[]kv.Revision{13, 11}, 10, 0},
		"the later read first":  {[]kv.Revision{13, 11}, 12, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var f freshness
			f.reached(9)
			for i, r := range c.observed {
				if !f.observe(time.Duration(i+1)*time.Second, r) {
					t.Errorf("revision %d is already reached", r)
				}
			}
			if f.reached(c.reached); f.known != (c.want > 0) || f.freshAt != c.want {
				t.Errorf("known %v, as of %v; want %v", f.known, f.freshAt, c.want)
			}
			if f.observe(time.Minute, c.reached) || f.freshAt != time.Minute {
				t.Errorf("an observation of the current revision: as of %v", f.freshAt)
			}
			if !f.observe(time.Hour, c.reached+1) || f.freshAt != time.Minute {
				t.Errorf("an observation of the next revision: as of %v", f.freshAt)
			}
		})
	}
}
