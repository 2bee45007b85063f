package syncbatch

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// quiet is a watch that ignores wake-ups.
type quiet struct{ of budget.Client }

func (*quiet) Wake()                   {}
func (q *quiet) Holder() budget.Client { return q.of }

// Batches are built at no more than the configured pace, and builds that wait for it take turns.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pace{perSecond: 1000}
		for i, want := range []time.Duration{0, 0, 100 * time.Millisecond, 200 * time.Millisecond} {
			if got := p.reserve(100); got != want {
				t.Errorf("reservation %d: wait %v, want %v", i, got, want)
			}
		}
		p.correct(-150) // the chunk was smaller than reserved
		if got := p.reserve(100); got != 150*time.Millisecond {
			t.Errorf("wait %v", got)
		}
		time.Sleep(time.Hour)
		if got := p.reserve(5000); got != 0 {
			t.Errorf("after an idle time: wait %v", got)
		}
		if got := p.reserve(1); got != 4900*time.Millisecond {
			t.Errorf("after a large chunk: wait %v", got)
		}
		none := pace{}
		if none.reserve(1<<40)+none.reserve(1) != 0 {
			t.Error("a pace without a bound makes a build wait")
		}
	})
}

// A watch shares a batch that has begun only if the batch is new enough for the watch, has begun
// recently, and is not a requested initial state, which must be read after the request.
func TestBatchesThatAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, x := range map[string]struct {
			kind  shardwatchv1.SyncKind
			least kv.Revision
			after time.Duration
			want  bool
		}{
			"as new as needed":     {shardwatchv1.SyncKind_SYNC_KIND_RESYNC, 10, 0, true},
			"one revision too old": {shardwatchv1.SyncKind_SYNC_KIND_RESYNC, 11, 0, false},
			"a delta":              {shardwatchv1.SyncKind_SYNC_KIND_DELTA, 10, UsualPatience().Share - 1, true},
			"begun too long ago":   {shardwatchv1.SyncKind_SYNC_KIND_DELTA, 10, UsualPatience().Share, false},
			"a state":              {shardwatchv1.SyncKind_SYNC_KIND_STATE, 10, 0, false},
		} {
			q := New(Config{Patience: UsualPatience(), MaxResyncs: 1})
			key := Key{Kind: x.kind}
			begun := &Batch{key: key, watches: map[Watch]time.Time{}, state: Ready, begun: time.Now(), body: router.NewBody(1, 10, nil, nil)}
			q.shared[key] = begun
			time.Sleep(x.after)
			if got := q.Join(&quiet{}, key, x.least, "") == begun; got != x.want {
				t.Errorf("%s: shared %v, want %v", name, got, x.want)
			}
		}
		q := New(Config{Patience: UsualPatience(), MaxResyncs: 1})
		first := q.Join(&quiet{}, Key{}, 7, "")
		q.Join(&quiet{}, Key{}, 9, "")
		if again := q.Join(&quiet{}, Key{}, 8, ""); again != first || first.least != 9 || q.stats.Waiting != 3 {
			t.Errorf("three watches of one batch: least revision %d (want 9), %d waiting", first.least, q.stats.Waiting)
		}
	})
}

// A batch that no watch reads loses its slot. It is dropped after a while, or earlier if too many
// batches are kept. A batch that is being loaded or built keeps its slot.
func TestStalledBatches(t *testing.T) {
	now := time.Now()
	p := UsualPatience()
	newUnit := func(q *Queue, idle time.Duration) *Batch {
		x := &Batch{
			key: Key{Kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC}, watches: map[Watch]time.Time{&quiet{}: now},
			state: Ready, placed: true, begun: now, taken: now.Add(-idle), cancel: func() {},
		}
		q.begun[x] = struct{}{}
		q.queues[x.key.queue()].running++
		return x
	}
	for name, test := range map[string]struct {
		idle          time.Duration
		change        func(*Batch)
		placed, begun bool
	}{
		"it is read":                     {p.Stalled, func(*Batch) {}, true, true},
		"it has stalled":                 {p.Stalled + 1, func(*Batch) {}, false, true},
		"for long":                       {p.Hold, func(*Batch) {}, false, true},
		"for too long":                   {p.Hold + 1, func(*Batch) {}, false, false},
		"a part is being made":           {p.Hold + 1, func(x *Batch) { x.making = 1 }, true, true},
		"it is being loaded":             {p.Hold + 1, func(x *Batch) { x.state = Loads }, true, true},
		"no watch, and others may join":  {0, func(x *Batch) { clear(x.watches) }, true, true},
		"no watch, and none may join":    {0, func(x *Batch) { clear(x.watches); x.begun = now.Add(-p.Share) }, false, false},
		"a watch, and no other may join": {0, func(x *Batch) { x.begun = now.Add(-p.Share) }, true, true},
	} {
		q := New(Config{Patience: UsualPatience(), MaxResyncs: 9})
		x := newUnit(q, test.idle)
		test.change(x)
		q.sweep(now)
		if _, begun := q.begun[x]; x.placed != test.placed || begun != test.begun || q.queues[1].running > 0 != test.placed {
			t.Errorf("%s: has a slot %v, is kept %v, %d batches run", name, x.placed, begun, q.queues[1].running)
		}
	}
	q := New(Config{Patience: UsualPatience(), MaxResyncs: 2})
	var held []*Batch
	for i := range 2*holdFactor + 3 {
		held = append(held, newUnit(q, p.Stalled+time.Duration(1+i)))
	}
	q.sweep(now)
	for i, x := range held {
		if _, begun := q.begun[x]; begun != (i < 2*holdFactor) {
			t.Errorf("batch %d of %d, newest first: kept %v", i, len(held), begun)
		}
	}
}

