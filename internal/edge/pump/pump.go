package pump

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/revtrace"
	"github.com/shardwatch/shardwatch/internal/wire"
	"github.com/shardwatch/shardwatch/internal/yield"
)

// Pumps serve the streams of all connections: a goroutine for each processor but one, which is
// left to all other work, as long as there are streams. The zero Pumps is ready.
type Pumps struct {
	// Trace records which revisions are sent to watches; nil: none does. Set it before
	// the first Open.
	Trace *revtrace.Trace
	// Turn returns when a pump may visit a connection of a client; leave ends the turn, after the
	// visit or before a send waits. It is for streams whose messages cost much CPU. nil: at once.
	// Set it before the first Open.
	Turn func(client string) (leave func())

	fan wire.Fan // an event is encoded once for all connections
	all sync.WaitGroup

	spare sync.Pool // of *Scratch; pumps that sends have held up have left them

	mu      sync.Mutex
	work    sync.Cond // idle pumps wait on it
	due     clients   // guarded by mu
	streams int       // guarded by mu
	running int       // guarded by mu; pumps, without those that a send holds up
	idle    int       // guarded by mu; pumps that wait
}

// Conn is a connection: its streams that have something to do. One pump at a time is at it.
type Conn struct {
	pumps  *Pumps
	client *client // guarded by pumps.mu; of the stream that was opened last
	next   *Conn   // guarded by pumps.mu

	// woken are the tasks that were woken since collectLocked took them, the last one first. A
	// revision wakes a connection's tasks while a pump is at it, so a wake takes no lock.
	woken atomic.Pointer[Task]
	due   atomic.Bool // changed under mu; it is on the pumps' list, or a pump is at it

	mu          sync.Mutex
	first, last *Stream   // guarded by mu; those with tasks to run that no pump is at, first come first served
	left        sync.Cond // Close waits on it for a stream's busy to end
}

// Stream is one stream of a connection. One pump at a time is at it.
type Stream struct {
	conn   *Conn
	next   *Stream     // guarded by conn.mu; the next one that is ready
	ready  tasks       // guarded by conn.mu; to run
	busy   bool        // guarded by conn.mu; a pump is at it
	closed atomic.Bool // set under conn.mu; no task of it begins again
	out    output
	client *client
}

// tasks are queued ones, first come first served.
type tasks struct{ first, last *Task }

func (ts *tasks) push(t *Task) {
	if ts.first == nil {
		ts.first = t
	} else {
		ts.last.next = t
	}
	ts.last = t
}

func (ts *tasks) pop() *Task {
	t := ts.first
	ts.first, t.next = t.next, nil
	return t
}

func (ts *tasks) putFirst(others tasks) {
	if others.first == nil {
		return
	}
	if others.last.next = ts.first; ts.first == nil {
		ts.last = others.last
	}
	ts.first = others.first
}

// Task is something to do for a stream, again and again: one run at a time for
// each stream. Init it before use; it must not be copied afterwards.
type Task struct {
	s       *Stream
	started atomic.Bool
	queued  atomic.Bool // from the wake to the run; the one that sets it puts the task on a list
	next    *Task       // in conn.woken, then in the stream's tasks
	run     func(*Scratch) (again bool)
}

// Scratch is the memory that a pump lends to every task it runs.
type Scratch struct {
	Events []*kv.Event
	// Lent is what the tasks of one API keep here from a turn to the next one, in place of each stream: no task
	// finds it as it has left it. A task that finds another type replaces it.
	Lent any
	// Fan is that of all connections.
	Fan *wire.Fan
	// Trace records which revisions are sent to watches.
	Trace revtrace.Turn

	codec  wire.Codec
	conn   *Conn       // where the pump is
	visits yield.Steps // in a row
	heldUp bool        // a send waits, or has waited: another pump continues in its place
	wait   func()      // holdUp, allocated once
	leave  func()      // ends the pump's turn; nil: it has none
	again  []*Task
	buf    []byte   // messages that are not handed over
	parts  [][]byte // of messages that are handed over
	sent   int      // bytes of the turn, with taskBytes for each run
}

// Bounds of a pump's work before others have their turn.
const (
	// maxVisits is how many visits a pump makes in a row before other goroutines and threads go
	// first: some 0.3 ms. To yield more often costs a switch of threads each time, and Linux puts a thread that
	// yields behind all others that are ready.
	maxVisits = 32
	// visitBytes is how many bytes of a visit count as a turn of its client more, and as visitSteps visits: a pump
	// with large messages yields after 64 KiB.
	visitBytes = 8 << 10
	visitSteps = 4
	// taskBytes is as how many bytes each run of a task counts, beside those that it sends: some 0.6 µs.
	taskBytes = 512
	// turnSteps is as how many visits one in a turn counts, whose messages cost more CPU: a pump yields after two.
	turnSteps = 16
	// maxVisit bounds the streams of a connection that are served before its bytes leave.
	maxVisit = 256
	// turnBytes is how much a turn of a stream sends before it ends.
	turnBytes = 256 << 10
	// maxAgain bounds the list of a turn's tasks that is kept for the next one.
	maxAgain = 1024
)

