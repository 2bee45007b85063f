package etcdclock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A caller that gives up does not end the read of the others. It may still get the result, if that arrives at the
// same moment.
func TestCheckRevisionSurvivesItsCaller(t *testing.T) {
	c := newReader(t, scripted{now: 10})
	hasty, cancel := context.WithCancel(t.Context())
	cancel()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if now, err := c.CheckRevision(hasty, 5); !errors.Is(err, context.Canceled) && (now != 10 || err != nil) {
				t.Errorf("the caller that gives up gets %d, %v", now, err)
			}
		})
		all.Go(func() {
			if now, err := c.CheckRevision(t.Context(), 5); now != 10 || err != nil {
				t.Errorf("the patient caller gets %d, %v", now, err)
			}
		})
	}
	all.Wait()
	if n := len(c.asked.at); n != 0 {
		t.Errorf("%d requested revisions remain", n)
	}
}

// One verdict separates compacted, readable and future revisions for any set of requests. The number of its reads
// grows with the logarithm of the number of requests.
func TestVerdictOfManyRevisions(t *testing.T) {
	const now, floor = 100, 50
	for name, c := range map[string]struct {
		asked []kv.Revision
		want  verdict
		reads int64 // upper bound
	}{
		"the newest":            {[]kv.Revision{now}, verdict{now: now}, 1},
		"the oldest":            {[]kv.Revision{floor, now}, verdict{now: now}, 1},
		"one compacted":         {[]kv.Revision{floor - 1}, verdict{now: now, gone: floor - 1}, 2},
		"around the floor":      {[]kv.Revision{floor - 2, floor - 1, floor, floor + 1}, verdict{now: now, gone: floor - 1}, 4},
		"compacted and future":  {[]kv.Revision{1, now + 2}, verdict{now: now, gone: 1}, 3},
		"future":                {[]kv.Revision{now + 2, now + 3}, verdict{now: now}, 2},
		"of all kinds and many": {revisions(1, now+50), verdict{now: now, gone: floor - 1}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			client := newReader(t, scripted{floor: floor, now: now})
			for _, r := range c.asked {
				defer client.asked.enter(r)()
			}
			got, err := client.judgeAsked(t.Context())
			if got != c.want || err != nil {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
			if n := client.Stats().ClockReads; n > c.reads {
				t.Errorf("%d reads, want at most %d", n, c.reads)
			}
		})
	}
}

func revisions(from, to kv.Revision) (out []kv.Revision) {
	for r := from; r <= to; r++ {
		out = append(out, r)
	}
	return out
}

// from returns all requested revisions that are not known to be compacted, once each.
func TestAskers(t *testing.T) {
	var a askers
	if got := a.from(0); got != nil {
		t.Errorf("got %d without requests", got)
	}
	var leave []func()
	for _, r := range []kv.Revision{7, 3, 9, 3} {
		leave = append(leave, a.enter(r))
	}
	want := func(floor kv.Revision, want ...kv.Revision) {
		t.Helper()
		if got := a.from(floor); !slices.Equal(got, want) {
			t.Errorf("from(%d) = %d, want %d", floor, got, want)
		}
	}
	want(0, 3, 7, 9)
	want(3, 3, 7, 9)
	want(4, 7, 9)
	want(10)
	leave[1]()
	want(0, 3, 7, 9)
	leave[3]()
	want(0, 7, 9)
}

// The compact revision itself can be read. The known floor only grows, and is dropped when etcd turns out to be
// below it.
func TestPastFloor(t *testing.T) {
	var p past
	for _, x := range []struct {
		do   func()
		want kv.Revision
	}{
		{func() { p.compacted(5) }, 5},
		{func() { p.compacted(4) }, 5},
		{func() { p.compacted(6) }, 6},
		{func() { p.saw(6) }, 6},
		{func() { p.saw(5) }, 0},
		{func() { p.compacted(3) }, 3},
		{func() { p.forget() }, 0},
	} {
		if x.do(); p.floor() != x.want {
			t.Errorf("floor %d, want %d", p.floor(), x.want)
		}
	}
}
