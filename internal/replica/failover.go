package replica

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Source is the source of a candidate; see cache.Source.
type Source interface {
	Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error]
}

// Candidate is one way to a shard's events.
type Candidate struct {
	// Name is the node's, or "etcd".
	Name string
	// Direct: this is etcd itself.
	Direct bool
	// Away: it has not answered this node lately. Set for etcd only.
	Away   bool
	Source Source
}

// Etcd is the name of the direct candidate.
const Etcd = "etcd"

// Failover follows the best of several sources and changes over when it is
// lost, or when a better one is ready.
type Failover struct {
	// Candidates returns those of this moment, best first. It must not block.
	Candidates func() []Candidate
	// Warm returns nodes that may have the state and the window already, for a
	// cache that has nothing; best first.
	Warm func() []Candidate
	// Avoid are nodes that an empty cache does not load from: their state is
	// wrong. Once it has loaded, it follows them like others.
	Avoid []string
	// Noticed is called on changes of the source; nil: not called. It must not
	// block.
	Noticed func(Notice)
	Logger  *slog.Logger

	hung  passedOver // fell silent without closing the stream: to ask again at once would cost as long as noticing it did
	stale passedOver // brought nothing though etcd had moved on; they report the age of their data too late

	mu      sync.Mutex
	current string                  // guarded by mu; "" while none
	direct  bool                    // guarded by mu
	lost    time.Time               // guarded by mu; when the last one was, if there is none since
	recheck context.CancelCauseFunc // guarded by mu; ends the current one
	scout   wait.Signal             // of Scout
	changed wait.Signal             // of current
	asked   string                  // guarded by mu; the candidate that was opened last
	// rejected are candidates that are passed over until a time: their data is
	// wrong, or may be.
	rejected map[string]time.Time // guarded by mu
}

// Pauses of a Failover.
const (
	shortPause = 20 * time.Millisecond // after a round without a usable source
	longPause  = time.Second           // the longest such
	// patience is how long an empty cache waits for a peer that
	// answers but is not ready itself, before it asks etcd for the whole state.
	// One that has a state waits rescuePatience: its watches get no events.
	patience = 10 * time.Second
	// rescuePatience is how long to wait for an unreachable node when
	// it may have what all candidates have compacted: one that was cut off reaches
	// etcd and the others again at different moments, and a list of etcd is dear.
	// A node that reaches any other one was not cut off, and does not wait.
	rescuePatience = 2 * time.Second
	// rescueWithin is how long a node that has begun may take to send the first
	// missing event: one that has everything in its window does so at once.
	rescueWithin = 500 * time.Millisecond
)

// ErrStale is a cause for [Failover.Change]: the source lives but brings
// nothing, though etcd has moved on. It is passed over for a while.
var ErrStale = errors.New("the source has fallen behind etcd and does not catch up")

// errNoFurther reports that a node has nothing that the follower lacks.
var errNoFurther = errors.New("the node does not have the missing events")

// errOvertaken leaves etcd, which does not answer this node, for nodes that read it:
// it has compacted the events that this node lacks.
var errOvertaken = errors.New("etcd does not answer, and has compacted the missing events")

var errRejected = errors.New("the source's data is wrong")

// Current returns the name of the source in use ("" while there is none), and
// whether it is etcd itself.
func (f *Failover) Current() (name string, direct bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current, f.direct
}

// Changed is closed when Current changes.
func (f *Failover) Changed() <-chan struct{} { return f.changed.Wait() }

// set notes the source in use, or with "" that there is none. It returns since
// when there was none, if there was one before.
func (f *Failover) set(name string, direct bool, recheck context.CancelCauseFunc) (lost time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recheck = recheck
	if f.current == name && f.direct == direct {
		return time.Time{}
	}
	if name == "" {
		f.lost = time.Now()
	} else {
		lost, f.lost = f.lost, time.Time{}
	}
	f.current, f.direct = name, direct
	f.changed.Notify()
	return lost
}

// Change leaves the current source, so that the best one is chosen again.
func (f *Failover) Change(cause error) {
	f.mu.Lock()
	recheck := f.recheck
	f.mu.Unlock()
	if recheck != nil {
		recheck(cause)
	}
}

// Asked returns the name of the candidate that was opened last, which
// is the origin of the consumer's updates.
func (f *Failover) Asked() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *Failover) asks(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = name
}

// Reject passes a candidate over for a while, since its data is wrong.
func (f *Failover) Reject(name string, pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rejected == nil {
		f.rejected = make(map[string]time.Time)
	}
	if until := time.Now().Add(pause); until.After(f.rejected[name]) {
		f.rejected[name] = until
	}
	if f.current == name && f.recheck != nil {
		f.recheck(errRejected)
	}
}

func (f *Failover) rejects(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.rejected[name])
}

// Scout looks for a better candidate now.
func (f *Failover) Scout() { f.scout.Notify() }

// Follow implements the cache's Source. It fails only with a
// *kv.CompactedError, when no candidate has the missing events, and with
// kv.ErrOtherHistory.
func (f *Failover) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		r := &run{f: f, req: req, yield: yield, began: time.Now()}
		r.from.Store(int64(req.From))
		defer f.set("", false, nil)
		if req.From == 0 && !r.warm(ctx) {
			return
		}
		pause := shortPause
		for ctx.Err() == nil {
			before := r.updates
			if !r.round(ctx) {
				return
			}
			if r.updates > before {
				pause = shortPause
			}
			wait.Sleep(ctx, pause/2+rand.N(pause))
			pause = min(2*pause, longPause)
		}
	}
}
