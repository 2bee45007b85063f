package netlimit

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// penalties slow down the addresses whose connections were ended because they flooded the
// node: such a client comes back at once, and each time costs a handshake and the flood
// until it is noticed. While an address has a penalty, its connections begin at a bounded
// rate, so that clients which share the address with it still get in. Its open connections
// are left alone. The zero penalties are none.
type penalties struct {
	mu   sync.Mutex
	of   map[netip.Prefix]*list.Element // guarded by mu; maxPenalties at most
	list list.List                      // of *penalty, that of the latest flood last; guarded by mu
}

// penalty is an address's.
type penalty struct {
	network netip.Prefix
	ends    time.Time
	next    time.Time // when its next connection may begin
}

const (
	// penaltyTime is the duration of a penalty after the latest flood.
	penaltyTime = 30 * time.Second
	// penaltyPace is the time between two connections of an address with a penalty, and
	// penaltyQueue how many of them may wait. Excess ones are closed at once.
	penaltyPace  = 200 * time.Millisecond
	penaltyQueue = 10
	// maxPenalties bounds the addresses with a penalty. An excess one ends the oldest penalty.
	maxPenalties = 4096
)

// punish gives an address a penalty, or prolongs the one that it has.
func (p *penalties) punish(network netip.Prefix, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.of[network]; ok {
		e.Value.(*penalty).ends = now.Add(penaltyTime) //nolint:forcetypeassert // all are
		p.list.MoveToBack(e)
		return
	}
	if p.of == nil {
		p.of = make(map[netip.Prefix]*list.Element)
	}
	p.of[network] = p.list.PushBack(&penalty{network: network, ends: now.Add(penaltyTime), next: now})
	if len(p.of) > maxPenalties {
		p.endLocked(p.list.Front())
	}
}

func (p *penalties) endLocked(e *list.Element) {
	delete(p.of, p.list.Remove(e).(*penalty).network) //nolint:forcetypeassert // all are
}

// enter returns how long a new connection of an address has to wait, and false when too
// many wait.
func (p *penalties) enter(network netip.Prefix, now time.Time) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.list.Front(); e != nil && !now.Before(e.Value.(*penalty).ends); e = p.list.Front() { //nolint:forcetypeassert // all are
		p.endLocked(e)
	}
	e, ok := p.of[network]
	if !ok {
		return 0, true
	}
	of, _ := e.Value.(*penalty)
	if of.next.Before(now) {
		of.next = now
	}
	wait = of.next.Sub(now)
	if wait >= penaltyQueue*penaltyPace {
		return 0, false
	}
	of.next = of.next.Add(penaltyPace)
	return wait, true
}

// Punish slows down new connections of the address of a connection that has flooded the
// node, at the connection's port. c may wrap a connection that is counted.
func Punish(c net.Conn) {
	counted := countedOf(c)
	if counted == nil {
		return
	}
	if network := NetworkOf(counted.RemoteAddr()); network.IsValid() {
		l := counted.limit
		l.tell("a connection was ended because its client floods the node: more from its address are slowed down", "from", address(counted))
		l.penalties.punish(network, time.Now())
	}
}

// countedOf returns the counted connection beneath c; nil: there is none.
func countedOf(c net.Conn) *Conn {
	for c != nil {
		if counted, ok := c.(*Conn); ok {
			return counted
		}
		wraps, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = wraps.NetConn()
	}
	return nil
}

// wayIn delays the first read of a connection whose address has a penalty.
type wayIn struct {
	after  time.Time
	closed chan struct{} // closed when it need not wait any longer
}

// wait returns when the connection may begin, or has ended.
func (w *wayIn) wait() {
	timer := time.NewTimer(time.Until(w.after))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.closed:
	}
}
