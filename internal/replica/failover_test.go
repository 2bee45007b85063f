package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/internal/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a source with a history of all revisions up to head. It can be disabled and enabled.
type script struct {
	name  string
	world *world

	mu     sync.Mutex
	err    error         // guarded by mu; the reason why the source fails
	mute   bool          // guarded by mu; the source begins, but sends nothing
	young  bool          // guarded by mu; the age of its data is still low
	skips  bool          // guarded by mu; the source skips the first requested revision
	leaps  bool          // guarded by mu; the source begins with a difference
	slow   time.Duration // guarded by mu; the time until the source is ready
	floor  kv.Revision   // guarded by mu
	change chan struct{} // guarded by mu; closed when one of the fields above changes
	opened int           // guarded by mu
	wishes []kv.Revision // guarded by mu; the requested revisions
}

// world is the common history of all sources, with a new revision every 10 ms.
type world struct{ began time.Time }

func (w *world) head() kv.Revision {
	return 100 + kv.Revision(time.Since(w.began)/(10*time.Millisecond))
}

func (s *script) set(f func(*script)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
	close(s.change)
	s.change = make(chan struct{})
}

// asked returns the number of follow requests to the source.
func (s *script) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

func (s *script) fail(err error) { s.set(func(s *script) { s.err = err }) }

func (s *script) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		s.mu.Lock()
		err, mute, slow, floor, change := s.err, s.mute, s.slow, s.floor, s.change
		skips, leaps := s.skips, s.leaps
		s.opened++
		s.mu.Unlock()
		from := req.From
		switch {
		case err != nil:
			yield(kv.Update{}, err)
			return
		case from > 0 && from < floor:
			yield(kv.Update{}, &kv.CompactedError{Requested: from, Floor: floor})
			return
		case from == 0:
			from = s.world.head() + 1
		case skips:
			from++
		}
		if !yield(kv.Update{Kind: kv.UpdateBegin, Revision: from - 1, Floor: from, Leap: leaps}, nil) {
			return
		}
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return
		}
		if !yield(kv.Update{Kind: kv.UpdateReady}, nil) {
			return
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		defer req.Want.Serve(from-1, func(revision kv.Revision) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.wishes = append(s.wishes, revision)
		})()
		for {
			for ; !mute && from <= s.world.head(); from++ {
				if !yield(kv.Update{Kind: kv.UpdateBatch, Revision: from, Batch: kv.Batch{Revision: from}}, nil) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-change:
				s.mu.Lock()
				err, change = s.err, s.change
				s.mu.Unlock()
				if err != nil {
					yield(kv.Update{}, err)
					return
				}
			case <-tick.C:
			}
		}
	}
}

func (s *script) Probe(context.Context, kv.Range, uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mute && !s.young {
		return ErrStale
	}
	return s.err
}

// bench is a Failover over three sources, the last being etcd.
type bench struct {
	f                   *Failover
	owner, second, etcd *script
	warm                []Candidate
	candidates          atomic.Pointer[[]Candidate]
	mu                  sync.Mutex
	next                kv.Revision   // guarded by mu
	came                time.Time     // guarded by mu; the time of the last batch
	pause               time.Duration // guarded by mu; the longest time between two batches
	want                *kv.Demand
	bad                 error // guarded by mu
	ended               error // guarded by mu
	stop                func()
}

func newBench(from kv.Revision, change func(*bench)) *bench {
	w := &world{began: time.Now()}
	source := func(name string) *script { return &script{name: name, world: w, change: make(chan struct{})} }
	b := &bench{owner: source("owner"), second: source("second"), etcd: source(Etcd), next: from, came: time.Now(), want: new(kv.Demand)}
	b.candidates.Store(&[]Candidate{{Name: "owner", Source: b.owner}, {Name: "second", Source: b.second}, {Name: Etcd, Direct: true, Source: b.etcd}})
	b.f = &Failover{
		Candidates: func() []Candidate { return *b.candidates.Load() },
		Warm:       func() []Candidate { return b.warm },
		Logger:     slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(b)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for u, err := range b.f.Follow(ctx, kv.FollowRequest{From: from, Want: b.want}) {
			b.mu.Lock()
			switch {
			case err != nil:
				b.ended = err
			case u.Kind == kv.UpdateBegin:
				b.next = u.Revision + 1
			case u.Kind == kv.UpdateBatch && u.Revision > b.next: // the cache drops batches that it has
				b.bad = fmt.Errorf("got revision %d, want %d", u.Revision, b.next)
			case u.Kind == kv.UpdateBatch && u.Revision == b.next:
				b.next++
				b.pause, b.came = max(b.pause, time.Since(b.came)), time.Now()
			}
			b.mu.Unlock()
		}
	}()
	b.stop = func() { cancel(); <-done }
	return b
}

