package intake

import (
	"container/list"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
)

// Bounds of incomplete requests.
const (
	// maxSmall bounds the number of small requests of a port. An excess request closes the
	// connection with the oldest one.
	maxSmall = 8192
	// small is the largest small request, in bytes; larger requests take their bytes from the budget.
	small = 8 << 10
	// patience is the age at which the oldest larger request, if others wait for bytes, has its
	// connection closed.
	patience = 2 * time.Second
	// keptResets is how many requests of reset streams a connection remembers, so that bytes that the
	// client sent before the reset are not counted.
	keptResets = 16
	// quiet is the least interval between log lines.
	quiet = 10 * time.Second
)

// Intake tracks the incomplete requests of a port. Create it with New.
type Intake struct {
	budget     *budget.Budget
	logger     *slog.Logger
	maxMessage int64

	mu     sync.Mutex
	smalls list.List             // of *request, the oldest first; guarded by mu
	larges list.List             // of *request, the oldest first; guarded by mu
	listed map[streamOf]*request // requests in either list; guarded by mu
	told   time.Time             // when a closed connection was last logged; guarded by mu
}

// streamOf is a stream of a connection.
type streamOf struct {
	conn   *conn
	stream uint32
}

// New returns an Intake of requests with messages of at most maxMessage bytes.
func New(b *budget.Budget, maxMessage int, logger *slog.Logger) *Intake {
	return &Intake{budget: b, maxMessage: int64(maxMessage), logger: logger, listed: make(map[streamOf]*request)}
}

// Credentials returns inner with connections whose received bytes the Intake parses.
func (in *Intake) Credentials(inner credentials.TransportCredentials) credentials.TransportCredentials {
	return &creds{inner, in}
}

type creds struct {
	credentials.TransportCredentials
	in *Intake
}

// Clone implements credentials.TransportCredentials.
func (c *creds) Clone() credentials.TransportCredentials {
	return &creds{c.TransportCredentials.Clone(), c.in}
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *creds) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	inner, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	// The caller is not known before a request is complete.
	holder := budget.Client{Name: netlimit.SourceOf(raw.RemoteAddr()), Max: budget.HalfOfTotal}
	out := &conn{Conn: inner, in: c.in, holder: holder, frames: newFrames(), closed: make(chan struct{})}
	out.done = func(r *request) { c.in.forget(r) }
	return out, info, nil
}

// conn is a connection whose received bytes the Intake parses. One goroutine at a time may read it.
type conn struct {
	net.Conn
	in     *Intake
	holder budget.Client  // of its incomplete requests
	frames *frames        // owned by Read
	done   func(*request) // owned by Read
	once   sync.Once
	closed chan struct{}

	known  int         // its requests in a list; guarded by in.mu
	resets []uint32    // forgotten streams whose requests may still be in frames, in order; guarded by in.mu
	stale  atomic.Bool // resets has more than keptResets
	gone   bool        // guarded by in.mu
}

// entry is a request's place in the lists of an Intake.
type entry struct {
	conn  *conn
	in    *list.List // nil: in no list
	place *list.Element
	since time.Time
	held  int64 // bytes from the budget
}

// Read implements net.Conn. It waits while the budget has too few bytes for the data that it read.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.stale.Load() {
		c.drop()
	}
	c.frames.feed(p[:n], c.done)
	c.frames.news(func(r *request) {
		if err == nil {
			err = c.in.note(c, r)
		}
	})
	return n, err
}

// Forget releases the request of a stream that the server has reset. The client sends nothing more on the
// stream, not even a reset (RFC 9113, 5.1). Any goroutine may call it, for any stream.
func (c *conn) Forget(stream uint32) {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if r := c.in.listed[streamOf{c, stream}]; r != nil {
		c.in.forgetLocked(r)
		if c.resets = append(c.resets, stream); len(c.resets) > keptResets {
			c.stale.Store(true)
		}
	}
}

// drop removes the requests of all forgotten streams but the last keptResets.
func (c *conn) drop() {
	c.in.mu.Lock()
	n := len(c.resets) - keptResets
	old := c.resets[:n]
	c.resets = c.resets[n:]
	c.stale.Store(false)
	c.in.mu.Unlock()
	for _, stream := range old {
		c.frames.end(stream, c.done)
	}
}

// Close implements net.Conn. It may be called again.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.in.leave(c)
	})
	return c.Conn.Close()
}

// NetConn returns the connection beneath.
func (c *conn) NetConn() net.Conn { return c.Conn }

