package etcd

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// A watch gets its first revision, no revision below it, and progress from it on. It has begun at once if etcd has
// not reached that revision.
func TestAssemblyBeginsAtItsRevision(t *testing.T) {
	progress := func(at int64) *etcdserverpb.WatchResponse { return response(at, false) }
	for name, c := range map[string]struct {
		now       int64 // etcd's revision when the watch is created
		responses []*etcdserverpb.WatchResponse
		want      string
		begun     bool
		done      kv.Revision
	}{
		"nothing to catch up with":      {9, nil, "", true, 9},
		"the first is there":            {10, nil, "", false, 9},
		"the first":                     {10, []*etcdserverpb.WatchResponse{response(10, false, 10)}, "b10×1", true, 10},
		"one below":                     {10, []*etcdserverpb.WatchResponse{response(10, false, 9)}, "", true, 9},
		"below, the first and the next": {11, []*etcdserverpb.WatchResponse{response(11, false, 8, 9, 10, 11)}, "b10×1 b11×1", true, 11},
		"progress below":                {10, []*etcdserverpb.WatchResponse{progress(9)}, "", true, 9},
		"progress":                      {10, []*etcdserverpb.WatchResponse{progress(10)}, "p10", true, 10},
		"progress after the first":      {10, []*etcdserverpb.WatchResponse{response(10, false, 10), progress(10), progress(11)}, "b10×1p11", true, 11},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAssembly(10)
			if _, err := a.add(decoded(t, created(7, c.now)), time.Now()); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, r := range c.responses {
				updates, err := a.add(decoded(t, r), time.Now())
				if err != nil {
					t.Fatal(err)
				}
				got += seen(updates)
			}
			if got != c.want || a.begun != c.begun || a.done != c.done {
				t.Errorf("got %q, begun %v, done %d; want %q, %v, %d", got, a.begun, a.done, c.want, c.begun, c.done)
			}
		})
	}
	a := newAssembly(10)
	_, _ = a.add(decoded(t, created(7, 12)), time.Now())
	_, _ = a.add(decoded(t, response(11, false, 11)), time.Now())
	if _, err := a.add(decoded(t, response(11, false, 11)), time.Now()); !errors.Is(err, errProtocol) {
		t.Errorf("a repeated revision after its delivery: %v, want errProtocol", err)
	}
}

// A part of the past has all revisions from From up to, and without, Before. Next is the revision to continue
// with.
func TestAPartOfThePastEndsBeforeItsBound(t *testing.T) {
	batch := func(r kv.Revision) kv.Update {
		return kv.Update{Kind: kv.UpdateBatch, Revision: r, Batch: kv.Batch{Revision: r}}
	}
	for name, c := range map[string]struct {
		updates []kv.Update
		batches int
		next    kv.Revision
		over    bool
	}{
		"part":                {[]kv.Update{batch(10), batch(11)}, 2, 12, false},
		"up to the last":      {[]kv.Update{batch(10), batch(14)}, 2, 15, true},
		"and not one more":    {[]kv.Update{batch(10), batch(15)}, 1, 15, true},
		"progress below":      {[]kv.Update{batch(10), {Kind: kv.UpdateProgress, Revision: 13}}, 1, 14, false},
		"progress to the end": {[]kv.Update{batch(10), {Kind: kv.UpdateProgress, Revision: 14}}, 1, 15, true},
	} {
		t.Run(name, func(t *testing.T) {
			one := &pastRead{HistoryRequest: HistoryRequest{From: 10, Before: 15, MaxBytes: 1 << 20}, history: LogPage{Next: 10}}
			one.take(c.updates)
			if len(one.history.Batches) != c.batches || one.history.Next != c.next || one.over != c.over {
				t.Errorf("%d batches, next %d, over %v; want %d, %d, %v", len(one.history.Batches), one.history.Next, one.over, c.batches, c.next, c.over)
			}
		})
	}
}

// A watch that is FreeCatchUp or more revisions behind needs a permit, and only one.
func TestFarBehindBegins(t *testing.T) {
	c := &Client{cfg: Config{FreeCatchUp: 20}}
	for now, want := range map[kv.Revision]bool{0: false, 10: false, 29: false, 30: true} {
		if got := c.farBehind(&position{from: 10}, now); got != want {
			t.Errorf("watch from 10, etcd at %d: needs a permit: %v", now, got)
		}
		if c.farBehind(&position{from: 10, release: func() {}}, now) {
			t.Errorf("a watch with a permit needs a second one, with etcd at %d", now)
		}
	}
}
