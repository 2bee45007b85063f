package etcdapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// received checks the events of each watch of a stream: each revision arrives once, in order, and
// none after the answer to a cancel.
type received struct {
	*watchStream
	next map[int64]int64 // the next revision of each open watch
}

// upTo reads until each watch has received everything up to a revision.
func (s *received) upTo(last int64) {
	s.tb.Helper()
	for {
		behind := false
		for _, next := range s.next {
			behind = behind || next <= last
		}
		if !behind {
			return
		}
		s.one()
	}
}

// one reads and checks one response.
func (s *received) one() {
	s.tb.Helper()
	m := s.watchStream.next()
	id := m.GetWatchId()
	next, open := s.next[id]
	switch {
	case m.GetCreated():
		return
	case m.GetCanceled():
		if m.GetCompactRevision() > 0 {
			s.tb.Fatalf("watch %d ended: %v", id, m)
		}
		delete(s.next, id)
		return
	case !open || m.GetHeader().GetRevision() != next || len(m.GetEvents()) != 1:
		s.tb.Fatalf("watch %d got %v, want revision %d", id, m, next)
	}
	if want, old := fmt.Sprintf("p:a=%d", next), fmt.Sprintf(",%d", next-1); text(m) != want && (id%2 == 0 || text(m) != want+old && next > first) {
		s.tb.Fatalf("watch %d got %s at %d", id, text(m), next)
	}
	s.next[id]++
}

func (r *watchRig) put() int64 {
	return int64(r.h.Commit(cachetest.Put("a", fmt.Sprint(int64(r.h.Now())+1))))
}

// Watches of one stream with equal requests share a reader once they reach the same revision,
// regardless of their starts. Each still gets every revision once, and counts as a watch.
func TestWatchesOfAStreamAreReadTogether(t *testing.T) {
	rnd := testseed.Rand(t)
	r := startWatches(t, rigOptions{shards: cachetest.Map(1, nil, "here")})
	status := func() cache.Status { return r.node.Replica(1).Status() }
	s := &received{r.watch(), make(map[int64]int64)}
	r.put()
	for id := int64(1); id <= 60; id++ {
		now := int64(r.h.Now())
		from := first + rnd.Int64N(now-first+4) // some of them start in the future
		// Watches with odd IDs want previous values.
		s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), WatchId: id, StartRevision: from, PrevKv: id%2 == 1})
		s.next[id] = from
		r.put()
		if old := 1 + rnd.Int64N(id); rnd.IntN(4) == 0 && s.next[old] > 0 {
			s.cancel(old)
			for s.next[old] > 0 {
				s.one()
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for range 4 { // after that, none starts in the future
		r.put()
	}
	for s.upTo(r.put()); status().Readers > 2 && ctx.Err() == nil; {
		s.upTo(r.put())
	}
	if got := status(); got.Readers != 2 || got.Watchers != len(s.next) {
		t.Fatalf("%d watches of two kinds count as %d, and have %d readers, want 2", len(s.next), got.Watchers, got.Readers)
	}
	// The readers end with their last watches.
	for id := range s.next {
		s.cancel(id)
		r.put()
		for s.next[id] > 0 {
			s.one()
		}
		if got := status(); got.Watchers != len(s.next) {
			t.Errorf("%d watches count as %d", len(s.next), got.Watchers)
		}
	}
	if n := status().Readers; n != 0 {
		t.Errorf("%d readers are left without a watch", n)
	}
}

// together opens watches with equal requests on a stream, so that they share a reader.
func together(r *watchRig, watches int64) *received {
	r.tb.Helper()
	s := &received{r.watch(), make(map[int64]int64)}
	for id := int64(2); id <= 2*watches; id += 2 {
		s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), WatchId: id, StartRevision: first})
		s.next[id] = first
	}
	for end := time.Now().Add(deadline); ; {
		s.upTo(r.put())
		switch n := r.node.Replica(1).Status().Readers; {
		case n == 1:
			return s
		case time.Now().After(end):
			r.tb.Fatalf("%d readers", n)
		}
	}
}

