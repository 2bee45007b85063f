package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// answer is the result of following a source: updates, then an error. Without an error, the source is silent until
// its consumer stops.
type answer struct {
	updates []kv.Update
	err     error
}

// oracle is a source with one answer for each follow request. The last answer is repeated.
type oracle struct {
	name    string
	answers []answer

	mu     sync.Mutex
	asked  []kv.FollowRequest // guarded by mu
	at     []time.Time        // guarded by mu; the times of the requests
	wishes []kv.Revision      // guarded by mu
}

func (o *oracle) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		o.mu.Lock()
		a := o.answers[min(len(o.asked), len(o.answers)-1)]
		o.asked, o.at = append(o.asked, req), append(o.at, time.Now())
		o.mu.Unlock()
		for _, u := range a.updates {
			if !yield(u, nil) {
				return
			}
		}
		if a.err != nil {
			yield(kv.Update{}, a.err)
			return
		}
		defer req.Want.Serve(req.From-1, func(r kv.Revision) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.wishes = append(o.wishes, r)
		})()
		<-ctx.Done()
	}
}

// from returns the first missing revision of each request, followed by a "d" where a difference was allowed.
func (o *oracle) from() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []string
	for _, r := range o.asked {
		s := fmt.Sprint(r.From)
		if r.AllowLeap {
			s += "d"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// requests returns the number of follow requests to the source.
func (o *oracle) requests() int { return len(o.times()) }

// times returns the times of the follow requests to the source.
func (o *oracle) times() []time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.at)
}

func (o *oracle) wished() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprint(o.wishes)
}

func begins(at kv.Revision) kv.Update { return kv.Update{Kind: kv.UpdateBegin, Revision: at} }
func leaps(at kv.Revision) kv.Update {
	return kv.Update{Kind: kv.UpdateBegin, Revision: at, Leap: true}
}

func batch(at kv.Revision) kv.Update {
	return kv.Update{Kind: kv.UpdateBatch, Revision: at, Batch: kv.Batch{Revision: at}}
}
func progress(at kv.Revision) kv.Update { return kv.Update{Kind: kv.UpdateProgress, Revision: at} }

var (
	isReady = kv.Update{Kind: kv.UpdateReady}
	isState = kv.Update{Kind: kv.UpdateState}
)

// asking is a Failover over oracles, with the updates of its consumer.
type asking struct {
	f        *Failover
	a, b     *oracle
	third    *oracle // may have the state or the window
	req      kv.FollowRequest
	want     *kv.Demand
	mu       sync.Mutex
	given    []string // guarded by mu
	notices  []Notice // guarded by mu
	most     int      // number of updates that the consumer takes; 0: all
	ended    error    // guarded by mu
	began    time.Time
	took     time.Duration
	returned chan struct{}
	cancel   context.CancelFunc
}

// inquire begins to follow on fake time; a is the best candidate.
func inquire(t *testing.T, from kv.Revision, change func(*asking), test func(*asking)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := &asking{
			a: &oracle{name: "a", answers: []answer{{}}}, b: &oracle{name: "b", answers: []answer{{}}}, third: &oracle{name: "third", answers: []answer{{err: errGone}}},
			returned: make(chan struct{}), want: new(kv.Demand),
		}
		x.req = kv.FollowRequest{From: from, Want: x.want}
		x.f = &Failover{
			Candidates: func() []Candidate { return []Candidate{{Name: "a", Source: x.a}, {Name: "b", Source: x.b}} },
			Warm:       func() []Candidate { return []Candidate{{Name: "third", Source: x.third}} },
			Noticed: func(n Notice) {
				x.mu.Lock()
				defer x.mu.Unlock()
				x.notices = append(x.notices, n)
			},
			Logger: slog.New(slog.DiscardHandler),
		}
		change(x)
		ctx, cancel := context.WithCancel(t.Context())
		x.cancel = cancel
		x.began = time.Now()
		go func() {
			defer close(x.returned)
			for u, err := range x.f.Follow(ctx, x.req) {
				x.mu.Lock()
				if err != nil {
					x.ended = err
				} else {
					x.given = append(x.given, words[u.Kind]+strings.TrimPrefix(fmt.Sprint(" ", int64(u.Revision)), "  0"))
				}
				enough := x.most > 0 && len(x.given) == x.most
				x.mu.Unlock()
				if enough {
					break
				}
			}
			x.took = time.Since(x.began)
		}()
		test(x)
		cancel()
		<-x.returned
	})
}

