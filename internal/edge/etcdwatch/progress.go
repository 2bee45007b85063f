package etcdwatch

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/edge/etcdview"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// progress reports to a stream's client how far its watches are: each of those that
// want it when it is quiet, and all of them together on request. Requests that
// come while one is being answered share the next answer, so that a client that
// asks and does not read costs nothing. It also ends a stream that requires a
// leader when our data is as old as that of a member without one.
type progress struct {
	// Owned by the pump: nothing above hold is sent until the request is
	// answered, or for maxHold; 0: all may be sent. since is when that began
	// last.
	hold  kv.Revision
	since time.Time

	s    *stream
	task pump.Task

	mu      sync.Mutex
	quiet   *time.Timer    // guarded by mu; the interval of notifications; nil while no watch wants them
	age     *time.Timer    // guarded by mu; the next look at the data's age; nil: none
	poll    *time.Timer    // guarded by mu; the next look while a request waits
	stopped bool           // guarded by mu
	due     bool           // guarded by mu; notifications are
	aging   bool           // guarded by mu; a look at the age is due
	asking  bool           // guarded by mu; a request is being answered
	again   bool           // guarded by mu; another came meanwhile
	wanted  wantedRevision // guarded by mu; what the request waits for; the zero one: not known yet
}

// wantedRevision is etcd's revision when progress was requested. The lineage is its own, or an older one.
type wantedRevision struct {
	revision kv.Revision
	lineage  uint64
}

const (
	// pollProgress is the interval of checks of a request that waits for shards.
	pollProgress = 10 * time.Millisecond
	// maxHold bounds how long a stream's watches wait for the one that is
	// furthest behind, so that a request can be answered.
	maxHold = 100 * time.Millisecond
	// lookAtAge is the interval at which the age of a stream's data is checked.
	lookAtAge = 500 * time.Millisecond
)

func (p *progress) start(s *stream) {
	p.s = s
	p.task.Init(s.tasks, p.run)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.poll = time.AfterFunc(math.MaxInt64, p.task.Wake)
	if s.leader && s.of.cfg.MaxStaleness > 0 {
		p.age = time.AfterFunc(lookAtAge, func() { p.fire(&p.aging, func() { p.age.Reset(lookAtAge) }) })
	}
	p.task.Start()
}

func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	for _, t := range []*time.Timer{p.quiet, p.age, p.poll} {
		if t != nil {
			t.Stop()
		}
	}
}

// notify says that a watch wants notifications.
func (p *progress) notify() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet != nil || p.stopped {
		return
	}
	// Spread, as etcd does: clients come in crowds.
	interval := p.s.of.cfg.ProgressNotifyInterval
	interval += rand.N(interval/10 + 1)
	p.quiet = time.AfterFunc(interval, func() { p.fire(&p.due, func() { p.quiet.Reset(interval) }) })
}

// fire sets what, which is guarded by mu, and has the pump look at it.
func (p *progress) fire(what *bool, rearm func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	*what = true
	rearm()
	p.task.Wake()
}

// request answers once everything up to etcd's present revision was sent, if
// there is a watch.
func (p *progress) request() {
	if p.s.count() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking {
		p.again = true
		return
	}
	p.askLocked()
}

