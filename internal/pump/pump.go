package pump

import (
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Conn is a client's connection: the list of its tasks that have something to
// do, and the pump that does them. Create it with New.
type Conn struct {
	pumps *sync.WaitGroup
	fan   wire.Fan

	mu       sync.Mutex
	work     sync.Cond   // the pump in charge waits on it for ready to grow
	idle     sync.Cond   // who closes a stream waits on it for busy to end
	ready    []*Task     // guarded by mu; tasks to run, first come first served
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

// Stream is one stream of a connection. One pump at a time is at it.
type Stream struct {
	conn *Conn
	left func() // tells the Connections

	busy      bool      // guarded by conn.mu; a pump is at it
	closed    bool      // guarded by conn.mu; no task of it runs again
	parked    []*Task   // guarded by conn.mu; tasks that came meanwhile
	slowUntil time.Time // guarded by conn.mu; zero, or until when it is served apart
}

// Task is something to do for a stream, again and again: one run at a time for
// each stream. Init it before use; it must not be copied afterwards.
type Task struct {
	s       *Stream
	started bool // guarded by conn.mu
	queued  bool // guarded by conn.mu
	run     func(*Scratch) (again bool)
}

// Scratch is what a pump has for every task it runs.
type Scratch struct {
	Events []*kv.Event
	// Fan is the connection's. It remembers until nothing is left to do.
	Fan *wire.Fan
}

// New returns the Conn of a connection. Its pumps are counted in pumps.
func New(pumps *sync.WaitGroup) *Conn {
	c := &Conn{pumps: pumps}
	c.work.L, c.idle.L = &c.mu, &c.mu
	return c
}

// Open returns a new stream of the connection. Close it.
func (c *Conn) Open() *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams++
	if c.streams == 1 {
		c.startLocked()
	}
	return &Stream{conn: c, left: func() {}}
}

// Close returns when no pump is at the stream any more, and none comes back.
// What is being sent is waited for: it ends when the client reads, or with its
// connection. Call it once.
func (s *Stream) Close() {
	defer s.left()
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.closed = true
	for s.busy {
		c.idle.Wait()
	}
	s.parked = nil
	c.streams--
	if c.streams == 0 {
		c.pump++
		c.ready = nil
		c.work.Signal()
	}
}

// Init makes t a task of s. run reports whether there is more to do at once;
// it is not called before Start.
func (t *Task) Init(s *Stream, run func(*Scratch) (again bool)) { t.s, t.run = s, run }

// Start has the task run, now and whenever it is woken.
func (t *Task) Start() {
	c := t.s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	t.started = true
	c.enqueueLocked(t)
}

// Wake has the task run soon, if it was started. It does not block.
func (t *Task) Wake() {
	c := t.s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.started {
		c.enqueueLocked(t)
	}
}

func (c *Conn) startLocked() {
	c.pump++
	c.running = false
	me := c.pump
	c.pumps.Go(func() { c.serve(me) })
}

// enqueueLocked puts the task on the list, unless it is there.
func (c *Conn) enqueueLocked(t *Task) {
	if t.queued || t.s.closed {
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
func (c *Conn) serve(me int) {
	own := Scratch{Fan: &c.fan}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pump == me {
		t := c.takeLocked()
		if t == nil {
			c.fan.Forget()
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
func (c *Conn) runLocked(t *Task, own *Scratch) (again bool) {
	c.mu.Unlock()
	defer c.mu.Lock()
	return t.run(own)
}

// stayLocked serves the busy stream s alone: t, unless it is nil, then what is
// parked. What the stream sends within slowFor from then on does not go through
// the pump in charge either: each time, that would stand still for all others.
func (c *Conn) stayLocked(s *Stream, t *Task, own *Scratch) {
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

// nextLocked takes the first parked task, or returns nil.
func (s *Stream) nextLocked() *Task {
	if len(s.parked) == 0 || s.closed {
		s.parked = nil
		return nil
	}
	t := s.parked[0]
	s.parked[0] = nil
	s.parked = s.parked[1:]
	t.queued = false
	return t
}

// takeLocked takes the next task whose stream no pump is at, and marks the
// stream busy.
func (c *Conn) takeLocked() *Task {
	for len(c.ready) > 0 {
		t := c.ready[0]
		c.ready[0] = nil
		c.ready = c.ready[1:]
		switch {
		case t.s.closed:
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
func (c *Conn) unparkLocked(s *Stream) {
	if len(s.parked) == 0 {
		return
	}
	c.ready = append(c.ready, s.parked...)
	clear(s.parked)
	s.parked = s.parked[:0]
}

// guardLocked sets the watchdog.
func (c *Conn) guardLocked() {
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
func (c *Conn) look() {
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
