package netlimit

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// penalties slow down addresses whose connections were closed for flooding the node.
// A flooding client reconnects at once, and each time costs a handshake and the flood
// until it is detected. While an address has a penalty, its new connections begin at a
// bounded rate, so that other clients of the address are still served. Its open connections
// are not affected. The zero penalties has no penalty.
type penalties struct {
	mu   sync.Mutex
	of   map[netip.Prefix]*list.Element // guarded by mu; maxPenalties at most
	list list.List                      // of *penalty, the latest flood last; guarded by mu
}

// penalty is the penalty of one address.
type penalty struct {
	network netip.Prefix
	ends    time.Time
	next    time.Time // when its next connection may begin
}

const (
	// penaltyTime is how long a penalty lasts after the latest flood.
	penaltyTime = 30 * time.Second
	// penaltyPace is the time between two connections of an address with a penalty, and
	// penaltyQueue is how many of them may wait. Excess connections are closed at once.
	penaltyPace  = 200 * time.Millisecond
	penaltyQueue = 10
	// maxPenalties bounds the addresses with a penalty. An excess penalty ends the oldest.
	maxPenalties = 4096
)

// punish gives an address a penalty, or extends its penalty.
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

// enter returns how long a new connection of an address must wait, and false when too
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

// Punish slows down new connections from the address of c, at the port of c, because c has
// flooded the node. c may wrap a counted connection.
func Punish(c net.Conn) {
	counted := countedOf(c)
	if counted == nil {
		return
	}
	if network := NetworkOf(counted.RemoteAddr()); network.IsValid() {
		l := counted.limit
		l.tell("connection closed: its client floods the node; new connections from its address are delayed", "from", address(counted))
		l.penalties.punish(network, time.Now())
	}
}

// countedOf returns the counted connection beneath c, or nil.
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

// wayIn delays the first read of a connection whose address has a penalty or begins too many handshakes.
type wayIn struct {
	after  time.Time
	closed chan struct{} // closed when the connection need not wait any longer
}

// wait waits until the connection may begin or ends.
func (w *wayIn) wait() {
	timer := time.NewTimer(time.Until(w.after))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.closed:
	}
}
