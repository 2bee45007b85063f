package etcdapi_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// slowClock is a router.Clock that takes up to a millisecond, like etcd, and that a test can stop.
type slowClock struct {
	*cachetest.Script
	gate  sync.RWMutex
	calls atomic.Int64
}

func (c *slowClock) Revision(ctx context.Context) (kv.Revision, error) {
	c.calls.Add(1)
	c.gate.RLock()
	defer c.gate.RUnlock()
	revision, err := c.Script.Revision(ctx)
	time.Sleep(rand.N(time.Millisecond)) // simulates the latency of etcd
	return revision, err
}

// startSlow starts a node whose etcd returns its revision with a delay.
func startSlow(t *testing.T) (*watchRig, *slowClock) {
	c := new(slowClock)
	return startWatches(t, rigOptions{clock: func(h *cachetest.Script) router.Clock { c.Script = h; return c }}), c
}

// cancelRounds is the number of races between a cancel and a progress request.
const cancelRounds = 300

// A client resumes its watches after the revision of the last progress answer. So an answer that
// ignores a cancelled watch must follow the answer to the cancel. Before that, all events up to its
// revision must have been sent.
func TestProgressAnswerFollowsTheAnswerToACancel(t *testing.T) {
	r, _ := startSlow(t)
	s := r.watch()
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("b")}) // keeps progress requests answered
	s.created(0)
	for round := range cancelRounds {
		s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a")})
		id := s.next().GetWatchId()
		written := int64(r.h.Commit(cachetest.Put("a", "x")))
		s.cancel(id)
		s.requestProgress()
		seen, cancelled := false, false
		for answered := false; !answered || !cancelled; {
			switch m := s.next(); {
			case m.GetCanceled() && m.GetWatchId() == id:
				cancelled = true
			case len(m.GetEvents()) > 0 && m.GetWatchId() == id:
				if seen = true; cancelled {
					t.Fatalf("round %d: an event after the answer to the cancel: %v", round, m)
				}
			case m.GetWatchId() == -1:
				if answered = true; !cancelled {
					t.Fatalf("round %d: progress %d before the answer to the cancel; event %d sent: %v", round, m.GetHeader().GetRevision(), written, seen)
				}
			default:
				t.Fatalf("round %d: got %v", round, m)
			}
		}
	}
}

// A cancel that follows a create waits until the watch is open, and a progress answer waits for
// both.
func TestProgressAnswerFollowsACancelThatWaitsItsTurn(t *testing.T) {
	r, clock := startSlow(t)
	s := r.watch()
	s.create(since(first))
	s.created(0)
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("z"), StartRevision: first})
	s.created(1)
	clock.gate.Lock()
	s.create(whole()) // starts at etcd's revision, which is not known yet
	s.cancel(1)
	s.requestProgress()
	r.h.Commit(cachetest.Put("a", "1"))
	if m := s.next(); m.GetWatchId() != 0 || text(m) != "p:a=1" {
		t.Fatalf("got %v", m)
	}
	clock.gate.Unlock()
	s.created(2)
	s.canceled(1)
	if m := s.next(); m.GetWatchId() != -1 || m.GetHeader().GetRevision() != int64(r.h.Now()) {
		t.Fatalf("got %v", m)
	}
}

// A cancel and a refusal are answered without etcd. Their headers carry the newest revision known
// to the node, which is not below any sent revision.
func TestCancelIsAnsweredWithoutEtcd(t *testing.T) {
	r, clock := startSlow(t)
	s := r.watch()
	s.create(since(first))
	s.created(0)
	r.h.Commit(cachetest.Put("a", "1"))
	sent := s.next().GetHeader().GetRevision()
	before := clock.calls.Load()
	s.cancel(0)
	if m := s.canceled(0); m.GetHeader().GetRevision() < sent {
		t.Errorf("header revision %d, although %d had been sent", m.GetHeader().GetRevision(), sent)
	}
	s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")})
	s.refused(emptyRange)
	if n := clock.calls.Load() - before; n != 0 {
		t.Errorf("etcd was asked %d times", n)
	}
}

// A cancelled watch does not count against the limit of watches.
func TestCancelledWatchMakesRoom(t *testing.T) {
	r := startWatches(t, rigOptions{api: func(c *etcdapi.Config) { c.MaxWatchesPerStream = 2 }})
	s := r.watch()
	s.create(since(first))
	s.created(0)
	for id := int64(1); id < 10; id++ {
		s.create(since(first))
		s.created(id)
		s.create(since(first))
		if m := s.next(); !m.GetCanceled() || m.GetWatchId() != -1 {
			t.Fatalf("a watch beyond the limit of two: %v", m)
		}
		if n := r.api.Watches(); n != 2 {
			t.Errorf("%d watches are open, want 2", n)
		}
		s.cancel(id)
		s.canceled(id)
		if n := r.api.Watches(); n != 1 {
			t.Errorf("%d watches are open after a cancel, want 1", n)
		}
	}
}