func (b *bench) check(t *testing.T, source string) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bad != nil {
		t.Error(b.bad)
	}
	if name, direct := b.f.Current(); name != source || direct != (source == Etcd) {
		t.Errorf("follows %q, want %q", name, source)
	}
	if head := b.etcd.world.head(); source != "" && b.next < head {
		t.Errorf("has all revisions below %d, the newest revision is %d", b.next, head)
	}
}

var errGone = errors.New("connection lost")

func TestFailover(t *testing.T) {
	notReady := &kv.UnavailableError{Why: kv.NotReady, Detail: "loading"}
	for name, run := range map[string]func(*testing.T){
		"the owner is lost, the next takes over, and the owner again when it is back": func(t *testing.T) {
			b := newBench(101, nil)
			defer b.stop()
			time.Sleep(time.Second)
			b.check(t, "owner")
			b.owner.fail(errGone)
			time.Sleep(100 * time.Millisecond)
			b.check(t, "second")
			b.second.fail(errGone)
			time.Sleep(100 * time.Millisecond)
			b.check(t, Etcd)
			b.owner.fail(nil)
			time.Sleep(time.Second)
			b.check(t, "owner")
		},
		"Scout probes the owner at once": func(t *testing.T) {
			b := newBench(101, nil)
			defer b.stop()
			time.Sleep(time.Second)
			b.owner.fail(errGone)
			time.Sleep(250 * time.Millisecond) // the next scheduled probe is at 1.8 s
			b.owner.fail(nil)
			time.Sleep(50 * time.Millisecond)
			b.check(t, "second")
			b.f.Scout()
			time.Sleep(50 * time.Millisecond)
			b.check(t, "owner")
		},
		"a better source replaces the current one without a pause": func(t *testing.T) {
			b := newBench(101, func(b *bench) { b.owner.err, b.second.err = errGone, errGone })
			defer b.stop()
			time.Sleep(time.Second)
			b.check(t, Etcd)
			b.owner.set(func(s *script) { s.err, s.slow = nil, 500*time.Millisecond })
			time.Sleep(400 * time.Millisecond)
			b.check(t, Etcd) // the owner stays the source while the better one prepares
			time.Sleep(600 * time.Millisecond)
			b.check(t, "owner")
			if b.pause > 20*time.Millisecond {
				t.Errorf("a pause of %v between batches", b.pause)
			}
		},
		"one that does not get ready changes nothing": func(t *testing.T) {
			b := newBench(101, func(b *bench) { b.owner.err = errGone })
			defer b.stop()
			time.Sleep(time.Second)
			b.owner.set(func(s *script) { s.err, s.slow = nil, time.Hour })
			time.Sleep(10 * readyPatience)
			b.check(t, "second")
			if b.pause > 20*time.Millisecond {
				t.Errorf("a pause of %v between batches", b.pause)
			}
			if n := b.owner.asked(); n < 3 {
				t.Errorf("the owner got %d requests, want at least 3", n)
			}
		},
		"another source is followed if the current one is lost meanwhile": func(t *testing.T) {
			b := newBench(101, func(b *bench) { b.owner.err = errGone })
			defer b.stop()
			time.Sleep(time.Second)
			b.owner.set(func(s *script) { s.err, s.slow = nil, time.Hour })
			time.Sleep(readyPatience / 2)
			b.owner.set(func(s *script) { s.err, s.slow = errGone, 0 })
			b.second.fail(errGone)
			time.Sleep(100 * time.Millisecond)
			b.check(t, Etcd)
		},
		"a node without the shard is left when another source is ready": func(t *testing.T) {
			b := newBench(101, nil)
			defer b.stop()
			time.Sleep(time.Second)
			b.etcd.set(func(s *script) { s.slow = 500 * time.Millisecond })
			b.candidates.Store(&[]Candidate{{Name: Etcd, Direct: true, Source: b.etcd}})
			time.Sleep(400 * time.Millisecond)
			b.check(t, "owner")
			time.Sleep(600 * time.Millisecond)
			b.check(t, Etcd)
			if b.pause > 20*time.Millisecond {
				t.Errorf("a pause of %v between batches", b.pause)
			}
		},
		"a node that is not the owner does not prefer etcd to a node": func(t *testing.T) {
			b := newBench(101, func(b *bench) { b.owner.err = errGone })
			b.candidates.Store(&[]Candidate{{Name: "owner", Source: b.owner}, {Name: Etcd, Direct: true, Source: b.etcd}, {Name: "second", Source: b.second}})
			defer b.stop()
			time.Sleep(time.Second)
			b.check(t, Etcd)
			b.etcd.fail(errGone)
			time.Sleep(time.Second)
			b.check(t, "second")
			b.etcd.fail(nil)
			time.Sleep(time.Minute)
			b.check(t, "second")
			b.owner.fail(nil)
			time.Sleep(time.Second)
			b.check(t, "owner")
		},
		"the next source gets the pending requests": func(t *testing.T) {
			b := newBench(101, nil)
			defer b.stop()
			time.Sleep(time.Second)
			b.want.Ask(1 << 40)
			synctest.Wait()
			b.owner.fail(errGone)
			time.Sleep(time.Second)
			b.check(t, "second")
			b.owner.fail(nil)
			time.Sleep(time.Second)
			b.check(t, "owner")
			for s, want := range map[*script][]kv.Revision{b.owner: {1 << 40, 1 << 40}, b.second: {1 << 40}} {
				s.mu.Lock()
				if !slices.Equal(s.wishes, want) {
					t.Errorf("requested revisions at %s: %v, want %v", s.name, s.wishes, want)
				}
				s.mu.Unlock()
			}
		},
		"a source that begins after a gap is passed over": func(t *testing.T) {
			b := newBench(101, func(b *bench) { b.owner.skips = true })
			defer b.stop()
			time.Sleep(time.Second)
			b.check(t, "second")
		},
		"a source that begins after a gap relieves no other": func(t *testing.T) {
			b := newBench(101, func(b *bench) { b.owner.err = errGone })
			defer b.stop()
			time.Sleep(time.Second)
			b.owner.set(func(s *script) { s.err, s.skips = nil, true })
			time.Sleep(10 * scoutEvery)
			b.check(t, "second")
			if n := b.owner.asked(); n < 3 {
				t.Errorf("the owner got %d requests, want at least 3", n)
			}
		},
		"a source that begins with a difference that was not requested is passed over": func(t *testing.T) {
			b := newBench(101, func(b *bench) { b.owner.leaps = true })
			defer b.stop()
			time.Sleep(time.Second)
			b.check(t, "second")
		},
		"and relieves no other": func(t *testing.T) {
			b := newBench(101, func(b *bench) { b.owner.err = errGone })
			defer b.stop()
			time.Sleep(time.Second)
			b.owner.set(func(s *script) { s.err, s.leaps = nil, true })
			time.Sleep(10 * scoutEvery)
			b.check(t, "second")
		},
		"all sources are lost, and one returns": func(t *testing.T) {
			b := newBench(101, nil)
			defer b.stop()
			for _, s := range []*script{b.owner, b.second, b.etcd} {
				s.fail(errGone)
			}
			time.Sleep(time.Minute)
			b.check(t, "")
			b.second.fail(nil)
			time.Sleep(3 * time.Second)
			b.check(t, "second")
		},
		"a source that begins and brings nothing is passed over": func(t *testing.T) {
			b := newBench(101, func(b *bench) { b.owner.mute = true })
			defer b.stop()
			time.Sleep(time.Second)
			b.f.Change(ErrStale)
			time.Sleep(2 * time.Second)
			b.check(t, "second")
		},
		"a silent source with recent data is passed over, too": func(t *testing.T) {
			b := newBench(101, nil)
			defer b.stop()
			time.Sleep(time.Second)
			b.owner.set(func(s *script) { s.mute, s.young = true, true })
			b.second.fail(errGone)
			b.f.Change(ErrStale)
			time.Sleep(time.Second)
			b.check(t, Etcd)
			b.second.fail(nil)
			time.Sleep(time.Second)
			b.check(t, "second")
		},
		"another source has the compacted events": func(t *testing.T) {
			b := newBench(50, func(b *bench) { b.owner.floor = 90 })
			defer b.stop()
			time.Sleep(300 * time.Millisecond)
			b.check(t, "second")
		},
		"etcd is unavailable: it may have the events that the others have compacted": func(t *testing.T) {
			b := newBench(50, func(b *bench) { b.owner.floor, b.second.floor, b.etcd.err = 90, 90, errGone })
			defer b.stop()
			time.Sleep(time.Minute)
			b.check(t, "")
			if b.ended != nil {
				t.Fatal(b.ended)
			}
			b.etcd.fail(nil)
			time.Sleep(3 * longPause / 2) // the longest time without a probe
			synctest.Wait()
			if b.mu.Lock(); b.bad != nil || b.next < 6000 {
				t.Errorf("at revision %d: %v", b.next, b.bad)
			}
			b.mu.Unlock()
		},
		"all sources have compacted the events": func(t *testing.T) {
			b := newBench(50, func(b *bench) { b.owner.floor, b.second.floor, b.etcd.floor = 90, 80, 70 })
			defer b.stop()
			time.Sleep(time.Second)
			var gone *kv.CompactedError
			if b.check(t, ""); !errors.As(b.ended, &gone) || gone.Floor != 70 {
				t.Errorf("ended with %v", b.ended)
			}
		},
		"etcd has compacted it, another node's window has it": func(t *testing.T) {
			b := newBench(50, func(b *bench) {
				b.owner.err, b.second.err, b.etcd.floor = errGone, errGone, 90
				other := &script{name: "third", world: b.etcd.world, change: make(chan struct{})}
				b.warm = []Candidate{{Name: "third", Source: other}}
			})
			defer b.stop()
			time.Sleep(3 * time.Second)
			b.check(t, Etcd)
		},
		"etcd has compacted it, and another node that may have it is reached a moment later": func(t *testing.T) {
			var other *script
			b := newBench(50, func(b *bench) {
				b.owner.err, b.second.err, b.etcd.floor = errGone, errGone, 90
				other = &script{name: "third", world: b.etcd.world, change: make(chan struct{}), err: errGone}
				b.warm = []Candidate{{Name: "third", Source: other}}
			})
			defer b.stop()
			time.Sleep(rescuePatience / 2)
			other.fail(nil)
			time.Sleep(3 * time.Second)
			b.check(t, Etcd)
		},
		"a node that was just silent is not asked again": func(t *testing.T) {
			b := newBench(50, func(b *bench) {
				b.owner.err, b.second.err, b.etcd.floor = ErrSilent, errGone, 90
				b.warm = []Candidate{{Name: "owner", Source: b.owner}, {Name: "third", Source: b.second}}
			})
			defer b.stop()
			time.Sleep(rescuePatience / 2)
			if silent, away := b.owner.asked(), b.second.asked(); silent != 1 || away < 4 {
				t.Errorf("the silent node got %d requests, want 1, and the unreachable node %d, want at least 4", silent, away)
			}
		},
		"etcd has compacted it, and no other node is further": func(t *testing.T) {
			b := newBench(50, func(b *bench) {
				b.owner.err, b.second.err, b.etcd.floor = errGone, errGone, 90
				other := &script{name: "third", world: b.etcd.world, change: make(chan struct{}), mute: true}
				b.warm = []Candidate{{Name: "third", Source: other}}
			})
			defer b.stop()
			time.Sleep(2 * rescueWithin)
			var gone *kv.CompactedError
			if b.check(t, ""); !errors.As(b.ended, &gone) {
				t.Errorf("ended with %v", b.ended)
			}
		},
		"etcd has compacted it while the owner fell silent: the owner is not waited for when another node answers": func(t *testing.T) {
			b := newBench(50, func(b *bench) {
				b.owner.err, b.second.floor, b.etcd.floor = ErrSilent, 90, 90
				b.warm = []Candidate{{Name: "owner", Source: b.owner}, {Name: "second", Source: b.second}}
			})
			defer b.stop()
			time.Sleep(rescuePatience / 2)
			var gone *kv.CompactedError
			if b.check(t, ""); !errors.As(b.ended, &gone) {
				t.Errorf("ended with %v", b.ended)
			}
			asked := b.owner.asked()
			for range b.f.Follow(t.Context(), kv.FollowRequest{Held: func(func(*kv.KeyValue) bool) {}, HeldAt: 49}) {
				break
			}
			if b.owner.asked() != asked {
				t.Error("the silent owner got a request for the changes")
			}
		},
		"the wait for a silent owner is bounded": func(t *testing.T) {
			b := newBench(50, func(b *bench) {
				b.owner.err, b.second.err, b.etcd.floor = errGone, errGone, 90
				b.warm = []Candidate{{Name: "third", Source: b.owner}}
			})
			defer b.stop()
			time.Sleep(rescuePatience + 3*time.Second)
			var gone *kv.CompactedError
			if b.check(t, ""); !errors.As(b.ended, &gone) || gone.Floor != 90 {
				t.Errorf("ended with %v", b.ended)
			}
		},
		"an empty cache waits for a loading peer": func(t *testing.T) {
			b := newBench(0, func(b *bench) { b.owner.err = notReady })
			defer b.stop()
			time.Sleep(5 * time.Second)
			b.check(t, "")
			b.owner.fail(nil)
			time.Sleep(2 * time.Second)
			b.check(t, "owner")
			if b.etcd.asked() > 0 {
				t.Error("etcd got a request, want none while the peer loads")
			}
		},
		"the wait for a loading peer is bounded, then etcd is asked": func(t *testing.T) {
			b := newBench(0, func(b *bench) { b.owner.err, b.second.err = notReady, notReady })
			defer b.stop()
			time.Sleep(patience + 3*time.Second)
			b.check(t, Etcd)
		},
		"a node that is not ready is not waited for if a better one refuses": func(t *testing.T) {
			b := newBench(0, func(b *bench) {
				b.owner.err, b.second.err = &kv.InvalidError{Field: "key", Reason: "refused"}, &kv.NotHereError{}
			})
			defer b.stop()
			time.Sleep(100 * time.Millisecond)
			b.check(t, Etcd)
			if owner, second := b.owner.asked(), b.second.asked(); owner != 1 || second != 1 {
				t.Errorf("requests before the one to etcd: owner %d, second %d, want 1 each", owner, second)
			}
		},
		"state comes from a node that has it": func(t *testing.T) {
			b := newBench(0, func(b *bench) { b.warm = []Candidate{{Name: "second", Source: b.second}} })
			defer b.stop()
			time.Sleep(time.Second)
			b.check(t, "owner")
			if second, etcd := b.second.asked(), b.etcd.asked(); second != 1 || etcd != 0 {
				t.Errorf("requests: second %d, want 1, and etcd %d, want 0", second, etcd)
			}
		},
		"a state that is wrong is not taken, and events are": func(t *testing.T) {
			b := newBench(0, func(b *bench) {
				b.warm = []Candidate{{Name: "owner", Source: b.owner}, {Name: "second", Source: b.second}}
				b.f.Avoid = []string{"owner", "second"}
				b.etcd.slow = 3 * time.Second
			})
			defer b.stop()
			time.Sleep(2 * time.Second)
			if owner, second := b.owner.asked(), b.second.asked(); owner+second > 0 {
				t.Errorf("requests while the state arrives: owner %d, second %d, want none", owner, second)
			}
			time.Sleep(3 * time.Second)
			b.check(t, "owner")
			if n := b.etcd.asked(); n != 1 {
				t.Errorf("etcd got %d requests for its state, want 1", n)
			}
		},
		"a hung source is not asked again at once": func(t *testing.T) {
			b := newBench(101, nil)
			defer b.stop()
			time.Sleep(time.Second)
			b.owner.fail(ErrSilent)
			time.Sleep(time.Second)
			b.check(t, "second")
			if n := b.owner.asked(); n != 1 {
				t.Errorf("the hung owner got %d requests, want 1", n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, run) })
	}
}

