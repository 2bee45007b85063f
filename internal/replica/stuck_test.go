package replica

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// The owner is cut from etcd, which has compacted the later events, so that it has the same state as the follower.
// The follower continues with the next source, which has the changes, and does not restart at its own revision.
func TestAStateThatTheFollowerHasIsPassedOver(t *testing.T) {
	for _, c := range []struct {
		held kv.Revision
		want string
	}{{29, "begin 30, state, ready"}, {30, "begin 35, state, ready, batch 36"}, {31, "begin 35, state, ready, batch 36"}} {
		inquire(t, 0, func(x *asking) {
			x.req.Held, x.req.HeldAt = func(func(*kv.KeyValue) bool) {}, c.held
			x.a.answers = []answer{{[]kv.Update{begins(30), isState, isReady}, nil}}
			x.b.answers = []answer{{[]kv.Update{leaps(35), isState, isReady, batch(36)}, nil}}
		}, func(x *asking) {
			time.Sleep(time.Second)
			x.was(t, "updates", x.consumer(), c.want)
		})
	}
}

// A follower with a state waits only briefly for a node that does not read etcd itself, because its watches get no
// events meanwhile. An empty follower waits much longer.
func TestAFollowerWithAStateWaitsBrieflyForANodeThatIsNotReady(t *testing.T) {
	inquire(t, 0, func(x *asking) {
		x.req.Held = func(func(*kv.KeyValue) bool) {}
		x.a.answers = []answer{{nil, &kv.UnavailableError{Why: kv.NotReady}}}
	}, func(x *asking) {
		time.Sleep(rescuePatience / 2)
		if x.b.requests() > 0 {
			t.Error("the next source got a request before the wait for the node had ended")
		}
		time.Sleep(rescuePatience/2 + 2*longPause)
		if x.b.requests() == 0 {
			t.Error("the next source got no request after the wait")
		}
	})
}

// leaveStale marks the source a as stale after its first batch, of revision 11.
func leaveStale(x *asking) {
	synctest.Wait()
	x.f.Change(ErrStale)
}

// When a source has fallen behind etcd, its other followers have the same events. They get repeated requests for
// more, and none of them is followed until it has more.
func TestNodesThatAreAsFarAsAStaleOneAreNotFollowed(t *testing.T) {
	for name, level := range map[string][]kv.Update{
		"it reports its progress": {begins(11), isReady, progress(11)},
		"it reports nothing":      {begins(11), isReady},
	} {
		t.Run(name, func(t *testing.T) {
			inquire(t, 11, func(x *asking) {
				x.a.answers = []answer{{[]kv.Update{begins(10), isReady, batch(11)}, nil}}
				x.b.answers = []answer{{level, nil}, {level, nil}, {[]kv.Update{begins(11), isReady, batch(12), progress(12)}, nil}}
			}, func(x *asking) {
				leaveStale(x)
				time.Sleep(hungFor / 2)
				x.was(t, "updates", x.consumer(), "batch 11, batch 12, progress 12")
				x.was(t, "notices", x.whats(), "source_lost a 11;followed b 11;")
				x.was(t, "requests to the stale source", x.a.from(), "11")
			})
		})
	}
}

// A stale source is alive but lacks events. If the other nodes have evicted these events, the follower ends with a
// compaction error and does not wait for the source.
func TestAStaleSourceIsNotWaitedForWhenTheOthersHaveCompacted(t *testing.T) {
	inquire(t, 11, func(x *asking) {
		x.a.answers = []answer{{[]kv.Update{begins(10), isReady, batch(11)}, nil}}
		x.b.answers = []answer{{nil, &kv.CompactedError{Requested: 12, Floor: 20}}}
		x.third.answers = []answer{{nil, &kv.NotHereError{Shard: 7}}}
	}, func(x *asking) {
		leaveStale(x)
		time.Sleep(hungFor / 2)
		if !errors.As(x.outcome(), new(*kv.CompactedError)) {
			t.Errorf("ended with %v", x.outcome())
		}
	})
}

// A node is cut from etcd, which has compacted the missing events. It takes the changes from another node, which
// reads etcd, and does not wait until it reaches etcd again.
func TestANodeCutFromEtcdTakesTheChangesFromAnotherNode(t *testing.T) {
	gone := &kv.CompactedError{Requested: 12, Floor: 20}
	for name, c := range map[string]struct{ etcd, b []answer }{
		"its watch stands still": {[]answer{{[]kv.Update{begins(10), isReady, batch(11)}, nil}}, []answer{{nil, gone}, {nil, gone}, {}}},
		"its watch breaks":       {[]answer{{[]kv.Update{begins(10), isReady, batch(11)}, errGone}, {nil, errGone}}, []answer{{nil, gone}, {}}},
	} {
		t.Run(name, func(t *testing.T) {
			inquire(t, 11, func(x *asking) {
				x.a.answers, x.b.answers = c.etcd, c.b
				x.third.answers = []answer{{nil, gone}, {[]kv.Update{leaps(25), isState, isReady, batch(26)}, nil}}
				began := time.Now()
				x.f.Candidates = func() []Candidate {
					if time.Since(began) < time.Second {
						return []Candidate{{Name: Etcd, Direct: true, Source: x.a}}
					}
					return []Candidate{{Name: "b", Source: x.b}, {Name: Etcd, Direct: true, Away: true, Source: x.a}}
				}
			}, func(x *asking) {
				time.Sleep(5 * time.Second)
				x.was(t, "updates", x.consumer(), "batch 11, begin 25, state, ready, batch 26")
				if x.outcome() != nil {
					t.Error(x.outcome())
				}
			})
		})
	}
}
