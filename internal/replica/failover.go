package replica

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// Source is what a candidate is; see cache.Source.
type Source interface {
	Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error]
}

// Candidate is one way to a shard's events.
type Candidate struct {
	// Name is the node's, or "etcd".
	Name string
	// Direct: this is etcd itself.
	Direct bool
	Source Source
}

// Etcd is the name of the direct candidate.
const Etcd = "etcd"

// Failover follows the best of several sources and changes over when it is
// lost, or when a better one is back.
type Failover struct {
	// Candidates returns those of this moment, best first. It must not block.
	Candidates func() []Candidate
	// Warm returns nodes that may have the state and the window already, for a
	// cache that has nothing; best first.
	Warm func() []Candidate
	// Avoid are nodes that a cache which has nothing takes nothing of: theirs is
	// wrong. Once it has loaded, it follows them like others.
	Avoid []string
	// Noticed is told of changes of the source; nil: nobody is. It must not
	// block.
	Noticed func(Notice)
	Logger  *slog.Logger

	mu      sync.Mutex
	current string                  // guarded by mu; "" while none
	direct  bool                    // guarded by mu
	lost    time.Time               // guarded by mu; when the last one was, if there is none since
	recheck context.CancelCauseFunc // guarded by mu; ends the current one
	scout   chan struct{}           // guarded by mu; closed by Scout
	changed chan struct{}           // guarded by mu; closed when current changes
}

// Pauses of a Failover.
const (
	scoutEvery = 3 * Heartbeat         // looks for a better candidate
	shortPause = 20 * time.Millisecond // after a round in which nobody would do
	longPause  = time.Second           // the longest such
	// patience is how long a cache that has nothing waits for a peer that
	// answers but is not ready itself, before it asks etcd for the whole state.
	patience = 10 * time.Second
	// rescuePatience is how long a node that cannot be reached is waited for when
	// it may have what all candidates have compacted: one that was cut off reaches
	// etcd and the others again at different moments, and a list of etcd is dear.
	rescuePatience = 2 * time.Second
)

var errBetter = errors.New("a better source is back")

// ErrStale is a cause for [Failover.Change]: the source lives but brings
// nothing, though etcd has moved on. It is passed over for a while.
var ErrStale = errors.New("the source has fallen behind etcd and does not catch up")

// Current returns the name of the source in use ("" while there is none), and
// whether it is etcd itself.
func (f *Failover) Current() (name string, direct bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current, f.direct
}

// Changed is closed when Current changes.
func (f *Failover) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

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
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
	return lost
}

// Change leaves the current source, so that the best one is chosen anew.
func (f *Failover) Change(cause error) {
	f.mu.Lock()
	recheck := f.recheck
	f.mu.Unlock()
	if recheck != nil {
		recheck(cause)
	}
}

// Scout looks for a better candidate now.
func (f *Failover) Scout() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.scout != nil {
		close(f.scout)
		f.scout = nil
	}
}

// called is closed by the next Scout.
func (f *Failover) called() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.scout == nil {
		f.scout = make(chan struct{})
	}
	return f.scout
}

// Follow implements the cache's Source. It fails only with a
// *kv.CompactedError, when no candidate has what is missing, and with
// kv.ErrOtherHistory.
func (f *Failover) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		r := &run{f: f, req: req, yield: yield, began: time.Now(), hung: make(map[string]time.Time), stale: make(map[string]time.Time)}
		r.bare.Store(req.From == 0)
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
			select {
			case <-time.After(pause/2 + rand.N(pause)):
			case <-ctx.Done():
			}
			pause = min(2*pause, longPause)
		}
	}
}

// run is one call of Follow.
type run struct {
	f       *Failover
	req     kv.FollowRequest
	yield   func(kv.Update, error) bool
	began   time.Time
	updates int
	bare    atomic.Bool // the consumer has no state yet; changed by Follow alone
	// hung are candidates that fell silent without closing the stream, until
	// when: to ask one again at once would cost as long as noticing it did.
	hung map[string]time.Time
	// stale are candidates that brought nothing though etcd had moved on, until
	// when. How old their data is they tell too late: it was fresh a moment ago.
	stale map[string]time.Time
	// gone is when the candidates first said that what is missing is compacted;
	// zero when they have not.
	gone time.Time
}

// hungFor is how long a silent candidate is passed over, unless the scout
// hears from it before.
const hungFor = 3 * time.Second