var words = map[kv.UpdateKind]string{
	kv.UpdateBegin: "begin", kv.UpdateState: "state", kv.UpdateReady: "ready", kv.UpdateBatch: "batch", kv.UpdateProgress: "progress",
}

func (x *asking) was(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func (x *asking) outcome() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ended
}

func (x *asking) consumer() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.ReplaceAll(strings.Join(x.given, ", "), " 0", "")
}

func (x *asking) whats() (out string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range x.notices {
		out += fmt.Sprintf("%s %s %d;", n.What.Label(), n.Source, n.Revision)
	}
	return out
}

// Each source gets a request for the revision after the last delivered one. The consumer sees one beginning,
// regardless of the sources.
func TestEachSourceContinuesAfterThePreviousOne(t *testing.T) {
	t.Run("after batches and progress", func(t *testing.T) {
		inquire(t, 11, func(x *asking) {
			x.a.answers = []answer{{[]kv.Update{begins(10), isReady, batch(11), batch(13), progress(15)}, errGone}, {nil, errGone}}
			x.b.answers = []answer{{[]kv.Update{begins(15), isReady, batch(14), batch(17)}, errGone}, {[]kv.Update{begins(17), isReady, progress(16)}, errGone}, {}}
		}, func(x *asking) {
			time.Sleep(time.Second)
			x.was(t, "updates of the consumer", x.consumer(), "batch 11, batch 13, progress 15, batch 14, batch 17, progress 16")
			x.was(t, "requests to the first source", x.a.from()[:8], "11 16 18")
			x.was(t, "requests to the second source", x.b.from(), "16 18 18")
			x.was(t, "notices", x.whats()[:34], "source_lost a 15;followed b 15;sou")
		})
	})
	t.Run("after a state", func(t *testing.T) {
		inquire(t, 0, func(x *asking) {
			x.a.answers = []answer{{[]kv.Update{begins(20), isState, isReady}, errGone}, {}}
		}, func(x *asking) {
			time.Sleep(time.Second)
			x.was(t, "updates of the consumer", x.consumer(), "begin 20, state, ready")
			x.was(t, "requests to the source", x.a.from(), "0 21")
		})
	})
	t.Run("after a state that was cut", func(t *testing.T) {
		inquire(t, 0, func(x *asking) {
			x.a.answers = []answer{{[]kv.Update{begins(20), isState}, errGone}, {[]kv.Update{begins(22), isState, isReady}, nil}}
			x.b.answers = []answer{{nil, errGone}}
		}, func(x *asking) {
			time.Sleep(time.Second)
			x.was(t, "updates of the consumer", x.consumer(), "begin 20, state, begin 22, state, ready")
			x.was(t, "requests to the source", x.a.from(), "0 0")
		})
	})
	t.Run("after the state of another node", func(t *testing.T) {
		inquire(t, 0, func(x *asking) {
			x.third.answers = []answer{{[]kv.Update{begins(30), isState, isReady, batch(31)}, nil}}
		}, func(x *asking) {
			time.Sleep(time.Second)
			x.was(t, "updates of the consumer", x.consumer(), "begin 30, state, ready")
			x.was(t, "requests to the node", x.third.from(), "0")
			x.was(t, "requests to the first candidate", x.a.from(), "31")
			x.was(t, "notices", x.whats(), "state_taken third 30;")
		})
	})
	t.Run("after a difference", func(t *testing.T) {
		inquire(t, 11, func(x *asking) {
			gone := &kv.CompactedError{Requested: 11, Floor: 20}
			x.a.answers = []answer{{nil, gone}, {}}
			x.b.answers = []answer{{nil, gone}}
			x.third.answers = []answer{{nil, gone}, {[]kv.Update{leaps(25), isState, isReady, batch(26)}, errGone}}
		}, func(x *asking) {
			time.Sleep(time.Second)
			x.was(t, "updates of the consumer", x.consumer(), "begin 25, state, ready, batch 26")
			x.was(t, "requests to the node", x.third.from(), "11 11d")
			x.was(t, "requests to the first candidate", x.a.from(), "11 27")
		})
	})
}

