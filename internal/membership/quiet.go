package membership

import (
	"sync"
	"time"
)

// quiet detects changes of memberlist's view without reading it. memberlist reports
// joins, departures and new metadata, but neither suspicions nor their end. However,
// it gossips every change of its view, and it asks for our broadcasts with the space
// that its own messages leave in a packet. A request for a whole packet means that
// memberlist has no change to gossip. A round of gossip without such a request means
// that it has a change.
//
// This reliably detects a change that is sent in at least two rounds. With fewer than
// ten members memberlist sends a message four times, some of them with probes, so it
// may use only one round. Then watch sees the suspicion in its next look, up to
// lookInterval later.
type quiet struct {
	interval time.Duration // between two rounds of gossip

	mu    sync.Mutex
	whole int       // bytes of a packet without memberlist's messages; guarded by mu
	last  time.Time // when a whole packet was offered; guarded by mu
}

// offered records a request for broadcasts of so many bytes. It reports whether
// this is the first quiet round after a change.
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

// busyLocked reports whether a round has passed. The extra half allows for late timers.
func (q *quiet) busyLocked(now time.Time) bool { return now.Sub(q.last) >= q.interval*3/2 }

const (
	// smallView is how many members may be read in each ViewInterval. A larger view is
	// read less often while memberlist is quiet, so that idle costs do not depend on the
	// number of members.
	smallView = 10
	// restViews is the least time between two looks while memberlist is quiet, in
	// ViewIntervals. A look is an exchange between two memberlists, some ten switches of
	// goroutines.
	restViews = 5
)

// lookInterval is the time between two looks at members while memberlist is quiet.
func lookInterval(view time.Duration, members int) time.Duration {
	return view * time.Duration(max(restViews, members/smallView))
}
