package client

import (
	"slices"
	"time"
)

const (
	penaltyBase = time.Second
	penaltyMax  = 10 * time.Second
	// drainPenalty is how long a node that said it goes away is left alone,
	// if it was never heard from again.
	drainPenalty = 5 * time.Second
)

// penalty is a node's time in the penalty box: it is asked only when no node
// else is left.
type penalty struct {
	failures int
	until    time.Time
}

// penalties is the box, by address. The zero value is empty. It is a value
// without a clock: the caller locks, and brings the time.
type penalties struct {
	box map[string]penalty
}

// add puts an address into the box, longer with every failure in a row and
// for atLeast.
func (p *penalties) add(addr string, now time.Time, atLeast time.Duration) {
	if p.box == nil {
		p.box = map[string]penalty{}
	}
	b := p.box[addr]
	b.failures++
	d := penaltyMax
	if b.failures < 5 {
		d = min(penaltyBase<<(b.failures-1), penaltyMax)
	}
	b.until = now.Add(max(d, atLeast))
	p.box[addr] = b
}

// boxed says that an address is in the box.
func (p *penalties) boxed(addr string, now time.Time) bool { return now.Before(p.box[addr].until) }

// clear says that an address works.
func (p *penalties) clear(addr string) { delete(p.box, addr) }

// choose returns the best of addrs: the first that is neither in the box nor
// among those tried; else the one that was tried longest ago; else the one that
// leaves the box first. Empty when addrs is.
func (p *penalties) choose(addrs []string, tried tried, now time.Time) string {
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

// tried are addresses where it did not go well since it last did, the latest
// last.
type tried []string

// add adds an address, or makes it the latest.
func (t *tried) add(addr string) {
	*t = append(slices.DeleteFunc(*t, func(a string) bool { return a == addr }), addr)
}
