package peerapi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/peerapi"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// following returns a cache that follows shard 1 of r like another node, and a function that cuts its connection
// or restores it.
func following(t *testing.T, r *running) (c *cache.Cache, cut func(bool)) {
	t.Helper()
	var off atomic.Bool
	link := replica.NewLink(dial(t, r.peers), nil)
	sources := func() []replica.Candidate {
		if off.Load() {
			return nil
		}
		return []replica.Candidate{{Name: "here", Source: &replica.Peer{Link: link, Shard: 1, Self: "there", Silence: deadline}}}
	}
	f := &replica.Failover{Candidates: sources, Warm: sources, Logger: slog.New(slog.DiscardHandler)}
	cfg := cache.Defaults()
	home := r.node.Replica(1)
	cfg.Range, cfg.Lineage, cfg.Source = home.Range(), home.Lineage(), f
	c = cache.New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx) // ends with ctx only
	}()
	t.Cleanup(func() { stop(); <-done })
	return c, func(is bool) {
		off.Store(is)
		f.Change(errors.New("the test has cut it"))
	}
}

// equal compares the state of two caches, and their changes of a range since each of the given revisions.
func equal(t *testing.T, a, b *cache.Cache, at kv.Revision, since ...kv.Revision) {
	t.Helper()
	for _, c := range []*cache.Cache{a, b} {
		if err := c.WaitProgress(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	for _, revision := range since {
		x, err := a.Changes(t.Context(), a.Range(), revision, at)
		y, err2 := b.Changes(t.Context(), b.Range(), revision, at)
		if err != nil || err2 != nil {
			t.Errorf("since %d: %v, %v", revision, err, err2)
			continue
		}
		byKey := func(p, q *kv.KeyValue) int { return slices.Compare(p.Key(), q.Key()) }
		same := func(p, q *kv.KeyValue) bool { return string(p.Encoded()) == string(q.Encoded()) }
		for _, changes := range []*cache.Changes{x, y} {
			slices.SortFunc(changes.Changed, byKey)
			slices.Sort(changes.Deleted)
		}
		if !slices.EqualFunc(x.Changed, y.Changed, same) || !slices.Equal(x.Deleted, y.Deleted) {
			t.Errorf("since %d: one cache has %d changed and %q deleted, the other %d and %q", revision, len(x.Changed), x.Deleted, len(y.Changed), y.Deleted)
		}
	}
}

// smallWindow keeps the last few revisions.
func smallWindow(c *cache.Config) { c.WindowBytes = 4 << 10 }

// A follower also receives the deletes from before the node's window.
func TestFollowTakesTombstones(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{cache: smallWindow, service: func(c *peerapi.Config) { c.FragmentBytes = 1024 }})
	before := h.Commit(cachetest.Put("a", "1"), cachetest.Put("b", "1"), cachetest.Put("c", "1"))
	deleted := h.Commit(cachetest.Delete("b"))
	var last kv.Revision
	for i := range 100 {
		last = h.Commit(cachetest.Put("a", fmt.Sprint(i)))
	}
	home := r.node.Replica(1)
	if err := home.WaitProgress(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if home.Floor() <= deleted {
		t.Fatalf("the window still has the delete: it reaches back to %d", home.Floor())
	}
	c, _ := following(t, r)
	equal(t, home, c, last, home.DeltaFloor()-1, before, deleted, last-1)
	if c.DeltaFloor() != home.DeltaFloor() {
		t.Errorf("the node knows deletes from %d on, the follower from %d on", home.DeltaFloor(), c.DeltaFloor())
	}
}

// A replica that was away for longer than the window receives the changes. It has the deletes from before, during
// and after its absence.
func TestFollowLeaps(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{cache: smallWindow, service: func(c *peerapi.Config) { c.FragmentBytes = 1024 }})
	h.Commit(cachetest.Put("a", "1"), cachetest.Put("b", "1"), cachetest.Put("c", "1"))
	early := h.Commit(cachetest.Delete("b"))
	c, cut := following(t, r)
	if err := c.WaitProgress(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	cut(true)
	h.Commit(cachetest.Delete("c"))
	h.Commit(cachetest.Put("gone", "1"))
	h.Commit(cachetest.Delete("gone"))
	var last kv.Revision
	for i := range 300 {
		last = h.Commit(cachetest.Put("a", fmt.Sprint(i)), cachetest.Put(fmt.Sprint("d", i), ""))
	}
	home := r.node.Replica(1)
	if err := home.WaitProgress(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	cut(false)
	equal(t, home, c, last, early-1, early)
	if s := c.Status(); s.Leaps != 1 || s.Keys != home.Status().Keys {
		t.Errorf("follower %+v, node %+v; want one leap and equal keys", s, home.Status())
	}
	last = h.Commit(cachetest.Delete("a"))
	equal(t, home, c, last, early-1, last-1)
}

// The first message to a follower has the age of the data.
func TestAFollowerReceivesTheAge(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{})
	home := r.node.Replica(1)
	_, m, err := r.follows(t.Context(), func(*peerv1.FollowRequest) {})
	if err != nil || m.GetBegin() == nil || m.GetBegin().GetAge() != nil {
		t.Errorf("%v, %v: want no age, because it is unknown", m, err)
	}
	aged(home, time.Hour)
	_, m, err = r.follows(t.Context(), func(*peerv1.FollowRequest) {})
	if err != nil || m.GetBegin().GetAge() == nil || !around(m.GetBegin().GetAge(), time.Hour) {
		t.Errorf("%v, %v: want an age of an hour", m, err)
	}
}

// A follower that supports it gets queued revisions together, in messages of about the size of a fragment. A
// larger revision is split, and shares its messages with no other revision.
func TestPendingRevisionsAreSentTogether(t *testing.T) {
	const limit = 4 << 10
	h := cachetest.New()
	r := start(t, h, options{service: func(c *peerapi.Config) { c.FragmentBytes = limit }})
	var want []kv.Revision
	for i := range 100 {
		value := strings.Repeat("v", 100)
		if i == 50 {
			value = strings.Repeat("v", 3<<10)
			want = append(want, h.Commit(cachetest.Put("a", value), cachetest.Put("b", value)))
			continue
		}
		want = append(want, h.Commit(cachetest.Put("a", value), cachetest.Delete("a")))
	}
	last := want[len(want)-1]
	if err := r.node.Replica(1).WaitProgress(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	for _, several := range []bool{false, true} {
		stream, _, err := r.follows(t.Context(), func(f *peerv1.FollowRequest) {
			f.FromRevision, f.AcceptSeveral = int64(want[0]), several
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []kv.Revision
		messages, events, cut := 0, 0, 0
		for len(got) < len(want) || got[len(got)-1] < last {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if m.GetEnd() != nil {
				continue
			}
			if size := proto.Size(m); size > limit+100 {
				t.Errorf("a message has %d bytes, above the limit", size)
			}
			messages++
			if m.GetFragment() {
				cut++
			}
			if m.GetSeveral() != (several && len(m.GetEvents()) > 2) {
				t.Errorf("message of %d events at revision %d is marked as several revisions: %v", len(m.GetEvents()), m.GetRevision(), m.GetSeveral())
			}
			for _, e := range m.GetEvents() {
				events++
				if at := kv.Revision(e.GetKv().GetModRevision()); len(got) == 0 || got[len(got)-1] != at {
					got = append(got, at)
				}
			}
			if at := got[len(got)-1]; m.GetRevision() != int64(at) {
				t.Errorf("a message of revision %d ends with an event of revision %d", m.GetRevision(), at)
			}
		}
		if !slices.Equal(got, want) || events != 2*len(want) || cut != 1 {
			t.Errorf("several %v: %d events of revisions %v, want %v; %d split revisions", several, events, got, want, cut)
		}
		if several == (messages > 20) {
			t.Errorf("several %v: %d messages for %d revisions", several, messages, len(want))
		}
	}
}
