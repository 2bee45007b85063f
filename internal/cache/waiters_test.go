package cache

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wait"
)

func TestWakeAt(t *testing.T) {
	c := loaded(small(nil), 10)
	var there, soon, later wakes
	for _, x := range []struct {
		waker    *wakes
		revision kv.Revision
	}{{&there, 10}, {&soon, 15}, {&later, 20}} {
		watch(t, c, all, 11, x.waker).WakeAt(x.revision)
	}
	expect := func(when string, a, b, c int64) {
		t.Helper()
		if there.n.Load() != a || soon.n.Load() != b || later.n.Load() != c {
			t.Errorf("%s: woken %d %d %d", when, there.n.Load(), soon.n.Load(), later.n.Load())
		}
	}
	expect("at once", 1, 0, 0)
	c.advance(14)
	expect("at 14", 1, 0, 0)
	b := puts(15, "a")
	c.apply(&b)
	expect("at 15", 1, 1, 0)
	c.advance(30)
	expect("at 30", 1, 1, 1)
	if n := waitersOf(c); n != 0 {
		t.Errorf("%d waiters left", n)
	}
}

// A waiter that is woken for a revision finds that progress has reached it.
func TestWakeAtFindsProgress(t *testing.T) {
	c := loaded(small(nil), 10)
	wake := wait.NewBell()
	w := watch(t, c, kv.Single("a"), 11, wake)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for revision := kv.Revision(11); revision < 2000; revision++ {
			w.WakeAt(revision)
			select {
			case <-wake:
			case <-time.After(deadline):
				t.Errorf("lost wake-up at %d", revision)
				return
			}
			if _, _, err := w.Next(nil); err != nil || w.Progress() < revision {
				t.Errorf("woken for %d at progress %d (%v)", revision, w.Progress(), err)
				return
			}
		}
	}()
	for revision := kv.Revision(11); ; revision++ {
		select {
		case <-done:
			return
		default:
		}
		if revision%3 == 0 {
			b := puts(revision, "b")
			c.apply(&b)
		} else {
			c.advance(revision)
		}
	}
}

// Canceled waiters are removed, so that memory does not grow without a source.
func TestWaitersDoNotGrow(t *testing.T) {
	c := loaded(small(nil), 10)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the client has disconnected")
	done := make(chan error, 100)
	for i := range cap(done) {
		go func() { done <- c.WaitProgress(ctx, kv.Revision(100+i)) }()
	}
	testkit.Eventually(t, "all wait", func() bool { return waitersOf(c) == cap(done) })
	cancel(cause)
	for range cap(done) {
		if err := <-done; !errors.Is(err, cause) {
			t.Errorf("%v", err)
		}
	}
	if n := waitersOf(c); n != 0 {
		t.Errorf("%d waiters after all were cancelled", n)
	}

	w := watch(t, c, all, 11, &wakes{})
	for range 1000 {
		w.WakeAt(50)
		w.WakeAt(60)
	}
	if n := waitersOf(c); n != 2 {
		t.Errorf("%d waiters of one watcher for two revisions", n)
	}
	c.advance(55)
	if n := waitersOf(c); n != 1 {
		t.Errorf("%d waiters at 55", n)
	}
	w.WakeAt(70)
	w.Close()
	w.Close()
	w.WakeAt(80)
	if n := waitersOf(c); n != 0 {
		t.Errorf("%d waiters of a closed watcher", n)
	}
}

// requested returns the revisions that a source is asked for.
func requested(req kv.FollowRequest) <-chan kv.Revision {
	want := make(chan kv.Revision, 100)
	req.Want.Serve(req.From-1, func(revision kv.Revision) { want <- revision })
	return want
}

// The source gets each request at once. The next source gets the unanswered requests.
func TestDemand(t *testing.T) {
	s := newScript()
	c := New(small(s))
	run(t, c)
	want := requested(s.request(t))
	s.play(begin(10, 11), ready())
	<-c.Ready() // to wait for the revision would request it
	w := watch(t, c, all, 11, &wakes{})
	for _, revision := range []kv.Revision{20, 50, 30} {
		w.WakeAt(revision)
		if got := <-want; got != revision {
			t.Errorf("the source got a request for %d, want %d", got, revision)
		}
	}
	want = requested(s.lose(t, errLost))
	if got := <-want; got != 20 {
		t.Errorf("the next source got a request for %d, want the lowest revision", got)
	}
	s.play(begin(10, 0), ready(), progress(35))
	testkit.Eventually(t, "the source is reminded", func() bool {
		s.play(progress(35))
		select {
		case got := <-want:
			return got == 50
		default:
			return false
		}
	})
	w.Close()
	follows(t, c, 35)
	if !c.Observe(time.Now(), 60) || c.Observe(time.Now(), 35) {
		t.Error("at progress 35, want Observe to report that 60 is missing, and 35 is not")
	}
}

