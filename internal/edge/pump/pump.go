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

// Pumps serve the streams of all connections while there are any, with one goroutine fewer than
// processors: one processor remains for all other work. The zero Pumps is ready for use.
type Pumps struct {
	// Trace records the revisions that are sent to watches; nil: not recorded. Set it before
	// the first Open.
	Trace *revtrace.Trace
	// Turn waits until a pump may visit a connection of a client; leave ends the turn, after the
	// visit or before a send waits. It is for streams whose messages cost much CPU. nil: no wait.
	// Set it before the first Open.
	Turn func(client string) (leave func())

	fan wire.Fan // an event is encoded once for all connections
	all sync.WaitGroup

	spare sync.Pool // of *Scratch, of pumps that have ended

	mu      sync.Mutex
	work    sync.Cond // idle pumps wait on it
	due     clients   // guarded by mu
	streams int       // guarded by mu
	running int       // guarded by mu; pumps, without those blocked in a send
	idle    int       // guarded by mu; pumps that wait for work
}

// Conn is a connection: the list of its ready streams. One pump at a time visits it.
type Conn struct {
	pumps  *Pumps
	client *client // guarded by pumps.mu; of the stream that was opened last
	next   *Conn   // guarded by pumps.mu

	// woken are the tasks that were woken since the last collectLocked, the latest first. A
	// revision wakes the tasks of a connection while a pump visits it, so a wake takes no lock.
	woken atomic.Pointer[Task]
	due   atomic.Bool // changed under mu; the connection is on the pumps' list, or a pump visits it

	mu          sync.Mutex
	first, last *Stream   // guarded by mu; ready streams that no pump serves, first come, first served
	left        sync.Cond // Stream.Close waits on it while the stream is busy
}

// Stream is one stream of a connection. One pump at a time serves it.
type Stream struct {
	conn   *Conn
	next   *Stream     // guarded by conn.mu; the next ready stream
	ready  tasks       // guarded by conn.mu; tasks to run
	busy   bool        // guarded by conn.mu; a pump serves it
	closed atomic.Bool // set under conn.mu; its tasks no longer run
	out    output
	client *client
}

// tasks is a queue of tasks, first come, first served.
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

// Task is recurring work for a stream. Each stream runs one task at a time.
// Init it before use; it must not be copied afterwards.
type Task struct {
	s       *Stream
	started atomic.Bool
	queued  atomic.Bool // from the wake to the run; the caller that sets it puts the task on a list
	next    *Task       // in conn.woken, then in stream.ready
	run     func(*Scratch) (again bool)
}

// Scratch is the memory that a pump lends to every task that it runs.
type Scratch struct {
	Events []*kv.Event
	// Lent is memory that the tasks of one API reuse, instead of memory per stream. Other tasks
	// change its content between two runs of a task. A task that finds another type replaces it.
	Lent any
	// Fan is shared by all connections.
	Fan *wire.Fan
	// Trace records the revisions that are sent to watches.
	Trace revtrace.Turn

	codec  wire.Codec
	conn   *Conn       // the visited connection
	visits yield.Steps // in a row
	heldUp bool        // a send has blocked: another pump has replaced this one
	wait   func()      // holdUp, allocated once
	leave  func()      // ends the turn of Pumps.Turn; nil: no turn
	again  []*Task
	buf    []byte   // messages that are not yet handed over
	parts  [][]byte // arguments of SendFramed
	sent   int      // bytes of the turn, plus taskBytes for each run and readBytes for each event of Read
}

// Bounds of a pump's work before other work gets its turn.
const (
	// maxVisits is how many visits a pump makes in a row before it yields to other goroutines and threads:
	// some 0.3 ms. Each yield costs a thread switch, and Linux queues a thread that yields after all
	// other ready threads.
	maxVisits = 32
	// visitBytes is how many bytes of a visit count as one more turn of its client, and as visitSteps more visits:
	// a pump with large messages yields after 64 KiB.
	visitBytes = 8 << 10
	visitSteps = 4
	// taskBytes is the cost of each run of a task in bytes, in addition to the sent bytes: some 0.6 µs.
	taskBytes = 512
	// readBytes is the cost of an event, or a batch, that a task reads and does not send, in bytes.
	readBytes = 64
	// turnSteps is the cost of a visit in a turn of Pumps.Turn, in visits: a pump yields after two of them.
	turnSteps = 16
	// maxVisit bounds the stream turns of a visit, before its bytes leave.
	maxVisit = 256
	// turnBytes is how many bytes a turn of a stream, and a visit, send before they end.
	turnBytes = 256 << 10
	// maxAgain bounds the capacity of the task list that a turn leaves to the next one.
	maxAgain = 1024
)

// Open returns a new stream on the connection of the call of ctx. All connections of the client
// share its turns. Messages go to the transport of the call if it is a Transport, else to plain.
// Close the stream.
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