// If all nodes are behind etcd's compact revision, they do not take state from each other: state is taken only
// from a node that is ahead.
func TestNoStateIsTakenFromANodeThatIsNotAhead(t *testing.T) {
	for held, want := range map[kv.Revision]int{100_000: 0, 50: 1} {
		synctest.Test(t, func(t *testing.T) {
			w := &world{began: time.Now()}
			peer := &script{name: "peer", world: w, change: make(chan struct{})}
			etcd := &script{name: Etcd, world: w, change: make(chan struct{})}
			taken := 0
			f := &Failover{
				Candidates: func() []Candidate { return []Candidate{{Name: Etcd, Direct: true, Source: etcd}} },
				Warm:       func() []Candidate { return []Candidate{{Name: "peer", Source: peer}} },
				Noticed: func(n Notice) {
					if n.What == StateTaken {
						taken++
					}
				},
				Logger: slog.New(slog.DiscardHandler),
			}
			req := kv.FollowRequest{Held: func(func(*kv.KeyValue) bool) {}, HeldAt: held}
			for u, err := range f.Follow(t.Context(), req) {
				if err != nil {
					t.Fatal(err)
				}
				if u.Kind == kv.UpdateBatch {
					break
				}
			}
			if taken != want {
				t.Errorf("holding all revisions up to %d: %d states taken from the peer, want %d", held, taken, want)
			}
		})
	}
}
