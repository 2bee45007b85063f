package membership

import (
	"sync"
	"time"
)

// quiet finds out whether memberlist's view has changed, without reading it.
// memberlist reports joins, departures and new metadata, and neither suspicions nor
// their end. But it gossips every change of its view, and it asks for our broadcasts
// once it knows how much of a packet its own messages take. So a request for a whole
// packet means that memberlist has no change to gossip, and when a round of gossip
// passes without such a request, it has.
//
// This is sure to see a change that is sent in two rounds at least. With fewer than
// ten members memberlist sends a message four times, some of them with probes, which
// may be one round: watch sees such a suspicion with its next look, up to lookInterval
// later.
type quiet struct {
	interval time.Duration // between two rounds of gossip

	mu    sync.Mutex
	whole int       // bytes of a packet without memberlist's messages; guarded by mu
	last  time.Time // when a whole packet was offered; guarded by mu
}

// offered takes a request for broadcasts of so many bytes. It reports whether the
// first quiet round after a change ends here.
func (q *quiet) offered(now time.Time, bytes int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if bytes < q.whole {
		return false
	}
	changed := q.busyLocked(now)
	q.whole, q.last = bytes, now
	return changed
}

// busy reports whether memberlist gossips changes.
func (q *quiet) busy(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.busyLocked(now)
}

// busyLocked reports whether a round has passed; half of one is for late timers.
func (q *quiet) busyLocked(now time.Time) bool { return now.Sub(q.last) >= q.interval*3/2 }

const (
	// smallView is how many members may be looked at in each ViewInterval. A larger view
	// is looked at less often while memberlist is quiet, so that rest costs the same
	// whatever the number of members.
	smallView = 10
	// restViews is how many times as long as ViewInterval a look comes after the last one
	// at the least, while memberlist is quiet. A look is an exchange between two
	// memberlists, some ten switches of goroutines.
	restViews = 5
)

// lookInterval is the time between two looks at members while memberlist is quiet.
func lookInterval(view time.Duration, members int) time.Duration {
	return view * time.Duration(max(restViews, members/smallView))
}
