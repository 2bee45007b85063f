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

// Candidate is one possible source of a shard's events.
type Candidate struct {
	// Name is the node's, or "etcd".
	Name string
	// Direct: this is etcd itself.
	Direct bool
	// Away: etcd has not answered this node lately. Set for etcd only.
	Away   bool
	Source Source
}

// Etcd is the name of the direct candidate.
const Etcd = "etcd"

// Failover follows the best of several sources. It changes the source when the current
// one is lost or a better one is ready.
type Failover struct {
	// Candidates returns the current candidates, best first. It must not block.
	Candidates func() []Candidate
	// Warm returns nodes that may have the state and the window already, for an empty
	// cache; best first.
	Warm func() []Candidate
	// Avoid are nodes with a wrong state, from which an empty cache does not load. Once
	// loaded, it follows them like others.
	Avoid []string
	// Noticed is called on changes of the source; nil: not called. It must not
	// block.
	Noticed func(Notice)
	Logger  *slog.Logger

	hung  passedOver // fell silent without closing the stream: an immediate retry could take as long as the detection
	stale passedOver // sent nothing although etcd had new revisions; they report the age of their data too late

	mu      sync.Mutex
	current string                  // guarded by mu; "": none
	direct  bool                    // guarded by mu
	lost    time.Time               // guarded by mu; when the last source was lost, if none replaced it
	recheck context.CancelCauseFunc // guarded by mu; ends the current source
	scout   wait.Signal             // of Scout
	changed wait.Signal             // of current
	asked   string                  // guarded by mu; the candidate that was opened last
	// rejected are candidates with (possibly) wrong data, and until when they are
	// passed over.
	rejected map[string]time.Time // guarded by mu
}

// Pauses of a Failover.
const (
	shortPause = 20 * time.Millisecond // after a round without a usable source
	longPause  = time.Second           // the longest pause after such a round
	// patience is how long an empty cache waits for a peer that answers but is not
	// ready itself, before it asks etcd for the whole state. A cache with a state waits
	// rescuePatience: its watches get no events.
	patience = 10 * time.Second
	// rescuePatience is how long to wait for an unreachable node that may have events
	// that all candidates have compacted: after a partition, this node reaches etcd and
	// the other nodes at different moments, and a list of etcd is expensive. A node
	// that reaches any other node was not partitioned, and does not wait.
	rescuePatience = 2 * time.Second
	// rescueWithin is how long a node that has begun may take to send the first missing
	// event: a node with all of them in its window sends it at once.
	rescueWithin = 500 * time.Millisecond
)

// ErrStale is a cause for [Failover.Change]: the source is alive but sends nothing,
// although etcd has new revisions. It is passed over for a while.
var ErrStale = errors.New("the source has fallen behind etcd and does not catch up")

// errNoFurther reports that a node has none of the missing events.
var errNoFurther = errors.New("the node does not have the missing events")

// errOvertaken is the reason to leave etcd, which does not answer this node and has
// compacted the missing events, for nodes that read etcd.
var errOvertaken = errors.New("etcd does not answer, and has compacted the missing events")

var errRejected = errors.New("the source's data is wrong")

// Current returns the name of the source in use ("": none), and whether it is etcd
// itself.
func (f *Failover) Current() (name string, direct bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current, f.direct
}

// Changed is closed when Current changes.
func (f *Failover) Changed() <-chan struct{} { return f.changed.Wait() }

// set stores the source in use ("": none). It returns the time since which there was
// none, if there was one before.
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

// Change leaves the current source, so that the best candidate is selected again.
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

// Reject passes over a candidate for a while, because its data is wrong.
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

// Scout searches for a better candidate now.
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