// Open returns a new stream, of the connection that the call of ctx came by, and of a client,
// whose connections share its turns. Close it. Messages go to the transport of the call, if
// that takes bytes, or else to plain.
func (p *Pumps) Open(ctx context.Context, client string, plain Messages) *Stream {
	s := &Stream{out: output{plain: plain}}
	transport := grpc.ServerTransportStreamFromContext(ctx)
	s.out.says, _ = transport.(Announcer)
	if t, ok := transport.(Transport); ok {
		return p.open(client, s, t)
	}
	s.conn = p.newConn()
	return p.enter(client, s)
}

// open opens a stream that a transport carries.
func (p *Pumps) open(client string, s *Stream, to Transport) *Stream {
	s.out.to = to
	s.conn = to.Attach(func() any { return p.newConn() }).(*Conn) //nolint:forcetypeassert // nothing else is attached
	return p.enter(client, s)
}

// enter counts a stream in.
func (p *Pumps) enter(client string, s *Stream) *Stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work.L = &p.mu
	p.streams++
	s.client = p.due.open(client)
	s.conn.client = s.client
	if p.streams == 1 && p.due.any() { // woken since the last stream was closed
		p.wakeLocked()
	}
	return s
}

func (p *Pumps) newConn() *Conn {
	c := &Conn{pumps: p}
	c.left.L = &c.mu
	return c
}

// Wait returns when no pump runs any more. All streams must be closed. Tasks of closed streams may
// be woken meanwhile.
func (p *Pumps) Wait() { p.all.Wait() }

// Close returns when no pump is at the stream any more, and none comes back.
// Close waits for a send that has begun: it ends when the client reads, or with its
// connection. Call it once.
func (s *Stream) Close() {
	c := s.conn
	c.mu.Lock()
	s.closed.Store(true)
	for s.busy {
		c.left.Wait()
	}
	s.ready = tasks{}
	c.mu.Unlock()
	p := c.pumps
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due.close(s.client)
	if p.streams--; p.streams == 0 {
		p.work.Broadcast()
	}
}

// Init makes t a task of s. run reports whether there is more to do at once;
// it is not called before Start.
func (t *Task) Init(s *Stream, run func(*Scratch) (again bool)) { t.s, t.run = s, run }

// Start has the task run, now and whenever it is woken.
func (t *Task) Start() {
	t.started.Store(true)
	t.Wake()
}

// Wake has the task run soon, if it was started. It does not block.
func (t *Task) Wake() {
	if !t.started.Load() || !t.queued.CompareAndSwap(false, true) {
		return
	}
	c := t.s.conn
	for {
		t.next = c.woken.Load()
		if c.woken.CompareAndSwap(t.next, t) {
			break
		}
	}
	if c.due.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.callLocked()
}

// callLocked has a pump come to the connection, unless one does.
func (c *Conn) callLocked() {
	if !c.due.Load() {
		c.due.Store(true)
		c.pumps.add(c)
	}
}

// collectLocked puts the tasks that were woken on their streams' lists, in the order of the wakes.
func (c *Conn) collectLocked() {
	if c.woken.Load() == nil {
		return
	}
	var first *Task
	for t := c.woken.Swap(nil); t != nil; {
		next := t.next
		first, t.next = t, first
		t = next
	}
	for t := first; t != nil; {
		next := t.next
		t.next = nil
		c.enqueueLocked(t)
		t = next
	}
}

// enqueueLocked puts a queued task on its stream's list.
func (c *Conn) enqueueLocked(t *Task) {
	s := t.s
	if s.closed.Load() {
		return
	}
	first := s.ready.first == nil
	s.ready.push(t)
	if first && !s.busy { // else it is on the list, or comes there from its pump
		c.readyLocked(s)
	}
}

// readyLocked puts the stream on the list, and the connection on the pumps'.
func (c *Conn) readyLocked(s *Stream) {
	if c.first == nil {
		c.first = s
	} else {
		c.last.next = s
	}
	c.last = s
	c.callLocked()
}

