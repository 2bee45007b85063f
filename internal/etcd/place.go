package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// place is the place of one consumer on the shared stream.
type place struct {
	m      *mux
	r      kv.Range
	joined chan<- kv.Revision // gets the revision at which the place begins
	ready  chan struct{}      // signals updates to take

	// turn is held by the consumer's goroutine except while it waits for updates here. The holder
	// reports to the consumer.
	turn   sync.Mutex
	report func(kv.Revision) bool // guarded by turn; takes progress directly; may be nil

	// Guarded by m.mu.
	on    *upstream   // brings the updates
	next  *upstream   // will bring the updates instead; nil: none forms
	at    kv.Revision // etcd's revision at the announcement of the first watch of the place; 0: not announced yet
	done  kv.Revision // everything after at and up to here was queued
	queue []kv.Update
	loud  bool // events are queued for which the consumer is not woken yet
	bytes int
	wants kv.Revision // the highest revision that the consumer waits for
	asked time.Time   // when it last waited for one
	given kv.Revision // the consumer has taken everything up to here
	taken time.Time   // when it last took updates
	left  error       // why the watch is no longer here: a leaving, or the end of the stream
}

const (
	// placeBytes bounds the queued updates of one place. One revision is queued
	// regardless of its size, because it is received in one piece.
	placeBytes = 1 << 20
	// updateBytes is the memory of an update without its events.
	updateBytes = 256
	// eagerFor is how long a consumer that has waited for a revision gets progress without
	// waiting for it.
	eagerFor = time.Second
)

// leaving is the reason why a watch continues on a separate stream.
type leaving string

const (
	leftFull     leaving = "its consumer is slow"
	leftStuck    leaving = "it may keep etcd from reporting progress"
	leftEnded    leaving = "etcd ended it there"
	leftRefused  leaving = "etcd refused it there"
	leftLogin    leaving = "the login of the shared stream has expired"
	leftOversize leaving = "a response was too large"
	leftDone     leaving = "it is not needed any more"
)

// Error implements error.
func (l leaving) Error() string { return "the watch left the shared stream: " + string(l) }

// begin notes that etcd has announced the first watch of a place.
func (p *place) begin(at kv.Revision) {
	p.at, p.done = at, at
	p.m.stale = true
	select {
	case p.joined <- at:
	default: // the last revision is not taken yet, and does as well
	}
}

// leave releases the place. The last place waits until the stream has ended.
func (p *place) leave() {
	p.m.mu.Lock()
	p.m.leaveLocked(p, leftDone)
	last := p.m.places == 0
	p.m.mu.Unlock()
	if last {
		<-p.m.done
	}
}

// begins returns the revision after which everything comes here; 0: it is not known yet,
// or there is no place.
func (p *place) begins() kv.Revision {
	if p == nil {
		return 0
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.left != nil {
		return 0
	}
	return p.at
}

// lost reports whether the watch has no place and may take another one.
func (p *place) lost() bool {
	if p == nil {
		return true
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.left != nil && !errors.Is(p.left, leftRefused)
}

// take returns the queued updates, and why the watch left if it did. Later updates may
// reuse old.
func (p *place) take(old []kv.Update) ([]kv.Update, error) {
	if clear(old); cap(old) > reused {
		old = nil
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	queue := p.queue
	p.queue, p.bytes, p.given, p.taken = old[:0], 0, p.done, time.Now()
	return queue, p.left
}

// await wakes the consumer when everything up to revision is here, and asks etcd for it
// if needed.
func (p *place) await(revision kv.Revision) {
	p.m.mu.Lock()
	p.wants, p.asked = max(p.wants, revision), time.Now()
	here := p.done >= revision
	p.m.mu.Unlock()
	if here {
		wake(p.ready)
		return
	}
	p.m.want.Ask(revision)
}

// pass reports the queued progress to the consumer, if the consumer waits and no events are
// queued. Otherwise it wakes the consumer. The receiving goroutine calls it: one answer of etcd
// reaches all consumers without waking a goroutine for each.
func (p *place) pass() {
	if p.turn.TryLock() {
		reported := p.passLocked()
		p.turn.Unlock()
		if reported {
			return
		}
	}
	wake(p.ready)
}

// passLocked is pass for the holder of the turn. It returns false if the consumer has to take updates.
func (p *place) passLocked() bool {
	p.m.mu.Lock()
	quiet, revision := p.left == nil && len(p.queue) == 1 && p.queue[0].Kind == kv.UpdateProgress, p.done
	p.m.mu.Unlock()
	if !quiet || p.report == nil || !p.report(revision) {
		return false
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.queue, p.bytes, p.given, p.taken = p.queue[:0], 0, p.done, time.Now()
	return true
}

// wait waits until there are updates. Meanwhile progress may be reported directly.
func (p *place) wait(ctx context.Context) error {
	p.turn.Unlock()
	defer p.turn.Lock()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ready:
		return nil
	}
}

// ride emits the updates at the place of a watch, from p on, until the watch leaves.
func (c *Client) ride(ctx context.Context, at *place, req *kv.FollowRequest, p *position, emit func(kv.Update) bool) error {
	defer at.leave()
	defer req.Want.Serve(p.from-1, at.await)()
	if req.Progress != nil {
		at.report = func(revision kv.Revision) bool {
			if revision >= p.from {
				if !req.Progress(revision) {
					return false
				}
				c.count.brought(&kv.Update{Kind: kv.UpdateProgress})
				p.from = revision + 1
			}
			return true
		}
	}
	var updates []kv.Update
	for {
		var left error
		updates, left = at.take(updates)
		for _, u := range updates {
			if u.Revision < p.from {
				continue // it came before the watch moved
			}
			c.count.brought(&u)
			if !emit(u) {
				return errEnough
			}
			p.from = u.Revision + 1
		}
		if left != nil {
			return left
		}
		if err := at.wait(ctx); err != nil {
			return err
		}
	}
}
