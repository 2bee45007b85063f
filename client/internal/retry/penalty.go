package retry

import (
	"slices"
	"time"
)

const (
	penaltyBase = time.Second
	penaltyMax  = 10 * time.Second
)

// Penalty returns how long to avoid a node after so many failures in a row: a second
// after the first failure, twice as long after each further one, up to 10 s.
func Penalty(failures int) time.Duration {
	return min(penaltyBase<<min(max(failures-1, 0), 5), penaltyMax)
}

// penalty is the penalty of a node: until it ends, the node is used only if no other is left.
type penalty struct {
	failures int
	until    time.Time
}

// Penalties has the penalised nodes, by address. The zero value is empty. It is a value
// without a clock: the caller locks, and passes the time.
type Penalties struct {
	box map[string]penalty
}

// Add penalises an address, longer with every failure in a row and at least for atLeast.
func (p *Penalties) Add(addr string, now time.Time, atLeast time.Duration) {
	if p.box == nil {
		p.box = map[string]penalty{}
	}
	b := p.box[addr]
	b.failures++
	b.until = now.Add(max(Penalty(b.failures), atLeast))
	p.box[addr] = b
}

// Boxed reports whether an address is penalised.
func (p *Penalties) Boxed(addr string, now time.Time) bool { return now.Before(p.box[addr].until) }

// Clear ends the penalty of an address that works.
func (p *Penalties) Clear(addr string) { delete(p.box, addr) }

// Choose returns the best of addrs: the first that is neither penalised nor tried; else the
// one that was tried longest ago; else the one whose penalty ends first. Empty if addrs is.
func (p *Penalties) Choose(addrs []string, tried Tried, now time.Time) string {
	var second, last string
	var soonest time.Time
	longest := len(tried)
	for _, a := range addrs {
		b, boxed := p.box[a]
		at := slices.Index(tried, a)
		switch {
		case boxed && now.Before(b.until):
			if last == "" || b.until.Before(soonest) {
				last, soonest = a, b.until
			}
		case at < 0:
			return a
		case at < longest:
			second, longest = a, at
		}
	}
	if second != "" {
		return second
	}
	return last
}

// Tried has the addresses that have failed since the last success, the latest last.
type Tried []string

// Add adds an address, or makes it the latest.
func (t *Tried) Add(addr string) {
	*t = append(slices.DeleteFunc(*t, func(a string) bool { return a == addr }), addr)
}
