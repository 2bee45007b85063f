package authz

import (
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// limit is a limit of policy.Limits.
type limit uint8

const (
	connections limit = iota
	streams
	watches
	creates
	listBytes
	watchKeyBytes
	requestBytes

	limits
)

// String returns the limit as policies name it.
func (l limit) String() string {
	return [...]string{"connections", "streams", "watches", "creates_per_second", "list_bytes", "watch_key_bytes", "request_bytes"}[l]
}

// usage counts the connections, watches and bytes of one identity at this node.
type usage struct {
	open    [limits]atomic.Int64 // counts of limits that are not rates
	creates atomic.Pointer[rate.Limiter]
	refused *rate.Limiter // rate of refusals

	conns int // guarded by ledger.mu; connections with this usage
}

func newUsage(refusals int) *usage {
	return &usage{refused: rate.NewLimiter(rate.Limit(refusals), max(1, refusals/10))}
}

// take adds n to a count unless the sum would exceed most; 0: no limit. The first item may exceed most, because
// it would otherwise be refused forever.
func (u *usage) take(l limit, n, most int64) bool {
	for {
		have := u.open[l].Load()
		if most > 0 && have > 0 && have+n > most {
			return false
		}
		if u.open[l].CompareAndSwap(have, have+n) {
			return true
		}
	}
}

// rate returns the limiter of creates. A changed limit starts a new limiter.
func (u *usage) rate(most int64) *rate.Limiter {
	want := rate.Inf
	if most > 0 {
		want = rate.Limit(most)
	}
	l := u.creates.Load()
	if l == nil || l.Limit() != want {
		fresh := rate.NewLimiter(want, int(min(most, 1<<30)))
		if !u.creates.CompareAndSwap(l, fresh) {
			return u.creates.Load() // another goroutine's, as new
		}
		l = fresh
	}
	return l
}

// idle reports whether no call is open: then nothing else is open.
func (u *usage) idle() bool { return u.open[streams].Load() == 0 }

func (u *usage) give(l limit, n int64) { u.open[l].Add(-n) }

// ledger has the usage of identities. It keeps the usage of disconnected identities while there is room, so
// that reconnecting does not reset limits.
type ledger struct {
	max      int
	refusals int // see Config.RefusalsPerSecond

	mu     sync.Mutex
	known  map[string]*usage // guarded by mu
	others *usage            // shared by all identities beyond MaxIdentities
}

func (l *ledger) init(cfg *Config) {
	l.max, l.refusals = cfg.MaxIdentities, cfg.RefusalsPerSecond
	l.known, l.others = make(map[string]*usage), newUsage(l.refusals)
}

// join returns an identity's usage for another connection. Call leave when the connection ends.
func (l *ledger) join(name string) *usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.known[name]
	if u == nil {
		if u = l.others; len(l.known) < l.max || l.dropLocked() {
			u = newUsage(l.refusals)
			l.known[name] = u
		}
	}
	u.conns++
	return u
}

func (l *ledger) leave(u *usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u.conns--
}

// maxLooks bounds the search of dropLocked.
const maxLooks = 64

// dropLocked removes a disconnected identity, and reports whether it found one.
func (l *ledger) dropLocked() bool {
	looks := 0
	for name, u := range l.known {
		if u.conns == 0 {
			delete(l.known, name)
			return true
		}
		if looks++; looks == maxLooks {
			break
		}
	}
	return false
}

// size returns the numbers of identities and of connections that share one usage.
func (l *ledger) size() (identities, shared int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.others != nil {
		shared = int64(l.others.conns)
	}
	return int64(len(l.known)), shared
}
