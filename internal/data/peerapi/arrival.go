package peerapi

import (
	"math"
	"sync/atomic"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// arrival rings the heartbeat once, when all shards of a pair have come to a revision that the follower
// has not asked for: progress that is reported without a request. Each of their caches calls
// Wake once.
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

// await has the heartbeat rung when all shards have advanced beyond their last report, if the
// follower wants that. Their sources are not asked for it.
func (p *pair) await() {
	p.mu.Lock()
	pushes, told := p.pushes, kv.Revision(math.MaxInt64)
	var follows []*followed
	for _, f := range p.follows {
		if _, retired := f.home.Reached(0); !retired { // else it advances no more
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

// arrive makes a report due if all shards have advanced. The revision that they have come to counts as asked
// for: a stream that begins later is brought to it, too.
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
