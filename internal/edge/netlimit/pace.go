package netlimit

import (
	"net/netip"
	"sync"
	"time"
)

// paces bound the bytes per second that the clients of an address send. To read and refuse
// them costs CPU, about 1 ms for 1 MiB, and a process that is never idle looks at the network
// every 10 ms only, so that all its clients wait. The zero paces are ready.
type paces struct {
	mu   sync.Mutex
	paid map[netip.Prefix]time.Time // when an address may have sent its bytes at its rate; guarded by mu; maxPaces at most
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
)

// count counts n bytes of an address, and returns how long it has to wait.
func (p *paces) count(network netip.Prefix, n int, perSecond int64, now time.Time) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.paid[network]
	if !known && len(p.paid) >= maxPaces && !p.forgetLocked(now) {
		return 0
	}
	if p.paid == nil {
		p.paid = make(map[netip.Prefix]time.Time)
	}
	if earliest := now.Add(-paceBurst); at.Before(earliest) {
		at = earliest
	}
	at = at.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
	p.paid[network] = at
	return max(at.Sub(now), 0)
}

// forgetLocked forgets the addresses that may send a burst again, and reports whether there
// were any.
func (p *paces) forgetLocked(now time.Time) bool {
	before := len(p.paid)
	for network, at := range p.paid {
		if !at.After(now.Add(-paceBurst)) {
			delete(p.paid, network)
		}
	}
	return len(p.paid) < before
}
