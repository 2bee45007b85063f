package server

import (
	"net"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// openings lets in the watches that have to wait for etcd or other nodes before
// they begin. When a node dies or a rollout starts, they come all at once. So
// they are opened at a bounded number at a time, one for each connection in
// turn; one that waits is an entry in a list, and beyond a number of those a
// watch is told when to come again. Watches that begin with what is here are no
// burden, and do not wait behind the others.
type openings struct {
	atATime, maxWaiting int

	mu      sync.Mutex
	running int                    // guarded by mu
	waiting int                    // guarded by mu; of all queues
	turns   []net.Addr             // guarded by mu; the connections that have some, in turn
	queues  map[net.Addr][]opening // guarded by mu
	usually time.Duration          // guarded by mu; what one takes, of late
}

// opening is a watch that is to be opened.
type opening struct {
	w  *watch
	at start
}

// Bounds of openings.
const (
	openAtATime    = 1000
	maxOpenWaiting = 100_000
	// Bounds of when to come again.
	minComeAgain = time.Second
	maxComeAgain = 30 * time.Second
)

func newOpenings() *openings {
	return &openings{atATime: openAtATime, maxWaiting: maxOpenWaiting, queues: make(map[net.Addr][]opening)}
}

// open opens the watch beside its stream, now or in its turn. It fails with a
// *kv.LimitError when too many wait.
func (o *openings) open(x opening) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.running < o.atATime:
		o.startLocked(x)
	case o.waiting >= o.maxWaiting:
		return &kv.LimitError{
			Limit: "watches that wait to be opened", Max: int64(o.maxWaiting), RetryAfter: o.comeAgainLocked(),
			Detail: "too many watches begin at this node at once: come again, or go to another one",
		}
	default:
		from := x.w.s.from
		if len(o.queues[from]) == 0 {
			o.turns = append(o.turns, from)
		}
		o.queues[from] = append(o.queues[from], x)
		o.waiting++
	}
	return nil
}

// comeAgainLocked returns when those that wait will have been opened, about:
// clients spread themselves over that time.
func (o *openings) comeAgainLocked() time.Duration {
	return min(max(time.Duration(o.waiting/o.atATime)*o.usually, minComeAgain), maxComeAgain)
}

// startLocked opens the watch, unless its stream is closing.
func (o *openings) startLocked(x opening) (started bool) {
	started = x.w.s.spawn(func() {
		began := time.Now()
		if x.w.ending.Load() != nil { // while it waited
			x.w.task.Start()
		} else {
			x.w.open(x.w.s.ctx, x.at)
		}
		o.done(time.Since(began))
	})
	if started {
		o.running++
	}
	return started
}

// done gives the place to the next one.
func (o *openings) done(took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running--
	o.usually += (took - o.usually) / 16
	for o.waiting > 0 {
		from := o.turns[0]
		o.turns = o.turns[1:]
		q := o.queues[from]
		x := q[0]
		q[0] = opening{}
		if q = q[1:]; len(q) == 0 {
			delete(o.queues, from)
		} else {
			o.queues[from] = q
			o.turns = append(o.turns, from)
		}
		o.waiting--
		if o.startLocked(x) {
			return
		}
	}
}

// Openings returns how many watches of the native API are being opened with the
// help of etcd or other nodes, and how many wait for that.
func (s *Server) Openings() (running, waiting int) {
	o := s.openings
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.running, o.waiting
}