// open opens a stream on a transport.
func (p *Pumps) open(client string, s *Stream, to Transport) *Stream {
	s.out.to = to
	s.conn = to.Attach(func() any { return p.newConn() }).(*Conn) //nolint:forcetypeassert // nothing else is attached
	return p.enter(client, s)
}

// enter adds a stream.
func (p *Pumps) enter(client string, s *Stream) *Stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.work.L = &p.mu
	p.streams++
	s.client = p.due.open(client)
	s.conn.client = s.client
	if p.streams == 1 && p.due.any() { // tasks were woken since the last stream was closed
		p.wakeLocked()
	}
	return s
}

func (p *Pumps) newConn() *Conn {
	c := &Conn{pumps: p}
	c.left.L = &c.mu
	return c
}

// Wait waits until all pumps have ended. All streams must be closed. Tasks of closed streams may
// still be woken.
func (p *Pumps) Wait() { p.all.Wait() }

// Close waits until no pump serves the stream; no task of it runs afterwards. If a send
// blocks, Close waits until the client reads or the connection ends. Call Close once.
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

// Init makes t a task of s. run reports whether it has more to do at once;
// it is not called before Start.
func (t *Task) Init(s *Stream, run func(*Scratch) (again bool)) { t.s, t.run = s, run }

// Start runs the task, now and after every Wake.
func (t *Task) Start() {
	t.started.Store(true)
	t.Wake()
}

// Wake makes the task run soon, if it was started. It does not block.
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

// callLocked queues the connection for a visit, unless it is queued or visited.
func (c *Conn) callLocked() {
	if !c.due.Load() {
		c.due.Store(true)
		c.pumps.add(c)
	}
}

// collectLocked moves woken tasks to their streams, in the order of the wakes.
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

// enqueueLocked puts a woken task on the list of its stream.
func (c *Conn) enqueueLocked(t *Task) {
	s := t.s
	if s.closed.Load() {
		return
	}
	first := s.ready.first == nil
	s.ready.push(t)
	if first && !s.busy { // else it is on the list, or turnLocked puts it there
		c.readyLocked(s)
	}
}

// readyLocked puts a stream on the list, and queues the connection for a visit.
func (c *Conn) readyLocked(s *Stream) {
	if c.first == nil {
		c.first = s
	} else {
		c.last.next = s
	}
	c.last = s
	c.callLocked()
}

// takeLocked removes and returns the first stream of the list, or nil.
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

// add queues a connection for a visit. A pump that takes a connection while more are queued
// wakes the next pump: a revision for many connections wakes as many pumps as it keeps busy.
func (p *Pumps) add(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	more := p.due.any()
	if p.due.push(c); !more {
		p.wakeLocked()
	}
}

// wakeLocked wakes or starts a pump, unless enough are running. Without streams it does nothing: a late
// wake of a closed stream must not start a pump after Wait.
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

// run is a pump. It ends with the last stream, or after another pump has replaced
// it.
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

// visit gives the ready streams a turn each, and writes their messages together. It returns the
// bytes that they sent, plus taskBytes for each task that ran.
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
		default: // SendMsg may block without an announcement
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

// goOnLocked ends the visit of a pump, and queues the connection again if it has more work.
func (c *Conn) goOnLocked() {
	c.due.Store(false)
	if c.first != nil || c.woken.Load() != nil { // after due is cleared: Wake leaves tasks to a visiting pump
		c.callLocked()
	}
}

// Read counts events, or batches, that a task has read and does not send: a turn ends after some 4,000.
func (own *Scratch) Read(n int) { own.sent += n * readBytes }

// holdUp is called before a send blocks. Another pump replaces this one, and serves the
// connection's other streams.
func (own *Scratch) holdUp() {
	if own.heldUp {
		return
	}
	own.Trace.Flush() // the bytes of other streams do not wait for this client
	c := own.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaveLocked(own)
}

// endTurn ends the turn of Pumps.Turn, if there is one.
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

// turnLocked runs the ready tasks of a stream one after the other, without the lock, and
// hands their messages over.
func (c *Conn) turnLocked(s *Stream, own *Scratch) {
	s.busy = true
	turn := s.ready
	s.ready = tasks{}
	if c.run(s, own, &turn); !s.closed.Load() {
		s.ready.putFirst(turn) // tasks beyond turnBytes keep their position
	}
	if len(own.again) > 0 || s.ready.first != nil {
		c.collectLocked() // tasks that were woken meanwhile go first
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

// run runs tasks up to turnBytes, and removes them from the list. own.again are the tasks with
// more to do.
func (c *Conn) run(s *Stream, own *Scratch, turn *tasks) {
	c.mu.Unlock()
	defer c.mu.Lock()
	s.out.own, own.sent, own.again = own, 0, own.again[:0]
	for turn.first != nil && own.sent < turnBytes && !s.closed.Load() {
		t := turn.pop()
		own.sent += taskBytes
		t.queued.Store(false) // later wakes are for the next turn
		if t.run(own) {
			own.again = append(own.again, t)
		}
	}
	s.out.flush()
	s.out.own = nil
}
