package pump

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/trail"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Conn is a client's connection: the streams that have something to do, and the
// pump that does it. Create it with New.
type Conn struct {
	pumps *sync.WaitGroup
	fan   *wire.Fan
	trail *trail.Trail  // nil: nobody remembers what was sent
	steps atomic.Uint64 // grows with every task that ends

	mu          sync.Mutex
	work        sync.Cond     // the pump in charge waits on it for a stream to be ready
	idle        sync.Cond     // who closes a stream waits on it for busy to end
	first, last *Stream       // guarded by mu; those with tasks to run that no pump is at, first come first served
	streams     int           // guarded by mu; no stream: no pump
	pump        int           // guarded by mu; number of the pump in charge
	ended       chan struct{} // guarded by mu; closed when the pump in charge has ended
	running     bool          // guarded by mu; the pump in charge runs tasks
	watching    bool          // guarded by mu; the watchdog is set
	seen        uint64        // guarded by mu; steps at the watchdog's last look
	dog         *time.Timer
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
	conn  *Conn
	flush Flusher // see After; nil: none

	next   *Stream     // guarded by conn.mu; the next one that is ready
	ready  []*Task     // guarded by conn.mu; tasks to run, first come first served
	busy   bool        // guarded by conn.mu; a pump is at it
	slow   bool        // guarded by conn.mu; it is served apart, until slowUntil
	closed atomic.Bool // set under conn.mu; no task of it begins again

	slowUntil time.Time // guarded by conn.mu
	left      func()    // tells the Connections
}

// Flusher sends what the tasks of a stream have left to be sent together.
type Flusher interface{ Flush() }

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
	// Fan is that of all connections.
	Fan *wire.Fan
	// Trail is told which revisions are sent to watches.
	Trail trail.Turn

	turn []*Task
}

// maxTurn bounds the tasks of a turn whose list is kept for the next one.
const maxTurn = 1024

// New returns the Conn of a connection. Its pumps are counted in pumps, and use
// fan.
func New(pumps *sync.WaitGroup, fan *wire.Fan) *Conn {
	c := &Conn{pumps: pumps, fan: fan}
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
	} else if c.running {
		c.guardLocked()
	}
	return &Stream{conn: c, left: func() {}}
}

// After has f called at the end of each of the stream's turns, by the pump that
// is at it. Call it before the first task is started.
func (s *Stream) After(f Flusher) { s.flush = f }

// Close returns when no pump is at the stream any more, and none comes back.
// What is being sent is waited for: it ends when the client reads, or with its
// connection. Call it once.
func (s *Stream) Close() {
	defer s.left()
	if ended := s.close(); ended != nil {
		<-ended // or streams that come and go in a flood leave a pump each
	}
}

// close returns what is closed when the pump has ended that had this stream last;
// nil: there are others.
func (s *Stream) close() (ended <-chan struct{}) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.closed.Store(true)
	for s.busy {
		c.idle.Wait()
	}
	s.ready = nil
	if c.streams--; c.streams > 0 {
		return nil
	}
	c.pump++
	c.first, c.last = nil, nil
	c.work.Signal()
	return c.ended
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
	me, ended := c.pump, make(chan struct{})
	c.ended = ended
	c.pumps.Go(func() {
		defer close(ended)
		c.serve(me)
	})
}

// enqueueLocked puts the task on its stream's list, unless it is there.
func (c *Conn) enqueueLocked(t *Task) {
	s := t.s
	if t.queued || s.closed.Load() {
		return
	}
	t.queued = true
	s.ready = append(s.ready, t)
	if len(s.ready) == 1 && !s.busy { // else it is on the list, or comes there from its pump
		c.readyLocked(s)
	}
}

// readyLocked puts the stream on the list.
func (c *Conn) readyLocked(s *Stream) {
	if c.first == nil {
		c.first = s
	} else {
		c.last.next = s
	}
	c.last = s
	c.work.Signal()
}