// The fragments of a response are consecutive on the stream, even if another watch has the
// same request.
func TestFragmentsOfEqualWatchesAreNotMixed(t *testing.T) {
	r := startWatches(t, rigOptions{shards: cachetest.Map(1, nil, "here"), api: func(c *etcdapi.Config) { c.MaxMessageBytes = 8 << 10 }})
	s := &received{r.watch(), make(map[int64]int64)}
	for _, id := range []int64{2, 4} {
		s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("b"), WatchId: id, StartRevision: first, Fragment: true})
		s.next[id] = first
	}
	for range 20 { // both are at one revision with no pending events, several times
		s.upTo(r.put())
	}
	var ops []cachetest.Op
	for i := range 20 {
		ops = append(ops, cachetest.Put(fmt.Sprintf("a%02d", i), strings.Repeat("v", 1000)))
	}
	r.h.Commit(ops...)
	events, within := make(map[int64]int), int64(0) // the watch whose response has more fragments
	for events[2] < len(ops) || events[4] < len(ops) {
		m := s.watchStream.next()
		id := m.GetWatchId()
		if within != 0 && id != within {
			t.Fatalf("a response to watch %d between the fragments of watch %d", id, within)
		}
		if events[id] += len(m.GetEvents()); m.GetFragment() == (events[id] == len(ops)) {
			t.Fatalf("watch %d has %d events, fragment %v", id, events[id], m.GetFragment())
		}
		if within = 0; m.GetFragment() {
			within = id
		}
	}
}

// Watches that share a reader and fall behind the window continue from etcd's log, each after its
// last revision.
func TestWatchesThatAreReadTogetherFallBehind(t *testing.T) {
	const revisions = 400
	r := startWatches(t, rigOptions{
		shards: cachetest.Map(1, nil, "here"),
		cache:  func(c *cache.Config) { c.WindowBytes = 64 << 10 },
	})
	s := together(r, 3)
	for range revisions { // far more than flow control admits
		r.h.Commit(cachetest.Put("a", strings.Repeat("x", 16<<10)))
	}
	now := int64(r.h.Now())
	for done := false; !done; {
		m := s.watchStream.next()
		id := m.GetWatchId()
		if m.GetHeader().GetRevision() != s.next[id] || len(m.GetEvents()) != 1 {
			t.Fatalf("watch %d got %v, want revision %d", id, m.GetHeader(), s.next[id])
		}
		s.next[id]++
		done = true
		for _, next := range s.next {
			done = done && next > now
		}
	}
	r.etcd.mu.Lock()
	defer r.etcd.mu.Unlock()
	if r.etcd.histories == 0 {
		t.Error("the watches never fell behind the window: the test proves nothing")
	}
}

// A watch that shares a reader counts as quiet if no message was sent to it, even if other watches got messages.
func TestWatchesThatAreReadTogetherAreNotified(t *testing.T) {
	r := startWatches(t, rigOptions{
		shards: cachetest.Map(1, nil, "here"),
		api:    func(c *etcdapi.Config) { c.ProgressNotifyInterval = 100 * time.Millisecond },
	})
	s := together(r, 2)
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), WatchId: 6, StartRevision: int64(r.h.Now()), ProgressNotify: true})
	s.created(6)
	if m := s.watchStream.next(); m.GetWatchId() != 6 || len(m.GetEvents()) != 1 {
		t.Fatalf("got %v", m)
	}
	for range 3 {
		if m := s.watchStream.next(); m.GetWatchId() != 6 || len(m.GetEvents()) != 0 || m.GetHeader().GetRevision() != int64(r.h.Now()) {
			t.Fatalf("got %v", m)
		}
	}
}

// A watch that starts in the future has no pending events, like others, but is not at their
// position. It gets nothing below its start revision.
func TestAWatchInTheFutureIsNotReadWithOthers(t *testing.T) {
	r := startWatches(t, rigOptions{shards: cachetest.Map(1, nil, "here")})
	s := together(r, 2)
	from := int64(r.h.Now()) + 5
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), WatchId: 6, StartRevision: from})
	s.created(6)
	s.next[6] = from
	for int64(r.h.Now()) < from+2 {
		s.upTo(r.put())
	}
}
