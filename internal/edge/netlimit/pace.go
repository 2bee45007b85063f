package netlimit

import (
	"net/netip"
	"sync"
	"time"
)

// paces bound the rate of each address in units per second, such as the bytes that its clients send.
// Reading and refusing bytes costs CPU, about 1 ms per MiB, and a process that is never idle polls the
// network only every 10 ms, which delays all its clients.
type paces struct {
	burst time.Duration // an address may use the units of this time at once

	mu   sync.Mutex
	paid map[netip.Prefix]time.Time // when the rate of an address covers its units so far; guarded by mu; maxPaces at most
}

const (
	// paceStep is how many bytes a connection reads before they are counted, so that
	// small requests cost no lock.
	paceStep = 64 << 10
	// paceBurst is the burst of bytes: an address may send the bytes of this time at once.
	paceBurst = 50 * time.Millisecond
	// maxPaces bounds the counted addresses. While so many addresses have sent something
	// recently, further addresses are not bounded.
	maxPaces = 4096
	// shakeBurst is the burst of handshakes. shakeWait is how long a handshake may wait to begin: half of
	// the time that servers allow for it.
	shakeBurst = 250 * time.Millisecond
	shakeWait  = 5 * time.Second
)

// enter returns how long a new connection of an address must wait before its handshake. If too many
// connections wait, it returns the log message and the bound of the refusal.
func (l *Limit) enter(network netip.Prefix, now time.Time) (wait time.Duration, refused string, most int) {
	wait, ok := l.penalties.enter(network, now)
	if !ok {
		return 0, "connection refused: its address has flooded the node", penaltyQueue
	}
	if l.cfg.HandshakesPerSecond == 0 || !network.IsValid() {
		return wait, "", 0
	}
	turn, ok := l.shakes.count(network, 1, int64(l.cfg.HandshakesPerSecond), shakeWait, now)
	if !ok {
		return 0, "connection refused: too many TLS handshakes from one address", l.cfg.HandshakesPerSecond
	}
	if turn > 0 {
		l.waits.Add(1)
	}
	return max(wait, turn), "", 0
}

// count counts n units of an address, and returns how long it must wait. If that is longer than most,
// count counts nothing and returns false.
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

// forgetLocked removes the addresses that may use a full burst again, and reports whether there
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
