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

// progress reports the positions of a stream's watches to its client: of each quiet
// watch with notifications at an interval, and of all watches together on request.
// Requests that arrive while one is being answered share the next answer, so that a
// client that requests and does not read costs nothing. progress also ends a stream that
// requires a leader when the data is older than MaxStaleness.
type progress struct {
	// Owned by the pump: no revision above hold is sent until the request is
	// answered, or for maxHold; 0: no limit. since is the time when hold was
	// set last.
	hold  kv.Revision
	since time.Time

	s    *stream
	task pump.Task

	mu      sync.Mutex
	quiet   *time.Timer    // guarded by mu; the interval of notifications; nil until a watch requests them
	age     *time.Timer    // guarded by mu; the next check of the data's age; nil: no checks
	poll    *time.Timer    // guarded by mu; the next check of a waiting request
	stopped bool           // guarded by mu
	due     bool           // guarded by mu; notifications are due
	aging   bool           // guarded by mu; a check of the age is due
	asking  bool           // guarded by mu; a request is being answered
	again   bool           // guarded by mu; another request has arrived meanwhile
	wanted  wantedRevision // guarded by mu; the revision that the request waits for; zero: not known yet
}

// wantedRevision is etcd's revision when progress was requested. lineage is the revision's, or an older one.
type wantedRevision struct {
	revision kv.Revision
	lineage  uint64
}

const (
	// pollProgress is the interval of checks of a request that waits for shards.
	pollProgress = 10 * time.Millisecond
	// maxHold bounds the time for which a stream's watches wait for the watch
	// that is furthest behind, so that a request can be answered.
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

// notify starts the notifications of the stream.
func (p *progress) notify() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.quiet != nil || p.stopped {
		return
	}
	// Add jitter, as etcd does, because many clients connect at once.
	interval := p.s.of.cfg.ProgressNotifyInterval
	interval += rand.N(interval/10 + 1)
	p.quiet = time.AfterFunc(interval, func() { p.fire(&p.due, func() { p.quiet.Reset(interval) }) })
}

// fire sets what, which is guarded by mu, and wakes the pump to handle it.
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

// request requests an answer once everything up to etcd's current revision is sent.
// Without a watch there is no answer.
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
			p.answeredLocked() // the revision is unknown: as at etcd, there is no answer
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

// run checks the data's age, and sends the progress that is due. Called by the stream's pump.
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

// tell sends the due notifications: to watches that have had no message since the last
// notification. No answer to a request may be below a notification: clientv3 resumes
// after the last one of the two.
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
// As at etcd, there is no answer if there is no watch, or if a watch begins in
// the future. etcd does not answer while a watch catches up either, but its watch has
// caught up as soon as the last old event is sent. Ours must still open the window, so the
// request waits: a client that has read all events gets an answer from both.
//
// The answer applies to all watches, and clientv3 resumes each of them after it: it
// must not be below a revision that was sent to any of them. So watches that are ahead
// wait for watches that lag. It follows the answers to all cancels, since a client
// applies it to each watch whose cancel is not confirmed yet.
//
// It is of the newest lineage. It waits until the watches of older lineages have ended. If the requested
// revision may be of an older lineage, etcd is asked again: watches of the new one may never reach it.
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
	case catchingUp: // this may take long, so no watch is held; caughtUp wakes the task later
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

// caughtUp makes the pump check the request again, after a watch has caught up or ended.
func (p *progress) caughtUp() { p.task.Wake() }

// wait schedules the next check. Until then no revision above target is sent, except
// for a while after a hold has timed out.
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

// release ends the hold, and wakes the watches.
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

// stale reports whether the data of any watch is older than MaxStaleness, or a
// watch could not read its missed events from etcd for that time.
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