// warm tries to take state and window from a node that has them. It reports
// false when the consumer does not want more.
func (r *run) warm(ctx context.Context) bool {
	for _, c := range r.f.Warm() {
		if r.avoids(c) {
			continue
		}
		more, ready := true, false
		var revision kv.Revision
		for u, err := range c.Source.Follow(ctx, r.req) {
			if err != nil {
				r.f.Logger.Debug("not taking the state from this node", "peer", c.Name, "range", r.req.Range, "error", err)
				break
			}
			if u.Kind == kv.UpdateBegin {
				if revision = u.Revision; r.req.Held != nil && revision <= r.req.HeldAt {
					break // it is where we are, and can go on no more than we can
				}
			}
			ready = u.Kind == kv.UpdateReady
			if more = r.yield(u, nil); !more || ready {
				break
			}
		}
		switch {
		case !more || ctx.Err() != nil:
			return false
		case ready:
			r.req.From = revision + 1
			r.bare.Store(false)
			r.f.notice(Notice{What: StateTaken, Source: c.Name, Began: r.began, Revision: revision}, r.req.Range)
			return true
		}
	}
	return true
}

// avoids reports whether the state is needed, and must not come from c.
func (r *run) avoids(c Candidate) bool { return r.bare.Load() && slices.Contains(r.f.Avoid, c.Name) }

// round tries the candidates in order and follows the first that will do,
// until it is lost. It reports false when Follow must end.
func (r *run) round(ctx context.Context) bool {
	var gone verdict
	for _, c := range r.f.Candidates() {
		if ctx.Err() != nil {
			return false
		}
		if now := time.Now(); now.Before(r.hung[c.Name]) || now.Before(r.stale[c.Name]) || r.avoids(c) {
			gone.open = true
			continue
		}
		before := r.updates
		more, got, err := r.one(ctx, c)
		switch {
		case !more:
			return false
		case errors.Is(err, ErrSilent):
			r.hung[c.Name] = time.Now().Add(hungFor)
		case errors.Is(err, ErrStale):
			r.stale[c.Name] = time.Now().Add(hungFor)
		case errors.Is(err, errBetter):
			clear(r.hung)
			return true
		}
		if got && r.updates > before {
			// It worked for a while: start again with the best.
			r.gone = time.Time{}
			if err != nil && ctx.Err() == nil {
				r.f.notice(Notice{What: SourceLost, Source: c.Name, Err: err, Revision: max(0, r.req.From-1)}, r.req.Range)
			}
			return true
		}
		// One that begins and then brings nothing is no better than one that
		// does not begin: the next, or we would never get past it.
		if errors.Is(err, kv.ErrOtherHistory) {
			r.yield(kv.Update{}, err) // the consumer's to tell
			return false
		}
		gone.add(c, err)
		if err != nil {
			r.f.Logger.Debug("source will not do", "source", c.Name, "range", r.req.Range, "error", err)
		}
		if r.req.From == 0 && notReady(err) && time.Since(r.began) < patience {
			// It lives and is loading: wait for it rather than have every
			// replica list the same keys at etcd.
			return true
		}
	}
	compacted := gone.err()
	if compacted == nil || r.req.From == 0 {
		return true
	}
	if r.gone.IsZero() {
		r.gone = time.Now()
	}
	switch r.rescue(ctx) {
	case rescued:
		return true
	case unanswered:
		if time.Since(r.gone) < rescuePatience {
			return true
		}
	case ended:
		return false
	case lost:
	}
	r.yield(kv.Update{}, compacted)
	return false
}

// outcome is what came of a rescue.
type outcome uint8

const (
	lost       outcome = iota // no node has what is missing
	unanswered                // none that answers has it
	rescued                   // we are further
	ended                     // the consumer wants no more
)

// rescue takes what the candidates no longer have from the window of any other
// node, or else what has changed.
func (r *run) rescue(ctx context.Context) outcome {
	defer func() { r.req.AllowLeap = false }()
	out := lost
	for _, what := range []What{GapFilled, Leapt} {
		r.req.AllowLeap = what == Leapt
		for _, c := range r.f.Warm() {
			if time.Now().Before(r.hung[c.Name]) {
				out = unanswered
				continue
			}
			from := r.req.From
			// The scout ends it soon: it is no candidate, or another is better.
			more, _, err := r.one(ctx, c)
			if !more || ctx.Err() != nil {
				return ended
			}
			if r.req.From > from {
				r.f.notice(Notice{What: what, Source: c.Name, Began: r.gone, Revision: r.req.From - 1}, r.req.Range)
				r.gone = time.Time{}
				return rescued
			}
			if !answered(err) {
				out = unanswered
			}
			if errors.Is(err, ErrSilent) {
				r.hung[c.Name] = time.Now().Add(hungFor)
			}
			r.f.Logger.Debug("this node does not have what is missing", "peer", c.Name, "range", r.req.Range, "from", from, "leap", r.req.AllowLeap, "error", err)
		}
	}
	return out
}