// takeLocked takes the first stream off the list; nil: there is none.
func (c *Conn) takeLocked() *Stream {
	if c.first == nil {
		c.collectLocked()
	}
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

// add has a pump come to the connection. A pump that takes one while there are more wakes
// the next pump: a revision for many connections wakes as many as it keeps busy.
func (p *Pumps) add(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	more := p.due.any()
	if p.due.push(c); !more {
		p.wakeLocked()
	}
}

// wakeLocked wakes or starts a pump, unless there are enough, or no streams: a late wake of a closed
// one must not start a pump after Wait.
func (p *Pumps) wakeLocked() {
	switch {
	case p.streams == 0:
	case p.idle > 0:
		p.work.Signal()
	case p.running < max(1, runtime.GOMAXPROCS(0)-1):
		p.running++
		p.all.Go(p.run)
	}
}

// run is a pump. It ends with the last stream, or in favor of the pump that has taken its
// place.
func (p *Pumps) run() {
	own, _ := p.spare.Get().(*Scratch)
	if own == nil {
		own = &Scratch{Fan: &p.fan, Trace: p.Trace.Turn(), codec: wire.NewCodec()}
		own.wait = own.holdUp
	}
	defer func() {
		own.heldUp, own.conn = false, nil
		p.spare.Put(own)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !own.heldUp {
		c := p.due.pop()
		switch {
		case c == nil && p.streams == 0:
			p.running--
			return
		case c == nil:
			own.visits = 0
			p.idle++
			p.work.Wait()
			p.idle--
			continue
		}
		if p.due.any() {
			p.wakeLocked()
		}
		client, steps := c.client, 1
		p.mu.Unlock()
		if p.Turn != nil {
			own.leave, steps = p.Turn(client.name), turnSteps
		}
		size := c.visit(own) / visitBytes
		own.endTurn()
		own.visits.Did(steps+visitSteps*size, maxVisits)
		p.mu.Lock()
		client.owes += size
	}
}

// visit gives the connection's streams a turn each, and has the messages that they send written
// together. It returns how many bytes they have, with taskBytes for each task that ran.
func (c *Conn) visit(own *Scratch) (sent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own.conn = c
	var to Transport
	for n := 0; n < maxVisit && sent < turnBytes && !own.heldUp; n++ {
		s := c.takeLocked()
		if s == nil {
			break
		}
		switch {
		case s.out.to != nil:
			to = s.out.to
		case s.out.says != nil:
			s.out.says.Announce(own.wait)
		default: // it may wait, and does not say so
			c.leaveLocked(own)
		}
		c.turnLocked(s, own)
		if s.out.says != nil {
			s.out.says.Announce(nil)
		}
		sent += own.sent
	}
	c.mu.Unlock()
	if to != nil {
		to.Flush()
	}
	own.Trace.Flush()
	c.mu.Lock()
	if !own.heldUp {
		c.goOnLocked()
	}
	return sent
}

// goOnLocked is the end of a pump's being at the connection.
func (c *Conn) goOnLocked() {
	c.due.Store(false)
	if c.first != nil || c.woken.Load() != nil { // in this order: a waker that found a pump here did nothing
		c.callLocked()
	}
}

// holdUp is called before a send waits. The pump's connection continues without the stream,
// and another pump comes in its place.
func (own *Scratch) holdUp() {
	if own.heldUp {
		return
	}
	own.Trace.Flush() // the bytes of the other streams do not wait
	c := own.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveLocked(own)
}

// endTurn ends the pump's turn, if it has one.
func (own *Scratch) endTurn() {
	if own.leave != nil {
		own.leave()
		own.leave = nil
	}
}

func (c *Conn) leaveLocked(own *Scratch) {
	own.heldUp = true
	own.endTurn()
	c.goOnLocked()
	p := c.pumps
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running--; p.due.any() {
		p.wakeLocked()
	}
}

// turnLocked runs the stream's tasks that are ready, without the lock: one after
// the other, then their messages are handed over.
func (c *Conn) turnLocked(s *Stream, own *Scratch) {
	s.busy = true
	turn := s.ready
	s.ready = tasks{}
	if c.run(s, own, &turn); !s.closed.Load() {
		s.ready.putFirst(turn) // those that had no place in it stay where they were
	}
	if len(own.again) > 0 || s.ready.first != nil {
		c.collectLocked() // those that were woken meanwhile go first
	}
	for _, t := range own.again {
		if t.queued.CompareAndSwap(false, true) {
			c.enqueueLocked(t)
		}
	}
	clear(own.again)
	if cap(own.again) > maxAgain {
		own.again = nil
	}
	s.busy = false
	if s.ready.first != nil && !s.closed.Load() {
		c.readyLocked(s)
	}
	c.left.Broadcast()
}

// run runs the tasks that have a place in the turn, and takes them off the list; own.again are
// those that have more to do.
func (c *Conn) run(s *Stream, own *Scratch, turn *tasks) {
	c.mu.Unlock()
	defer c.mu.Lock()
	s.out.own, own.sent, own.again = own, 0, own.again[:0]
	for turn.first != nil && own.sent < turnBytes && !s.closed.Load() {
		t := turn.pop()
		own.sent += taskBytes
		t.queued.Store(false) // a wake from now on is one for the next turn
		if t.run(own) {
			own.again = append(own.again, t)
		}
	}
	s.out.flush()
	s.out.own = nil
}
