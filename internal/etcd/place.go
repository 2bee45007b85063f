package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// place is that of one consumer on the shared stream.
type place struct {
	m      *mux
	r      kv.Range
	joined chan<- kv.Revision // told the revision at which the place begins
	ready  chan struct{}      // there is something to take

	// turn is held by the consumer's goroutine except while that waits for updates here. Its owner
	// reports to the consumer.
	turn   sync.Mutex
	report func(kv.Revision) bool // guarded by turn; takes progress directly; may be nil

	// Guarded by m.mu.
	on    *upstream   // brings the updates
	next  *upstream   // will bring them instead; nil: none forms
	at    kv.Revision // etcd's when it announced the first watch of the place; 0: it has not
	done  kv.Revision // everything behind at and up to here was queued
	queue []kv.Update
	loud  bool // events were queued that the consumer is not woken for yet
	bytes int
	wants kv.Revision // the highest revision that the consumer waits for
	asked time.Time   // when it last waited for one
	given kv.Revision // the consumer has taken everything up to here
	taken time.Time   // when it did
	left  error       // why the watch is not here any more: a leaving, or the end of the stream
}

const (
	// placeBytes bounds the updates that wait in one place. One revision is taken
	// regardless of its size, as it is received in one piece.
	placeBytes = 1 << 20
	// updateBytes is the memory of an update without its events.
	updateBytes = 256
	// eagerFor is for how long a consumer that has waited for a revision gets progress without
	// waiting, too.
	eagerFor = time.Second
)

// leaving is why a watch continues on a separate stream.
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
	default: // the last one is not taken yet, and does as well
	}
}

// leave gives the place back. The last one waits until the stream has ended.
func (p *place) leave() {
	p.m.mu.Lock()
	p.m.leaveLocked(p, leftDone)
	last := p.m.places == 0
	p.m.mu.Unlock()
	if last {
		<-p.m.done
	}
}

// begins returns the revision behind which everything comes here; 0: it is not known yet,
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

// lost reports whether there is no place, and another one can be taken.
func (p *place) lost() bool {
	if p == nil {
		return true
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.left != nil && !errors.Is(p.left, leftRefused)
}

// take returns the updates that wait here, and why the watch left if it did. The next
// ones may come in the place of old.
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

// await has the consumer woken when everything up to revision is here, and etcd asked
// for it if need be.
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

// pass reports the progress that waits here to the consumer, if that waits for it and for no
// events. Otherwise it wakes the consumer. The receiving goroutine calls it: one answer of etcd
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

// passLocked is pass for the owner of the turn. It returns false if the consumer has to take updates.
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