// answered reports whether err is what a peer said, not that it could not be
// reached.
func answered(err error) bool {
	var compacted *kv.CompactedError
	var elsewhere *kv.NotHereError
	var unavailable *kv.UnavailableError
	return errors.As(err, &compacted) || errors.As(err, &elsewhere) || errors.As(err, &unavailable)
}

// verdict is what the candidates of one round say of history that is missing.
type verdict struct {
	compacted *kv.CompactedError
	direct    bool // etcd itself says so
	open      bool // somebody did not answer, and may have it
}

func (v *verdict) add(c Candidate, err error) {
	var gone *kv.CompactedError
	switch {
	case !errors.As(err, &gone):
		v.open = true
	case v.compacted == nil || c.Direct:
		v.compacted, v.direct = gone, v.direct || c.Direct
	}
}

// err returns what is known to be gone: when etcd says so, or everybody does.
// One node that is away may have it, and etcd surely when it does not answer.
func (v *verdict) err() *kv.CompactedError {
	if v.open && !v.direct {
		return nil
	}
	return v.compacted
}

func notReady(err error) bool {
	var unavailable *kv.UnavailableError
	var elsewhere *kv.NotHereError // its map is older than ours, for the moment
	return errors.As(err, &elsewhere) || (errors.As(err, &unavailable) && unavailable.Why == kv.NotReady)
}

// one follows c until it is lost. It reports whether the consumer wants more,
// and whether c brought anything.
func (r *run) one(ctx context.Context, c Candidate) (more, got bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var scout sync.WaitGroup
	defer scout.Wait()
	defer cancel(nil)
	more = true
	resuming, begun := r.req.From > 0, kv.Revision(0)
	for u, e := range c.Source.Follow(ctx, r.req) {
		if e != nil {
			err = e
			break
		}
		if !got {
			got = true
			if lost := r.f.set(c.Name, c.Direct, cancel); !lost.IsZero() {
				r.f.notice(Notice{What: Followed, Source: c.Name, Began: lost, Revision: max(0, r.req.From-1)}, r.req.Range)
			}
			stale := maps.Clone(r.stale)
			scout.Go(func() { r.scout(ctx, c, stale, cancel) })
		}
		switch u.Kind {
		case kv.UpdateBegin:
			if resuming = resuming && !u.Leap; resuming {
				continue // the consumer has all before it: nothing begins for it
			}
			begun = u.Revision
		case kv.UpdateReady:
			if resuming {
				continue
			}
			r.req.From = begun + 1
			r.bare.Store(false)
			r.updates++
		case kv.UpdateBatch:
			r.req.From = max(r.req.From, u.Batch.Revision+1)
			r.updates++
		case kv.UpdateProgress:
			r.req.From = max(r.req.From, u.Revision+1)
			r.updates++
		}
		if more = r.yield(u, nil); !more {
			break
		}
	}
	if got {
		r.f.set("", false, nil)
	}
	if cause := context.Cause(ctx); err == nil && cause != nil {
		err = cause
	}
	return more, got, err
}

// scout looks for a better candidate than c, not a stale one, and ends c when
// there is one, or when c is none any more.
func (r *run) scout(ctx context.Context, c Candidate, stale map[string]time.Time, leave context.CancelCauseFunc) {
	tick := time.NewTimer(UntilBeat(scoutEvery))
	defer tick.Stop()
	called := r.f.called()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(UntilBeat(scoutEvery))
		case <-called:
			called = r.f.called()
		}
		better, found := 0, false
		candidates := r.f.Candidates()
		for better = range candidates {
			if candidates[better].Name == c.Name {
				found = true
				break
			}
		}
		if !found {
			leave(errBetter)
			return
		}
		for _, b := range candidates[:better] {
			if time.Now().After(stale[b.Name]) && !r.avoids(b) && probe(ctx, b, r.req.Range, r.req.Lineage) {
				r.f.notice(Notice{What: BetterSource, Source: b.Name}, r.req.Range)
				leave(errBetter)
				return
			}
		}
	}
}

// probe reports whether the candidate would serve the range.
func probe(ctx context.Context, c Candidate, rng kv.Range, lineage uint64) bool {
	p, ok := c.Source.(interface {
		Probe(ctx context.Context, r kv.Range, lineage uint64) error
	})
	return !ok || p.Probe(ctx, rng, lineage) == nil
}
