package server

import (
	"math"
	"sync"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// progress tells a stream's client how far it is: at an interval, and when it
// asks.
type progress struct {
	s    *stream
	task task

	mu       sync.Mutex
	timer    *time.Timer   // guarded by mu
	interval time.Duration // guarded by mu
	stopped  bool          // guarded by mu
	due      bool          // guarded by mu; the interval is over
	wanted   []kv.Revision // guarded by mu; requests, each to be answered at this revision

	// Owned by the pump: how far the furthest watch was at that time, to tell
	// whether another one lags by more than heldBack.
	mark   kv.Revision
	markAt time.Time
}

// pollProgress is how often a request that waits for shards is looked at. What
// it waits for takes a round trip to etcd.
const pollProgress = 10 * time.Millisecond

// heldBack is how long a watch must have lagged before its shard is named.
const heldBack = time.Second

func (p *progress) start(s *stream, interval time.Duration) {
	p.s = s
	p.task = task{s: s, run: p.run}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interval = interval
	p.timer = time.AfterFunc(interval, p.fire)
}

func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.timer.Stop()
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
	p.s.conn.enqueue(&p.task)
}

// request answers once everything up to etcd's present revision was sent; when
// etcd does not tell it, with what there is.
func (p *progress) request() {
	p.s.opening.Go(func() {
		now, err := p.s.srv.cfg.Router.Now(p.s.ctx)
		if err != nil {
			now = 0
		}
		p.mu.Lock()
		p.wanted = append(p.wanted, now)
		p.mu.Unlock()
		p.s.conn.enqueue(&p.task)
	})
}

// run is the stream's own turn: for the pump that is at it.
func (p *progress) run(*scratch) (again bool) {
	reached := p.s.reached()
	answer, waiting := p.dueAt(reached.revision)
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
	m := &shardwatchv1.Progress{Revision: int64(reached.revision)}
	if now := time.Now(); now.Sub(p.markAt) > heldBack {
		if reached.revision < p.mark {
			m.HeldBackByShard = uint64(reached.last)
		}
		p.markAt, p.mark = now, reached.highest
	}
	p.s.send(&shardwatchv1.WatchResponse{Detail: &shardwatchv1.WatchResponse_Progress{Progress: m}})
	return false
}

// dueAt reports whether an answer is due at revision, and the highest revision
// that is still waited for (0: none).
func (p *progress) dueAt(revision kv.Revision) (answer bool, highest kv.Revision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer = p.due
	p.due = false
	waiting := p.wanted[:0]
	for _, wanted := range p.wanted {
		if wanted <= revision {
			answer = true
			continue
		}
		waiting = append(waiting, wanted)
		highest = max(highest, wanted)
	}
	p.wanted = waiting
	if highest > 0 && !p.stopped {
		time.AfterFunc(pollProgress, func() { p.s.conn.enqueue(&p.task) })
	}
	return answer, highest
}

// reached is how far a stream's watches are.
type reached struct {
	revision kv.Revision // everything up to it was sent, for all that have started
	last     shard.ID    // the shard that is furthest behind
	highest  kv.Revision // the same for the watch that is furthest ahead
}

// reached returns how far the watches are: for the pump that is at the stream.
func (s *stream) reached() reached {
	r := reached{revision: math.MaxInt64}
	for _, w := range s.list() {
		var at kv.Revision
		var behind shard.ID
		switch w.phase {
		case live:
			at, behind = w.inner.Progress()
		case syncing:
			at = w.begin - 1 // the unit counts when it is complete
		default:
			continue
		}
		if at < r.revision {
			r.revision, r.last = at, behind
		}
		r.highest = max(r.highest, at)
	}
	if r.revision == math.MaxInt64 {
		r.revision = 0
	}
	return r
}