// The state of another node is rejected if it is not newer than the follower's own.
func TestAStateOfTheSameRevisionIsNotTaken(t *testing.T) {
	for _, c := range []struct {
		held kv.Revision
		want string
	}{{29, "begin 30, state, ready"}, {30, ""}, {31, ""}} {
		inquire(t, 0, func(x *asking) {
			x.req.Held, x.req.HeldAt = func(func(*kv.KeyValue) bool) {}, c.held
			x.third.answers = []answer{{[]kv.Update{begins(30), isState, isReady}, nil}}
		}, func(x *asking) {
			time.Sleep(time.Second)
			x.was(t, fmt.Sprint("held up to ", c.held), x.consumer(), c.want)
		})
	}
}

// After the consumer stops, it gets no more updates, and no other source gets a request.
func TestNoSourceIsAskedAfterTheConsumerStops(t *testing.T) {
	gone := &kv.CompactedError{Requested: 11, Floor: 20}
	for name, c := range map[string]struct {
		from   kv.Revision
		most   int
		change func(*asking)
		asked  int // requests to all sources
	}{
		"amid batches": {11, 2, func(x *asking) {
			x.a.answers = []answer{{[]kv.Update{begins(10), isReady, batch(11), batch(12), batch(13)}, nil}}
		}, 1},
		"amid another node's state": {0, 1, func(x *asking) {
			x.third.answers = []answer{{[]kv.Update{begins(30), isState, isReady}, nil}}
		}, 1},
		"amid a difference": {11, 1, func(x *asking) {
			x.a.answers, x.b.answers = []answer{{nil, gone}}, []answer{{nil, gone}}
			x.third.answers = []answer{{nil, gone}, {[]kv.Update{leaps(25), isState, isReady}, nil}}
		}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			inquire(t, c.from, func(x *asking) { x.most = c.most; c.change(x) }, func(x *asking) {
				select {
				case <-x.returned:
				case <-time.After(time.Minute):
					t.Fatal("the stream did not end after the consumer stopped")
				}
				if n := x.a.requests() + x.b.requests() + x.third.requests(); n != c.asked || len(x.given) != c.most {
					t.Errorf("%d requests to sources, want %d; updates %v", n, c.asked, x.given)
				}
			})
		})
	}
}

// A source learns the highest revision that the consumer has requested. A delivered revision is not requested
// again.
func TestTheHighestRequestReachesTheNextSource(t *testing.T) {
	inquire(t, 11, func(x *asking) {
		x.a.answers = []answer{{[]kv.Update{begins(10), isReady, batch(11)}, nil}}
	}, func(x *asking) {
		for _, r := range []kv.Revision{50, 20} {
			x.want.Ask(r)
			synctest.Wait()
		}
		x.was(t, "requested revisions", x.a.wished(), "[50 20]")
	})
	for wish, asked := range map[kv.Revision]string{20: "[]", 21: "[21]"} {
		inquire(t, 11, func(x *asking) {
			x.a.answers = []answer{{[]kv.Update{begins(10), isReady, progress(20)}, errGone}, {nil, errGone}}
			x.b.answers = []answer{{nil, errGone}, {nil, errGone}, {nil, errGone}, {[]kv.Update{begins(20), isReady}, nil}}
		}, func(x *asking) {
			x.want.Ask(wish)
			x.want.Ask(15) // lower: it does not replace the other
			time.Sleep(2 * time.Second)
			x.was(t, fmt.Sprint("requests to the next source after progress 20, with demand for ", wish), x.b.wished(), asked)
		})
	}
}

