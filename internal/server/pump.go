package server

import (
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// conn is a client's connection: the list of its tasks that have something to
// do, and the pump that does them.
type conn struct {
	pumps *sync.WaitGroup // the server's

	mu       sync.Mutex
	work     sync.Cond   // the pump in charge waits on it for ready to grow
	idle     sync.Cond   // who closes a stream waits on it for busy to end
	ready    []*task     // guarded by mu; tasks to run, first come first served
	streams  int         // guarded by mu; no stream: no pump
	pump     int         // guarded by mu; number of the pump in charge
	steps    uint64      // guarded by mu; grows with every task begun
	running  bool        // guarded by mu; the pump in charge runs a task
	watching bool        // guarded by mu; the watchdog is set
	seen     uint64      // guarded by mu; steps at the watchdog's last look
	dog      *time.Timer // set once, with the first stream
}

// stuckAfter is how long a task may run before the connection's other streams
// get another pump. A task sends a bounded amount, so it takes that long only
// when its stream's flow control stops it.
const stuckAfter = 20 * time.Millisecond

// slowFor is how long a stream that has stopped a pump is served apart from
// the others.
const slowFor = time.Second

// task is something to do for a stream that is done by the pump: one at a time
// for each stream.
type task struct {
	s      *stream
	queued bool // guarded by conn.mu
	closed bool // guarded by conn.mu; never to run again
	// run does it. It reports whether there is more to do at once.
	run func(*scratch) (again bool)
}

// scratch is a pump's own memory, used again for every task.
type scratch struct {
	events []*kv.Event
}

func newConn(pumps *sync.WaitGroup) *conn {
	c := &conn{pumps: pumps}
	c.work.L, c.idle.L = &c.mu, &c.mu
	return c
}

// open counts a stream in, and starts the pump with the first.
func (c *conn) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams++
	if c.streams == 1 {
		c.startLocked()
	}
}

// close counts a stream out; its tasks must be closed. With the last, the
// pump ends.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams--
	if c.streams == 0 {
		c.pump++
		c.ready = nil
		c.work.Signal()
	}
}

func (c *conn) startLocked() {
	c.pump++
	c.running = false
	me := c.pump
	c.pumps.Go(func() { c.serve(me) })
}

// enqueue puts the task on the list, unless it is there.
func (c *conn) enqueue(t *task) {
	c.mu.Lock()
	c.enqueueLocked(t)
	c.mu.Unlock()
}

func (c *conn) enqueueLocked(t *task) {
	if t.queued || t.closed {
		return
	}
	t.queued = true
	if t.s.busy { // the pump that runs the stream takes it from there
		t.s.parked = append(t.s.parked, t)
		return
	}
	c.ready = append(c.ready, t)
	c.work.Signal()
}

// serve is the pump with number me. Superseded while it is at a stream, it
// stays with that one until the stream has nothing left, then ends.
func (c *conn) serve(me int) {
	var own scratch
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pump == me {
		t := c.takeLocked()
		if t == nil {
			c.work.Wait()
			continue
		}
		if s := t.s; !s.slowUntil.IsZero() {
			if time.Now().Before(s.slowUntil) {
				c.startLocked() // before it stops this one again
				c.stayLocked(s, t, &own)
				return
			}
			s.slowUntil = time.Time{}
		}
		c.steps++
		c.running = true
		c.guardLocked()
		again := c.runLocked(t, &own)
		if c.pump != me {
			if again {
				c.enqueueLocked(t)
			}
			c.stayLocked(t.s, nil, &own)
			return
		}
		c.running = false
		t.s.busy = false
		if again {
			c.enqueueLocked(t)
		}
		c.unparkLocked(t.s)
		c.idle.Broadcast()
	}
}

// runLocked runs the task, without the lock.
func (c *conn) runLocked(t *task, own *scratch) (again bool) {
	c.mu.Unlock()
	defer c.mu.Lock()
	return t.run(own)
}

// stayLocked serves the busy stream s alone: t, unless it is nil, then what is
// parked. What the stream sends within slowFor from then on does not go through
// the pump in charge either: each time, that would stand still for all others.
func (c *conn) stayLocked(s *stream, t *task, own *scratch) {
	if t == nil {
		t = s.nextLocked()
	}
	for ; t != nil; t = s.nextLocked() {
		if c.runLocked(t, own) {
			c.enqueueLocked(t) // behind what is parked
		}
	}
	s.slowUntil = time.Now().Add(slowFor)
	s.busy = false
	c.idle.Broadcast()
}

// nextLocked takes the first parked task that may run, or returns nil.
func (s *stream) nextLocked() *task {
	for len(s.parked) > 0 {
		t := s.parked[0]
		s.parked[0] = nil
		s.parked = s.parked[1:]
		t.queued = false
		if !t.closed {
			return t
		}
	}
	s.parked = nil
	return nil
}

// takeLocked takes the next task whose stream no pump is at, and marks the
// stream busy.
func (c *conn) takeLocked() *task {
	for len(c.ready) > 0 {
		t := c.ready[0]
		c.ready[0] = nil
		c.ready = c.ready[1:]
		switch {
		case t.closed:
		case t.s.busy: // queued before its stream was
			t.s.parked = append(t.s.parked, t)
		default:
			t.queued = false
			t.s.busy = true
			return t
		}
	}
	c.ready = nil
	return nil
}

// unparkLocked puts back the tasks that came while their stream was busy.
func (c *conn) unparkLocked(s *stream) {
	if len(s.parked) == 0 {
		return
	}
	c.ready = append(c.ready, s.parked...)
	clear(s.parked)
	s.parked = s.parked[:0]
}

// guardLocked sets the watchdog.
func (c *conn) guardLocked() {
	if c.watching {
		return
	}
	c.watching = true
	c.seen = c.steps
	if c.dog == nil {
		c.dog = time.AfterFunc(stuckAfter, c.look)
	} else {
		c.dog.Reset(stuckAfter)
	}
}

// look is the watchdog: a pump that is still at the task it was at before gets
// a successor, and stays with that stream when it comes back.
func (c *conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.running || c.streams == 0:
		c.watching = false
		return
	case c.seen == c.steps:
		c.startLocked()
		c.watching = false
		return
	}
	c.seen = c.steps
	c.dog.Reset(stuckAfter)
}