// takeLocked takes the first stream off the list; nil: there is none.
func (c *Conn) takeLocked() *Stream {
	for s := c.first; s != nil; s = c.first {
		if c.first, s.next = s.next, nil; c.first == nil {
			c.last = nil
		}
		if !s.closed.Load() {
			return s
		}
	}
	return nil
}

// serve is the pump with number me. Superseded while it is at a stream, it
// stays with that one until the stream has nothing left, then ends.
func (c *Conn) serve(me int) {
	own := Scratch{Fan: c.fan, Trail: c.trail.Turn()}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pump == me {
		s := c.takeLocked()
		if s == nil {
			c.unguardLocked()
			c.work.Wait()
			continue
		}
		if s.slow {
			if time.Now().Before(s.slowUntil) {
				c.startLocked() // before it stops this one again
				c.stayLocked(s, &own)
				return
			}
			s.slow = false
		}
		c.running = true
		if c.streams > 1 {
			c.guardLocked()
		}
		c.turnLocked(s, &own)
		if c.pump != me {
			c.stayLocked(s, &own)
			return
		}
		c.running = false
		c.leaveLocked(s)
	}
}

// turnLocked runs the stream's tasks that are ready, without the lock: one after
// the other, then what they have left to be sent is sent.
func (c *Conn) turnLocked(s *Stream, own *Scratch) {
	s.busy = true
	own.turn, s.ready = s.ready, own.turn[:0]
	for _, t := range own.turn {
		t.queued = false
	}
	again := c.run(s, own)
	for _, t := range again {
		c.enqueueLocked(t) // behind those that were woken meanwhile
	}
	clear(own.turn)
	if cap(own.turn) > maxTurn {
		own.turn = nil
	}
}

// run returns the tasks that have more to do.
func (c *Conn) run(s *Stream, own *Scratch) (again []*Task) {
	c.mu.Unlock()
	defer c.mu.Lock()
	again = own.turn[:0]
	for _, t := range own.turn {
		if s.closed.Load() {
			break
		}
		if t.run(own) {
			again = append(again, t)
		}
		c.steps.Add(1)
	}
	if s.flush != nil {
		s.flush.Flush()
	}
	own.Trail.Flush()
	return again
}

// stayLocked serves the stream alone until nothing of it is left. What it sends
// within slowFor from then on does not go through the pump in charge either:
// each time, that would stand still for all others.
func (c *Conn) stayLocked(s *Stream, own *Scratch) {
	for len(s.ready) > 0 && !s.closed.Load() {
		c.turnLocked(s, own)
	}
	s.slow, s.slowUntil = true, time.Now().Add(slowFor)
	c.leaveLocked(s)
}

// leaveLocked is the end of a pump's being at the stream.
func (c *Conn) leaveLocked(s *Stream) {
	s.busy = false
	if len(s.ready) > 0 && !s.closed.Load() {
		c.readyLocked(s)
	}
	c.idle.Broadcast()
}

// guardLocked sets the watchdog.
func (c *Conn) guardLocked() {
	if c.watching {
		return
	}
	c.watching = true
	c.seen = c.steps.Load()
	if c.dog == nil {
		c.dog = time.AfterFunc(stuckAfter, c.look)
	} else {
		c.dog.Reset(stuckAfter)
	}
}

// unguardLocked stops the watchdog: to have it look at nothing costs more.
func (c *Conn) unguardLocked() {
	if c.watching && c.dog.Stop() {
		c.watching = false
	}
}

// look is the watchdog: a pump that is still at the task it was at before gets
// a successor, and stays with that stream when it comes back.
func (c *Conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	steps := c.steps.Load()
	switch {
	case !c.running || c.streams == 0:
		c.watching = false
		return
	case c.seen == steps:
		c.startLocked()
		c.watching = false
		return
	}
	c.seen = steps
	c.dog.Reset(stuckAfter)
}