// The slot of a batch is released once: when a watch has read the whole batch, or when its last
// watch has left.
func TestPlaceOfABatchIsGivenBackOnce(t *testing.T) {
	for name, x := range map[string]struct {
		through [2]bool
		running [2]int // after the first and the second watch has left
	}{
		"both have had it":  {[2]bool{true, true}, [2]int{0, 0}},
		"both leave":        {[2]bool{false, false}, [2]int{1, 0}},
		"the first leaves":  {[2]bool{false, true}, [2]int{1, 0}},
		"the second leaves": {[2]bool{true, false}, [2]int{0, 0}},
	} {
		q := New(Config{Patience: UsualPatience(), MaxResyncs: 1})
		watches := []Watch{&quiet{}, &quiet{}}
		key := Key{Kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC}
		for _, w := range watches {
			q.Join(w, key, 0, "")
		}
		l := &q.queues[key.queue()]
		begun, _ := l.Pop()
		delete(q.waiting, key)
		begun.state, begun.placed, begun.begun, begun.cancel = Ready, true, time.Now(), func() {}
		begun.body = router.NewBody(1, 10, nil, nil)
		q.shared[key], q.begun[begun], l.running = begun, struct{}{}, 1
		for i, w := range watches {
			for range 2 { // a watch leaves twice; the second call has no effect
				if q.Leave(begun, w, x.through[i]); l.running != x.running[i] {
					t.Errorf("%s: %d batches have a slot after %d watches left, want %d", name, l.running, i+1, x.running[i])
				}
			}
		}
	}
	q := New(Config{Patience: UsualPatience(), MaxResyncs: 1})
	w := &quiet{}
	other := &quiet{}
	waits := q.Join(w, Key{}, 0, "")
	q.Join(other, Key{}, 0, "")
	for range 2 {
		if q.Leave(waits, w, false); q.stats.Waiting != 1 || len(q.waiting) != 1 {
			t.Errorf("%d watches and %d batches wait, want the other watch with its batch", q.stats.Waiting, len(q.waiting))
		}
	}
	for range 2 {
		if q.Leave(waits, other, false); q.stats.Waiting != 0 || len(q.waiting) != 0 || q.queues[1].running != 0 {
			t.Errorf("%d watches wait, %d batches wait, %d have a slot; want none", q.stats.Waiting, len(q.waiting), q.queues[1].running)
		}
	}
}

// A batch belongs to the lineage that was announced to the watch, and is not older than the
// revision that the watch requires.
func TestBatchIsOfThePromisedHistory(t *testing.T) {
	h := cachetest.New()
	n := cachetest.NewNode("here", h, nil)
	defer n.Stop()
	n.Use(cachetest.Map(1, nil, "here"))
	<-n.Replica(1).Ready()
	was := h.Now()
	n.Gate(1).Limit(was)
	now := h.Commit(cachetest.Put("a", "1")) // the shard does not have it
	cfg := &Config{Router: router.New(router.Config{Shards: n, Clock: h, Self: "here"})}
	for _, kind := range []shardwatchv1.SyncKind{shardwatchv1.SyncKind_SYNC_KIND_RESYNC, shardwatchv1.SyncKind_SYNC_KIND_DELTA} {
		key := Key{Kind: kind, Lineage: 1, Since: was}
		if body, err := cfg.find(t.Context(), key, 0, budget.Client{}); err != nil || body.Revision != was {
			t.Errorf("%v: %+v, %v", kind, body, err)
		}
		key.Lineage = 2
		var other *kv.LineageError
		if _, err := cfg.find(t.Context(), key, 0, budget.Client{}); !errors.As(err, &other) || *other != (kv.LineageError{Requested: 2, Current: 1}) {
			t.Errorf("%v of another lineage: %v", kind, err)
		}
	}
	n.Gate(1).Limit(0)
	body, err := cfg.find(t.Context(), Key{Kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC, Lineage: 1}, now, budget.Client{})
	if err != nil || body.Revision < now {
		t.Errorf("batch of at least revision %d: %+v, %v", now, body, err)
	}
}