// The reason why a source does not serve decides the next step.
func TestTheReasonOfAFailureDecidesTheNextStep(t *testing.T) {
	gone := &kv.CompactedError{Requested: 11, Floor: 20}
	unavailable := func(why kv.Unavailable) error { return &kv.UnavailableError{Why: why, Detail: "what"} }
	t.Run("a source that served and broke is asked again first", func(t *testing.T) {
		inquire(t, 11, func(x *asking) {
			x.a.answers = []answer{{[]kv.Update{begins(10), isReady, batch(11)}, errGone}, {}}
		}, func(x *asking) {
			time.Sleep(time.Second)
			x.was(t, "requests to a and b", x.a.from()+" | "+x.b.from(), "11 12 | ")
		})
	})
	t.Run("another history ends it", func(t *testing.T) {
		inquire(t, 11, func(x *asking) { x.a.answers = []answer{{nil, kv.ErrOtherHistory}} }, func(x *asking) {
			time.Sleep(time.Second)
			if !errors.Is(x.outcome(), kv.ErrOtherHistory) || x.b.from() != "" {
				t.Errorf("ended with %v; requests to the second source: %q, want none", x.outcome(), x.b.from())
			}
		})
	})
	t.Run("a caller that leaves has lost no source", func(t *testing.T) {
		inquire(t, 11, func(x *asking) { x.a.answers = []answer{{[]kv.Update{begins(10), isReady, batch(11)}, nil}} }, func(x *asking) {
			time.Sleep(time.Second)
			x.cancel()
			<-x.returned
			x.was(t, "notices", x.whats(), "")
			if n := x.a.requests() + x.b.requests(); n != 1 {
				t.Errorf("%d requests to sources, want 1", n)
			}
		})
	})
	t.Run("a silent source is passed over for a while, and is not given up", func(t *testing.T) {
		inquire(t, 11, func(x *asking) {
			x.a.answers = []answer{{nil, ErrSilent}, {[]kv.Update{begins(10), isReady, batch(11)}, nil}}
			x.b.answers = []answer{{nil, gone}}
		}, func(x *asking) {
			time.Sleep(hungFor + 2*longPause)
			x.was(t, "updates", x.consumer(), "batch 11")
			if x.outcome() != nil || x.a.requests() != 2 || x.a.times()[1].Sub(x.a.times()[0]) < hungFor {
				t.Errorf("ended with %v; times of the requests: %v", x.outcome(), x.a.times())
			}
		})
	})
	t.Run("a node that is not ready keeps only a follower with nothing waiting", func(t *testing.T) {
		for _, c := range []struct {
			from kv.Revision
			err  error
			wait bool
		}{
			{0, unavailable(kv.NotReady), true},
			{0, &kv.NotHereError{Shard: 7}, true},
			{0, unavailable(kv.EtcdUnavailable), false},
			{0, errGone, false},
			{11, unavailable(kv.NotReady), false},
		} {
			inquire(t, c.from, func(x *asking) { x.a.answers = []answer{{nil, c.err}} }, func(x *asking) {
				time.Sleep(patience / 2)
				if waited := x.b.requests() == 0; waited != c.wait {
					t.Errorf("follower from %d, failure %v: waited %v, want %v", c.from, c.err, waited, c.wait)
				}
				time.Sleep(patience)
				if x.b.requests() == 0 {
					t.Errorf("follower from %d, failure %v: the next source never got a request", c.from, c.err)
				}
			})
		}
	})
	t.Run("history is given up at once when all nodes have answered", func(t *testing.T) {
		for _, c := range []struct {
			err  error
			wait bool
		}{
			{gone, false}, {&kv.NotHereError{Shard: 7}, false}, {unavailable(kv.NotReady), false}, {errGone, true}, {ErrSilent, true},
		} {
			inquire(t, 11, func(x *asking) {
				x.a.answers, x.b.answers = []answer{{nil, gone}}, []answer{{nil, gone}}
				x.third.answers = []answer{{nil, c.err}}
			}, func(x *asking) {
				<-x.returned
				if waited := x.took >= rescuePatience; waited != c.wait || !errors.As(x.outcome(), new(*kv.CompactedError)) {
					t.Errorf("failure %v: ended after %v with %v", c.err, x.took, x.outcome())
				}
				if x.third.from()[:2] != "11" {
					t.Errorf("failure %v: the first request was for %s, want 11", c.err, x.third.from())
				}
			})
		}
	})
	t.Run("a rejected node gets no request for the missing events, and is not given up", func(t *testing.T) {
		inquire(t, 11, func(x *asking) {
			x.a.answers, x.b.answers = []answer{{nil, gone}}, []answer{{nil, gone}}
			x.f.Reject("third", rescuePatience/2)
			x.third.answers = []answer{{[]kv.Update{begins(10), isReady, batch(25)}, errGone}}
		}, func(x *asking) {
			time.Sleep(3 * time.Second)
			x.was(t, "updates", strings.Split(x.consumer()+",", ",")[0], "batch 25")
			if x.third.requests() == 0 || x.third.times()[0].Sub(x.began) < rescuePatience/2 {
				t.Errorf("began at %v, times of the requests %v", x.began, x.third.times())
			}
		})
	})
}