// note takes bytes from the budget for a request that has begun or grown. It fails when the
// connection is closed.
func (in *Intake) note(c *conn, r *request) error {
	need, err := in.list(c, r)
	if need == 0 || err != nil {
		return err
	}
	for {
		got := make(chan struct{})
		wait, err := in.budget.Wait(c.holder, budget.Requests, need, func() { close(got) })
		if err != nil {
			return err
		}
		timer := time.NewTimer(in.oldestEnds(c.holder, wait.Capped()))
		select {
		case <-got:
		case <-c.closed:
		case <-timer.C:
		}
		timer.Stop()
		capped := wait.Capped()
		if !wait.Cancel() {
			return in.settle(c, r, need)
		}
		select {
		case <-c.closed:
			return net.ErrClosed
		default:
			if !in.waits(r) {
				return nil
			}
			in.endOldest(c.holder, capped)
		}
	}
}

// list puts a request into the list of its size, and returns how many more bytes it
// needs from the budget.
func (in *Intake) list(c *conn, r *request) (need int64, err error) {
	total := r.cost()
	if whole := int64(r.left) + total; r.headN == messageHeader && int64(r.left) <= in.maxMessage {
		total = whole // at once, so that partial requests do not wait for each other
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if c.gone {
		return 0, net.ErrClosed
	}
	if r.in == nil && r.listed { // forgotten
		return 0, nil
	}
	to := &in.smalls
	if total > small {
		to, need = &in.larges, max(total-r.held, 0)
	}
	if r.in == to {
		return need, nil
	}
	if r.in == nil {
		r.listed, r.conn, r.since = true, c, time.Now()
		in.listed[streamOf{c, r.stream}] = r
		c.known++
	} else {
		r.in.Remove(r.place)
	}
	r.in, r.place = to, to.PushBack(r)
	if in.smalls.Len() > maxSmall {
		in.closeLocked(in.smalls.Front())
	}
	return need, nil
}

// waits reports whether a request still needs its bytes: it was not forgotten.
func (in *Intake) waits(r *request) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return r.in != nil
}

// settle adds n bytes to a request, or returns them to the budget if the request was forgotten.
func (in *Intake) settle(c *conn, r *request, n int64) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if c.gone {
		in.budget.Give(c.holder, budget.Requests, n)
		return net.ErrClosed
	}
	if r.in == nil {
		in.budget.Give(c.holder, budget.Requests, n)
		return nil
	}
	r.held += n
	return nil
}

// forget releases a request that is complete or abandoned.
func (in *Intake) forget(r *request) {
	if !r.listed {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.forgetLocked(r)
}

func (in *Intake) forgetLocked(r *request) {
	if r.in == nil {
		return
	}
	r.in.Remove(r.place)
	r.in, r.place = nil, nil
	delete(in.listed, streamOf{r.conn, r.stream})
	r.conn.known--
	in.budget.Give(r.conn.holder, budget.Requests, r.held)
	r.held = 0
}

// leave releases the requests of a closed connection.
func (in *Intake) leave(c *conn) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.leaveLocked(c)
}

func (in *Intake) leaveLocked(c *conn) {
	c.gone = true
	for _, l := range []*list.List{&in.smalls, &in.larges} {
		for e := l.Front(); e != nil && c.known > 0; {
			r, _ := e.Value.(*request)
			if e = e.Next(); r.conn == c {
				in.forgetLocked(r)
			}
		}
	}
}

// oldestLocked returns the oldest larger request, or nil; if own is set, it considers only
// requests of the client.
func (in *Intake) oldestLocked(client budget.Client, own bool) *list.Element {
	for e := in.larges.Front(); e != nil; e = e.Next() {
		if r, _ := e.Value.(*request); !own || r.conn.holder == client {
			return e
		}
	}
	return nil
}

// oldestEnds returns how long the oldest larger request may continue. own is set if the
// client has reached its share of the budget, so that it waits for its own requests.
func (in *Intake) oldestEnds(client budget.Client, own bool) time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	if e := in.oldestLocked(client, own); e != nil {
		r, _ := e.Value.(*request)
		return patience - time.Since(r.since)
	}
	return patience
}

// endOldest closes the connection with the oldest larger request, if that is at least patience
// old. own is as in oldestEnds.
func (in *Intake) endOldest(client budget.Client, own bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if e := in.oldestLocked(client, own); e != nil {
		if r, _ := e.Value.(*request); time.Since(r.since) >= patience {
			in.closeLocked(e)
		}
	}
}

// closeLocked closes the connection of a request.
func (in *Intake) closeLocked(e *list.Element) {
	r, _ := e.Value.(*request)
	c := r.conn
	if now := time.Now(); now.Sub(in.told) >= quiet {
		in.told = now
		in.logger.Warn("connection closed: too many incomplete requests at once", "from", c.RemoteAddr().String(), "age", now.Sub(r.since))
	}
	in.leaveLocked(c)
	go func() { _ = c.Close() }() // TLS writes an alert, which may block
}