// A merged window has requested its revision before, and now waits for its shards without a
// request. The next source gets a request for that revision.
func TestTheNextSourceIsAskedForAnIdleWaiter(t *testing.T) {
	s := newScript()
	c := New(small(s))
	run(t, c)
	s.request(t)
	s.play(begin(10, 11), ready())
	follows(t, c, 10)
	defer c.NotifyAt(11, &wakes{})()
	c.Demand(30)
	select {
	case got := <-requested(s.lose(t, errLost)):
		if got != 11 {
			t.Errorf("the next source got a request for %d, want the lowest revision", got)
		}
	case <-time.After(deadline):
		t.Error("the next source got no request")
	}
}

// WaitProgress, At and WakeAt send a request to the source, unless the revision is reached.
// NotifyAt sends none.
func TestWaitersRequestProgressFromTheSource(t *testing.T) {
	c := loaded(small(nil), 10)
	want := requested(kv.FollowRequest{Want: c.want.Load()})
	asked := func() kv.Revision {
		select {
		case revision := <-want:
			return revision
		default:
			return 0
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := watch(t, c, all, 11, &wakes{})
	w.NotifyAt(20)
	if got := asked(); got != 0 {
		t.Errorf("NotifyAt requests %d", got)
	}
	c.demandAgain()
	if got := asked(); got != 0 {
		t.Errorf("a reminder for NotifyAt requests %d", got)
	}
	w.WakeAt(20)
	if got := asked(); got != 20 {
		t.Errorf("WakeAt requests %d", got)
	}
	w.NotifyAt(20)
	c.demandAgain()
	if got := asked(); got != 20 {
		t.Errorf("a reminder for WakeAt requests %d", got)
	}
	w.WakeAt(10)
	if got := asked(); got != 0 {
		t.Errorf("WakeAt of a reached revision requests %d", got)
	}
	w.Close()
	for name, wait := range map[string]func(context.Context){
		"WaitProgress": func(ctx context.Context) { _ = c.WaitProgress(ctx, 30) },
		"At":           func(ctx context.Context) { _, _ = c.At(ctx, 30) },
	} {
		done := make(chan struct{})
		go func() { defer close(done); wait(ctx) }()
		select {
		case got := <-want:
			if got != 30 {
				t.Errorf("%s requests %d", name, got)
			}
		case <-time.After(deadline):
			t.Errorf("%s sends no request", name)
		}
		cancel()
		<-done
		ctx, cancel = context.WithCancel(t.Context())
	}
	cancel()
}

// Waiting for a cache that is still being loaded blocks, and does not spin.
func TestWaitBeforeLoaded(t *testing.T) {
	c := New(small(nil))
	var w wakes
	c.WakeAt(0, &w)
	if w.n.Load() != 0 {
		t.Fatal("woken before the state is loaded")
	}
	c.load(keytree.New(), &Past{Floor: 1, DeltaFloor: 1})
	if w.n.Load() != 1 {
		t.Error("not woken once the state is loaded")
	}
}

// A caller without a watcher can wait in the same way, and cancel the wait.
func TestWakeAtWithoutWatcher(t *testing.T) {
	c := loaded(small(nil), 10)
	var there, taken, left wakes
	c.WakeAt(10, &there)
	forget := c.WakeAt(20, &taken)
	c.WakeAt(20, &left)
	if reached, retired := c.Reached(20); reached || retired {
		t.Errorf("at 10: reached 20 %t, retired %t", reached, retired)
	}
	forget()
	c.advance(20)
	if there.n.Load() != 1 || taken.n.Load() != 0 || left.n.Load() != 1 {
		t.Errorf("woken %d %d %d, want 1 0 1", there.n.Load(), taken.n.Load(), left.n.Load())
	}
	forget() // may be called after the wakeup
	c.WakeAt(30, &left)
	c.retire()
	if reached, retired := c.Reached(30); !reached || !retired || left.n.Load() != 2 {
		t.Errorf("retired: reached %t, retired %t, woken %d times", reached, retired, left.n.Load())
	}
	if n := waitersOf(c); n != 0 {
		t.Errorf("%d waiters left", n)
	}
}

// A source reports progress directly once the state is loaded.
func TestDirectProgress(t *testing.T) {
	s := newScript()
	c := New(small(s))
	run(t, c)
	req := s.request(t)
	if req.Progress(5) {
		t.Error("accepted before the state is loaded")
	}
	s.play(begin(10, 11), ready(), progress(11))
	follows(t, c, 11)
	var w wakes
	c.WakeAt(20, &w)
	if !req.Progress(20) || c.Progress() != 20 || w.n.Load() != 1 {
		t.Errorf("at %d, woken %d times", c.Progress(), w.n.Load())
	}
}
