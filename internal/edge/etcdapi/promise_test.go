package etcdapi_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// gatedClock is a router.Clock that reports when it has read etcd's revision, and returns the
// revision when the test releases it.
type gatedClock struct {
	*cachetest.Script
	armed         atomic.Bool // the next read is split into these two steps
	read, deliver chan struct{}
}

func (c *gatedClock) Revision(ctx context.Context) (kv.Revision, error) {
	revision, err := c.Script.Revision(ctx)
	if c.armed.CompareAndSwap(true, false) {
		c.read <- struct{}{}
		<-c.deliver
	}
	return revision, err
}

// startGated starts a node for which the test controls the reads of etcd's revision.
func startGated(t *testing.T) (*watchRig, *gatedClock) {
	c := &gatedClock{read: make(chan struct{}), deliver: make(chan struct{})}
	return startWatches(t, rigOptions{clock: func(h *cachetest.Script) router.Clock { c.Script = h; return c }}), c
}

// The answer to a progress request is not below any event sent on the stream, even an event written
// after etcd's revision was read: a client resumes all its watches after the answered revision.
func TestProgressAnswerIsNotBelowAnEventThatOvertookIt(t *testing.T) {
	r, clock := startGated(t)
	r.h.Commit(cachetest.Put("m", "x")) // otherwise first would be in the future
	s := r.watch()
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
	s.created(0)
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("z"), StartRevision: first})
	s.created(1)
	before := r.h.Now()
	r.node.Gate(3).Limit(before) // the shard of z
	clock.armed.Store(true)
	s.requestProgress()
	<-clock.read // etcd has returned the revision before
	sent := r.h.Commit(cachetest.Put("a", "x"))
	if m := s.next(); m.GetWatchId() != 0 || m.GetHeader().GetRevision() != int64(sent) {
		t.Fatalf("got %v", m)
	}
	clock.deliver <- struct{}{}
	// The answer must wait for the other shard. A wrong answer is sent before the
	// event of this write.
	again := r.h.Commit(cachetest.Put("a", "y"))
	for event := false; !event; {
		m := s.next()
		if event = len(m.GetEvents()) > 0; !event && m.GetHeader().GetRevision() < int64(sent) {
			t.Fatalf("progress %d, although revision %d had been sent", m.GetHeader().GetRevision(), sent)
		}
	}
	r.node.Gate(3).Limit(0)
	if m := s.next(); m.GetWatchId() != -1 || m.GetHeader().GetRevision() < int64(again) {
		t.Errorf("got %v, want progress from %d on", m, again)
	}
}

// As with etcd, progress is not answered while a watch of the stream starts in the future: the
// answer would cover revisions before the start of this watch.
func TestProgressIsNotAnsweredForAWatchInTheFuture(t *testing.T) {
	r, clock := startGated(t)
	s := r.watch()
	r.h.Commit(cachetest.Put("m", "x")) // otherwise first would be in the future
	s.create(since(first))
	s.created(0)
	s.next()
	start := r.h.Now() + 3
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("z"), StartRevision: int64(start)})
	s.created(1)
	clock.armed.Store(true)
	s.requestProgress()
	<-clock.read
	clock.deliver <- struct{}{}
	s.cancel(77) // unknown ID: no answer
	for r.h.Now() < start {
		r.h.Commit(cachetest.Put("a", "x"))
		if m := s.next(); m.GetWatchId() != 0 || len(m.GetEvents()) != 1 {
			t.Fatalf("got %v, want an event: the watch on z begins at %d", m, start)
		}
	}
	s.requestProgress()
	if m := s.next(); m.GetWatchId() != -1 || m.GetHeader().GetRevision() != int64(start) {
		t.Errorf("got %v, want progress of %d", m, start)
	}
}

// The watches of a caller are counted by identity, over all its streams. Watches that are refused,
// cancelled, ended by the server or closed with their stream no longer count.
func TestWatchesThatHaveEndedMakeRoomForTheirCaller(t *testing.T) {
	const most = 3
	file := filepath.Join(t.TempDir(), "policy.yaml")
	text := "limits: {watches: 3}\nroles: {r: [{verbs: [read, watch], all: true}]}\nidentities: [{match: [anonymous], roles: [r]}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := authz.Defaults()
	c.File = file
	policy, err := authz.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := startWatches(t, rigOptions{api: func(c *etcdapi.Config) { c.Access, c.MaxWatchesPerStream = policy, 2 }})
	// room fails unless the caller can open exactly want more watches.
	room := func(what string, want int) {
		t.Helper()
		for got := 0; ; got++ {
			s := r.watch()
			s.create(since(first))
			m := s.next()
			if m.GetCanceled() != (got >= want) || got > most {
				t.Fatalf("%s: watch %d of %d: %v", what, got+1, want, m)
			}
			if m.GetCanceled() {
				if !strings.Contains(m.GetCancelReason(), "watches") {
					t.Errorf("%s: %v", what, m)
				}
				break
			}
			defer s.leave(r)
		}
	}
	func() { room("at first", most) }()
	s := r.watch()
	for id := range int64(2) {
		s.create(since(first))
		s.created(id)
	}
	func() { room("beside two", most-2) }()
	for range 5 {
		s.create(since(first))
		if m := s.next(); !m.GetCanceled() {
			t.Fatalf("a watch beyond the limit: %v", m)
		}
	}
	func() { room("after a stream was full", most-2) }()
	s.cancel(0)
	s.canceled(0)
	func() { room("after a cancel", most-1) }()
	for range 5 {
		twin := since(first)
		twin.WatchId = 1
		s.create(twin)
		if m := s.next(); !m.GetCanceled() {
			t.Fatalf("a watch with the ID of another: %v", m)
		}
	}
	func() { room("after IDs were taken", most-1) }()
	for range 2 {
		r.h.Commit(cachetest.Put("a", "x"))
		s.next()
	}
	r.etcd.compact(r.h.Now())
	s.create(since(first)) // compacted: the watch is created, then cancelled
	s.created(2)
	if m := s.canceled(2); m.GetCompactRevision() == 0 {
		t.Fatalf("got %v", m)
	}
	r.etcd.compact(0)
	func() { room("after one was compacted", most-1) }()
	s.leave(r)
	func() { room("after the stream was left", most) }()
}

// leave ends the stream, and waits until the node has none of its watches.
func (s *watchStream) leave(r *watchRig) {
	s.tb.Helper()
	before := r.api.Watches()
	s.end()
	for end := time.Now().Add(deadline); r.api.Watches() >= before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.tb.Fatal("the node keeps the watches of a closed stream")
		}
	}
}
