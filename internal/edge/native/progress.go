package native

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// progress reports a stream's position to its client: at an interval, and on
// request. Requests that arrive while another one is being answered share the next
// answer, so that a client that requests and does not read costs nothing.
type progress struct {
	s      *stream
	task   pump.Task
	tokens atomic.Bool // the client wants resume tokens

	mu       sync.Mutex
	timer    *time.Timer   // guarded by mu; the interval
	poll     *time.Timer   // guarded by mu; the next check of a waiting request
	interval time.Duration // guarded by mu
	stopped  bool          // guarded by mu
	due      bool          // guarded by mu; the interval has ended
	age      *time.Timer   // guarded by mu; the next check of ages; nil: no watch has a bound
	ageEvery time.Duration // guarded by mu; the interval of age checks
	aging    bool          // guarded by mu; a check of ages is due
	asking   bool          // guarded by mu; a request is being answered
	again    bool          // guarded by mu; another request has arrived meanwhile
	known    bool          // guarded by mu; wanted is set
	wanted   kv.Revision   // guarded by mu; the revision that the request waits for

	// Owned by the pump. The revision of the furthest shard: mark at markAt, before at
	// the mark before that, more than heldBack earlier. A position below before shows
	// that a shard lags.
	mark, before kv.Revision
	markAt       time.Time
	fresh        fresh // of the data that the watches must reach next; see sentAge
}

// pollProgress is the interval at which the pump checks a request that waits for shards. Their
// progress takes a round trip to etcd.
const pollProgress = 10 * time.Millisecond

// heldBack is the time after which the shard of a lagging watch is named.
const heldBack = time.Second

func (p *progress) start(s *stream, interval time.Duration) {
	p.s = s
	p.task.Init(s.tasks, p.run)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interval = interval
	p.timer = time.AfterFunc(interval, p.fire)
	p.poll = time.AfterFunc(math.MaxInt64, p.look)
	p.task.Start()
}

func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.timer.Stop()
	p.poll.Stop()
	if p.age != nil {
		p.age.Stop()
	}
}

func (p *progress) setInterval(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interval = d
	if !p.stopped {
		p.timer.Reset(d)
	}
}

func (p *progress) fire() {
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		return
	}
	p.due = true
	p.timer.Reset(p.interval)
	p.mu.Unlock()
	p.look()
}

func (p *progress) look() { p.task.Wake() }

// request answers once everything up to etcd's current revision is sent. If that
// revision is not available, the answer has the stream's position.
func (p *progress) request() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking {
		p.again = true
		return
	}
	p.askLocked()
}

func (p *progress) askLocked() {
	p.asking, p.again = true, false
	p.s.opening.Go(func() {
		now, err := p.s.api.cfg.Router.Now(p.s.ctx)
		if err != nil {
			now = 0
		}
		p.mu.Lock()
		p.known, p.wanted = true, now
		p.mu.Unlock()
		p.look()
	})
}

// run ends stale watches, and sends the progress that is due. Called by the stream's pump.
func (p *progress) run(*pump.Scratch) (again bool) {
	if p.agingNow() {
		p.s.endStale()
	}
	reached := p.s.reached()
	answer, waiting := p.dueAt(reached)
	if waiting > 0 {
		for _, w := range p.s.list() {
			if w.phase == live {
				w.inner.WakeAt(waiting)
			}
		}
	}
	if !answer {
		return false
	}
	m := &shardwatchv1.Progress{Revision: int64(reached.revision), Age: ageMessage(p.sentAge(reached.revision))}
	if now := time.Now(); now.Sub(p.markAt) > heldBack {
		p.before, p.mark, p.markAt = p.mark, reached.furthest, now
	}
	if reached.revision < p.before {
		m.HeldBackByShard = uint64(reached.last)
	}
	tokens := p.tokens.Load() // a client that asks for tokens after this answer gets them with the next one
	p.s.send(&shardwatchv1.WatchResponse{Detail: &shardwatchv1.WatchResponse_Progress{Progress: m}})
	for _, w := range p.s.list() {
		w.told(reached.revision)
	}
	if tokens {
		p.sendTokens(reached.revision)
	}
	return false
}

// tokensPerMessage bounds a message with tokens, of which each has at most 50 bytes.
const tokensPerMessage = 1000

// sendTokens sends the resume tokens of the stream's watches. Called by the stream's pump.
func (p *progress) sendTokens(revision kv.Revision) {
	for watches := range slices.Chunk(p.s.list(), tokensPerMessage) {
		m := &shardwatchv1.Progress{Revision: int64(revision)}
		for _, w := range watches {
			if w.phase == creating || w.phase == over {
				continue
			}
			if at, ok := w.position(); ok {
				m.WatchIds, m.ResumeTokens = append(m.WatchIds, w.id), append(m.ResumeTokens, w.token(at))
			}
		}
		if len(m.GetWatchIds()) > 0 && !p.s.send(&shardwatchv1.WatchResponse{Detail: &shardwatchv1.WatchResponse_Progress{Progress: m}}) {
			return
		}
	}
}

// dueAt reports whether an answer is due, and the revision that a pending request
// waits for (0: none).
func (p *progress) dueAt(r reached) (answer bool, waiting kv.Revision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer, p.due = p.due, false
	if !p.known {
		return answer, 0
	}
	if r.revision >= p.wanted || r.idle {
		p.asking, p.known = false, false
		if p.again && !p.stopped {
			p.askLocked()
		}
		return true, 0
	}
	if !p.stopped {
		p.poll.Reset(pollProgress)
	}
	return answer, p.wanted
}

// reached is the common position of a stream's watches.
type reached struct {
	revision kv.Revision // everything up to it is sent to all watches that have started
	last     shard.ID    // the shard that is furthest behind
	furthest kv.Revision // the progress of the shard that is furthest ahead
	idle     bool        // the stream has no watch
}

// reached returns the common position of the watches. While a unit is being sent, its watch
// counts with its position before the unit, or 0 if it had none. The position is also 0 while
// no watch has started. Called by the stream's pump.
func (s *stream) reached() reached {
	watches := s.list()
	r := reached{revision: math.MaxInt64, idle: len(watches) == 0}
	for _, w := range watches {
		switch w.phase {
		case syncing, opening:
			if at := w.reached(); at < r.revision {
				r.revision, r.last = at, 0
			}
		case live:
			at, behind := w.inner.Progress()
			if at = min(at, w.reached()); at < r.revision {
				r.revision, r.last = at, behind
			}
			// A watch that waits for a future revision does not show the
			// position of the shards.
			if furthest := w.inner.Furthest(); furthest > w.begin {
				r.furthest = max(r.furthest, furthest)
			}
		case creating, over:
		}
	}
	if r.revision == math.MaxInt64 {
		r.revision = 0
	}
	return r
}
