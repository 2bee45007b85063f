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

// Bounds of requests that are not complete.
const (
	// maxSmall bounds the small ones of a port. An excess one closes the connection
	// with the oldest.
	maxSmall = 8192
	// small bounds each of these, in bytes; a larger one takes its bytes from the budget.
	small = 8 << 10
	// patience is how long the oldest of the larger ones may make others wait for bytes
	// until its connection is closed.
	patience = 2 * time.Second
	// keptResets is how many requests of reset streams a connection knows, so that bytes of them that were
	// on their way are not counted.
	keptResets = 16
	// quiet is how long closed connections are not logged again.
	quiet = 10 * time.Second
)

// Intake knows the requests that have begun and are not complete, of a port. Create it
// with New.
type Intake struct {
	budget     *budget.Budget
	logger     *slog.Logger
	maxMessage int64

	mu     sync.Mutex
	smalls list.List             // of *request, the oldest first; guarded by mu
	larges list.List             // of *request, the oldest first; guarded by mu
	listed map[streamOf]*request // those in either list; guarded by mu
	told   time.Time             // when a closed connection was logged last; guarded by mu
}

// streamOf is a stream of a connection.
type streamOf struct {
	conn   *conn
	stream uint32
}

// New returns an Intake of requests whose messages have at most so many bytes.
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
	holder budget.Client  // of its requests that are not complete
	frames *frames        // owned by Read
	done   func(*request) // owned by Read
	once   sync.Once
	closed chan struct{}

	known  int         // requests that are in a list; guarded by in.mu
	resets []uint32    // streams that were forgotten, and whose requests frames may have, in order; guarded by in.mu
	stale  atomic.Bool // there are too many resets
	gone   bool        // guarded by in.mu
}

// entry is a request's place in the lists of an Intake.
type entry struct {
	conn  *conn
	in    *list.List // nil: in none
	place *list.Element
	since time.Time
	held  int64 // bytes from the budget
}

// Read implements net.Conn. It waits while the budget lacks bytes for the data read.
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

// Forget takes the news that the server has reset a stream: its request holds nothing from now on. The client
// sends no more of it, not even a reset (RFC 9113, 5.1). Any goroutine may call it, for any stream.
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

// drop drops the requests of all but the last streams that were forgotten.
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

// note takes the news that a request has begun or grown. It fails when the connection
// is closed.
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

// list puts a request in the list that it belongs to, and returns how many bytes more it
// needs from the budget.
func (in *Intake) list(c *conn, r *request) (need int64, err error) {
	total := r.cost()
	if whole := int64(r.left) + total; r.headN == messageHeader && int64(r.left) <= in.maxMessage {
		total = whole // at once: requests that hold a part each cannot wait for each other
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if c.gone {
		return 0, net.ErrClosed
	}
	if r.in == nil && r.listed { // it was forgotten
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

// waits reports whether a request still needs its bytes, and was not forgotten.
func (in *Intake) waits(r *request) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return r.in != nil
}

// settle notes that a request holds n bytes more, unless it was forgotten.
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

// forget takes the news that a request is complete or given up.
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

// leave forgets the requests of a connection that is closed.
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

// oldestLocked returns the oldest of the larger requests, or of a client's own; nil: there is
// none.
func (in *Intake) oldestLocked(client budget.Client, own bool) *list.Element {
	for e := in.larges.Front(); e != nil; e = e.Next() {
		if r, _ := e.Value.(*request); !own || r.conn.holder == client {
			return e
		}
	}
	return nil
}

// oldestEnds returns how long the oldest of the larger requests may continue. own says that the
// client has its part of the bytes, so that its own requests are in the way.
func (in *Intake) oldestEnds(client budget.Client, own bool) time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	if e := in.oldestLocked(client, own); e != nil {
		r, _ := e.Value.(*request)
		return patience - time.Since(r.since)
	}
	return patience
}

// endOldest closes the connection with the oldest of the larger requests, when that has
// had its time. own is as with oldestEnds.
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
	go func() { _ = c.Close() }() // with TLS it writes
}
