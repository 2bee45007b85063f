package peerapi

import (
	"math"
	"sync/atomic"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// arrival wakes the heartbeat once, when all shards of a pair have reached a revision that the follower
// has not requested: unrequested progress. Each of their caches calls Wake once.
type arrival struct {
	pair     *pair
	revision kv.Revision
	missing  atomic.Int32
	forget   []func()
}

// Wake implements cache.Waker.
func (a *arrival) Wake() {
	if a.missing.Add(-1) == 0 {
		a.pair.bell.Wake()
	}
}

// await wakes the heartbeat when all shards have advanced beyond their last report, if the
// follower wants that. It requests nothing from their sources.
func (p *pair) await() {
	p.mu.Lock()
	pushes, told := p.pushes, kv.Revision(math.MaxInt64)
	var follows []*followed
	for _, f := range p.follows {
		if _, retired := f.home.Reached(0); !retired { // else it no longer advances
			follows, told = append(follows, f), min(told, f.told)
		}
	}
	p.mu.Unlock()
	switch {
	case !pushes || len(follows) == 0:
		p.forget()
		return
	case p.next != nil && p.next.revision == told+1:
		return
	}
	p.forget()
	a := &arrival{pair: p, revision: told + 1}
	a.missing.Store(int32(len(follows))) //nolint:gosec // the shards of a node
	for _, f := range follows {
		a.forget = append(a.forget, f.home.NotifyAt(a.revision, a))
	}
	p.next = a
}

// arrive makes a report due if all shards have advanced. The revision that they have reached counts as
// requested: a stream that begins later must reach it, too.
func (p *pair) arrive() {
	a := p.next
	if a == nil || a.missing.Load() > 0 {
		return
	}
	p.next = nil
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pushes {
		p.wanted, p.due = max(p.wanted, a.revision), true
	}
}

// forget ends the wait for all shards to advance.
func (p *pair) forget() {
	if p.next == nil {
		return
	}
	for _, forget := range p.next.forget {
		forget()
	}
	p.next = nil
}
