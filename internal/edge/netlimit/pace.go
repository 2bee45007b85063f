package netlimit

import (
	"net/netip"
	"sync"
	"time"
)

// paces bound what the clients of an address have per second, such as the bytes that they send. To read
// and refuse them costs CPU, about 1 ms for 1 MiB, and a process that is never idle looks at the network
// every 10 ms only, so that all its clients wait.
type paces struct {
	burst time.Duration // whose units an address may have at once

	mu   sync.Mutex
	paid map[netip.Prefix]time.Time // when an address may have had its units at its rate; guarded by mu; maxPaces at most
}

const (
	// paceStep is how many bytes a connection reads before they are counted: those of
	// connections with small requests are not.
	paceStep = 64 << 10
	// paceBurst is the time whose bytes an address may send at once.
	paceBurst = 50 * time.Millisecond
	// maxPaces bounds the addresses that are counted. While there are so many that have sent
	// something of late, others are not.
	maxPaces = 4096
	// shakeBurst is the time whose handshakes an address may begin at once, and shakeWait how long one may
	// wait to begin: half of the time that servers give a handshake.
	shakeBurst = 250 * time.Millisecond
	shakeWait  = 5 * time.Second
)

// enter returns how long a new connection of an address has to wait before its handshake, and why it is
// refused if too many wait.
func (l *Limit) enter(network netip.Prefix, now time.Time) (wait time.Duration, refused string, most int) {
	wait, ok := l.penalties.enter(network, now)
	if !ok {
		return 0, "connections are refused: the address has flooded the node", penaltyQueue
	}
	if l.cfg.HandshakesPerSecond == 0 || !network.IsValid() {
		return wait, "", 0
	}
	turn, ok := l.shakes.count(network, 1, int64(l.cfg.HandshakesPerSecond), shakeWait, now)
	if !ok {
		return 0, "connections are refused: one address begins too many TLS handshakes", l.cfg.HandshakesPerSecond
	}
	if turn > 0 {
		l.waits.Add(1)
	}
	return max(wait, turn), "", 0
}

// count counts n units of an address, and returns how long it has to wait. It counts none, and returns
// false, if that is longer than most.
func (p *paces) count(network netip.Prefix, n int, perSecond int64, most time.Duration, now time.Time) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.paid[network]
	if !known && len(p.paid) >= maxPaces && !p.forgetLocked(now) {
		return 0, true
	}
	if p.paid == nil {
		p.paid = make(map[netip.Prefix]time.Time)
	}
	if earliest := now.Add(-p.burst); at.Before(earliest) {
		at = earliest
	}
	at = at.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
	if wait = max(at.Sub(now), 0); wait > most {
		return 0, false
	}
	p.paid[network] = at
	return wait, true
}

// forgetLocked forgets the addresses that may send a burst again, and reports whether there
// were any.
func (p *paces) forgetLocked(now time.Time) bool {
	before := len(p.paid)
	for network, at := range p.paid {
		if !at.After(now.Add(-p.burst)) {
			delete(p.paid, network)
		}
	}
	return len(p.paid) < before
}