// A rejected source is left at once, and skipped until its pause ends. A later, shorter pause does not end it
// earlier.
func TestARejectedSourceIsPassedOver(t *testing.T) {
	inquire(t, 11, func(x *asking) {
		x.a.answers = []answer{{[]kv.Update{begins(10), isReady, batch(11)}, nil}, {[]kv.Update{begins(11), isReady, batch(12)}, nil}}
		x.b.answers = []answer{{[]kv.Update{begins(11), isReady, progress(11)}, nil}}
	}, func(x *asking) {
		synctest.Wait()
		changed := x.f.Changed()
		if name, _ := x.f.Current(); name != "a" || x.f.Asked() != "a" {
			t.Errorf("follows %q, last request to %q, want a", name, x.f.Asked())
		}
		x.f.Reject("b", time.Nanosecond)
		synctest.Wait()
		select {
		case <-changed:
			t.Error("the source was changed, although another one was rejected")
		default:
		}
		x.f.Reject("a", time.Hour)
		x.f.Reject("a", time.Minute)
		time.Sleep(time.Second)
		if name, _ := x.f.Current(); name != "b" || x.f.Asked() != "b" {
			t.Errorf("follows %q, last request to %q, want b", name, x.f.Asked())
		}
		select {
		case <-changed:
		default:
			t.Error("the channel of Changed was not closed")
		}
		changed = x.f.Changed()
		time.Sleep(time.Hour - 2*time.Second)
		select {
		case <-changed:
			t.Error("a rejected source was followed before the end of its pause")
		default:
		}
		time.Sleep(2*time.Second + 2*scoutEvery)
		if name, _ := x.f.Current(); name != "a" {
			t.Errorf("follows %q after the pause of a, want a", name)
		}
		x.was(t, "requests to a", x.a.from(), "11 12")
	})
}

// The search for a better source skips rejected sources, too.
func TestTheSearchSkipsRejectedSources(t *testing.T) {
	inquire(t, 11, func(x *asking) {
		x.a.answers = []answer{{[]kv.Update{begins(10), isReady, batch(11)}, nil}}
		x.b.answers = []answer{{[]kv.Update{begins(10), isReady, batch(11)}, nil}}
		x.f.Reject("a", time.Minute)
	}, func(x *asking) {
		time.Sleep(time.Minute - time.Second)
		if n := x.a.requests(); n != 0 {
			t.Errorf("a rejected source got %d requests", n)
		}
		if strings.Contains(x.whats(), BetterSource.Label()) {
			t.Error("a rejected source is reported as better")
		}
	})
}