func (p *progress) askLocked() {
	if p.stopped {
		return
	}
	p.asking, p.again, p.wanted = true, false, wantedRevision{}
	p.s.spawn(func() {
		lineage := p.s.of.cfg.Router.History().Lineage // before the revision: see answer
		now, err := p.s.of.view.Now(p.s.ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.wanted = (wantedRevision{revision: now, lineage: lineage}); err != nil {
			p.answeredLocked() // as etcd: unknown, so no answer is sent
			return
		}
		p.task.Wake()
	})
}

func (p *progress) answeredLocked() {
	p.asking, p.wanted = false, wantedRevision{}
	if p.again {
		p.askLocked()
	}
}

// run is the stream's own turn: for the pump that is at it.
func (p *progress) run(*pump.Scratch) (again bool) {
	p.mu.Lock()
	due, aging, wanted := p.due, p.aging, p.wanted
	p.due, p.aging = false, false
	p.mu.Unlock()
	if !due && !aging && wanted.revision == 0 {
		return false
	}
	watches, answered := p.s.state()
	if aging && p.stale(watches) {
		p.s.fail(etcdview.ErrNoLeader)
		return false
	}
	if due {
		p.tell(watches)
	}
	if wanted.revision > 0 {
		p.answer(watches, answered, wanted)
	}
	return false
}

// tell sends the due notifications: to watches that got no message
// since the last one. No answer to a request may be below a notification: clientv3 resumes
// after the last of the two.
func (p *progress) tell(watches []*watch) {
	for _, w := range watches {
		if !w.notify || !w.joined() {
			continue
		}
		r := w.reader
		if at := r.reached(); w.quiet && w.sends == r.sends && at >= w.start && at > 0 {
			p.s.noteSent(r.lineage, at)
			p.s.send(&etcdserverpb.WatchResponse{Header: p.s.of.view.Header(at), WatchId: w.id})
		}
		w.quiet, w.sends = true, r.sends
	}
}

// answer answers the request once all watches have reached its revision.
// As at etcd, there is no answer while there is no watch, or one that begins in
// the future. Nor does etcd answer while a watch catches up, but its watch has caught up
// when the last event of that is sent. Ours looks for the window then, so the
// request waits: a client that has read all events gets its answer from both.
//
// The answer speaks for all watches, and clientv3 resumes each of them after it: it
// must not be below a revision that was sent on any. So watches that are ahead wait
// for those that lag. It follows the answers to all cancels, since a client
// takes it to speak for each watch that it does not know to be cancelled.
//
// It is of the newest lineage. It waits for watches of older ones to end, and etcd is asked again if
// its revision may be of an older one: watches of the new one might never reach that.
func (p *progress) answer(watches []*watch, answered bool, wanted wantedRevision) {
	never, catchingUp := len(watches) == 0, false
	for _, w := range watches {
		if w.live && w.lineage > wanted.lineage {
			p.askAgain(watches)
			return
		}
		never = never || w.start > wanted.revision && !w.outlived(wanted.lineage)
		catchingUp = catchingUp || w.live && !w.joined()
	}
	p.s.turnTo(wanted.lineage)
	target := max(wanted.revision, p.hold, p.s.sent)
	switch {
	case never:
		p.answered(watches)
		return
	case catchingUp: // it may take long: no watch is held, and caughtUp follows
		p.release(watches)
		return
	}
	reached, behind := kv.Revision(math.MaxInt64), !answered
	for _, w := range watches {
		if !w.live || w.outlived(wanted.lineage) || w.ending.Load() != nil {
			behind = true
			continue
		}
		at := w.reader.reached()
		if at < target {
			w.reader.inner.WakeAt(target)
			behind = true
		}
		reached = min(reached, at)
	}
	if behind {
		p.wait(watches, target)
		return
	}
	p.s.send(&etcdserverpb.WatchResponse{Header: p.s.of.view.Header(reached), WatchId: invalidID})
	p.answered(watches)
}

// askAgain asks etcd for its revision again.
func (p *progress) askAgain(watches []*watch) {
	p.release(watches)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.askLocked()
}

// answered ends the request, with an answer or without.
func (p *progress) answered(watches []*watch) {
	p.release(watches)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answeredLocked()
}

// caughtUp looks at the request again: a watch that was catching up does so no longer.
func (p *progress) caughtUp() { p.task.Wake() }

// wait looks again soon. Until then nothing above target is sent, but for a
// while after that failed.
func (p *progress) wait(watches []*watch, target kv.Revision) {
	switch now := time.Now(); {
	case p.hold > 0 && now.Sub(p.since) > maxHold:
		p.release(watches)
	case p.hold == 0 && len(watches) > 1 && now.Sub(p.since) > 2*maxHold:
		p.hold, p.since = target, now
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.poll.Reset(pollProgress)
	}
}

// release lets the watches continue.
func (p *progress) release(watches []*watch) {
	if p.hold == 0 {
		return
	}
	p.hold = 0
	for _, w := range watches {
		w.task.Wake()
		if w.joined() {
			w.reader.Wake()
		}
	}
}

// holds reports whether a revision must not be sent yet.
func (p *progress) holds(revision kv.Revision) bool { return p.hold > 0 && revision > p.hold }

// stale reports whether the data of one of the watches is older than data may
// be, or etcd has not told what one has missed for as long.
func (p *progress) stale(watches []*watch) bool {
	for _, w := range watches {
		if !w.joined() {
			if w.live && p.s.of.past.away(w) > p.s.of.cfg.MaxStaleness {
				return true
			}
			continue
		}
		if age, known := w.reader.inner.Age(); known && age > p.s.of.cfg.MaxStaleness {
			return true
		}
	}
	return false
}
