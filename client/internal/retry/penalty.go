package retry

import (
	"slices"
	"time"
)

const (
	penaltyBase = time.Second
	penaltyMax  = 10 * time.Second
)

// Penalty returns how long to leave alone what has failed so many times in a row: a
// second after the first failure, twice as long after each further one, up to 10 s.
func Penalty(failures int) time.Duration {
	return min(penaltyBase<<min(max(failures-1, 0), 5), penaltyMax)
}

// penalty is a node's time in the penalty box: it is asked only when no node
// else is left.
type penalty struct {
	failures int
	until    time.Time
}

// Penalties is the box, by address. The zero value is empty. It is a value
// without a clock: the caller locks, and brings the time.
type Penalties struct {
	box map[string]penalty
}

// Add puts an address into the box, longer with every failure in a row and
// for atLeast.
func (p *Penalties) Add(addr string, now time.Time, atLeast time.Duration) {
	if p.box == nil {
		p.box = map[string]penalty{}
	}
	b := p.box[addr]
	b.failures++
	b.until = now.Add(max(Penalty(b.failures), atLeast))
	p.box[addr] = b
}

// Boxed reports whether an address is in the box.
func (p *Penalties) Boxed(addr string, now time.Time) bool { return now.Before(p.box[addr].until) }

// Clear reports that an address works.
func (p *Penalties) Clear(addr string) { delete(p.box, addr) }

// Choose returns the best of addrs: the first that is neither in the box nor
// among those tried; else the one that was tried longest ago; else the one that
// leaves the box first. Empty when addrs is.
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

// Tried are the addresses that have failed since the last success, the latest last.
type Tried []string

// Add adds an address, or makes it the latest.
func (t *Tried) Add(addr string) {
	*t = append(slices.DeleteFunc(*t, func(a string) bool { return a == addr }), addr)
}
