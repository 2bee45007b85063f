package sim

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// pipeBytes is the number of unread bytes of a direction at which writes block.
const pipeBytes = 256 << 10

// conn is one end of a connection. The two ends share two pipes. Everything in
// them is guarded by net.mu: the network is small, and one lock cannot be taken
// in the wrong order.
type conn struct {
	net           *Network
	local, remote Addr
	out           link   // the direction of this end's writes
	port          string // the dialled port
	in, to        *pipe  // the pipes that this end reads and writes
	dead          error  // the end is closed or reset: every call fails with it
	readBy        time.Time
	writeBy       time.Time
	changed       signal // wakes calls of this end
}

// pipe is one direction: bytes that were written and not yet read.
type pipe struct {
	chunks []chunk // oldest first
	size   int
	eof    bool // the writer closed: io.EOF after the chunks
	reset  bool // ECONNRESET before the chunks
	end    *conn
}

// chunk is one write, readable from at on.
type chunk struct {
	at   time.Time
	data []byte
}

// pairLocked returns the two ends of a new connection.
func (n *Network) pairLocked(local, remote Addr, out link, port string) (near, far *conn) {
	there, back := &pipe{}, &pipe{}
	near = &conn{net: n, port: port, local: local, remote: remote, out: out, in: back, to: there, changed: make(signal)}
	far = &conn{net: n, port: port, local: remote, remote: local, out: link{out.to, out.from}, in: there, to: back, changed: make(signal)}
	there.end, back.end = far, near
	n.conns[near], n.conns[far] = struct{}{}, struct{}{}
	return near, far
}

// resetLocked ends c at once, and its other end as soon as the link is open.
func (n *Network) resetLocked(c *conn) {
	if c.dead == nil {
		c.to.reset = true
	}
	n.endLocked(c, syscall.ECONNRESET)
}

// endLocked makes every call of c fail with err.
func (n *Network) endLocked(c *conn, err error) {
	if c.dead == nil {
		c.dead = err
	}
	delete(n.conns, c)
	c.changed = c.changed.fire()
	c.to.end.changed = c.to.end.changed.fire()
}

func (c *conn) Read(b []byte) (int, error) {
	for {
		c.net.mu.Lock()
		n, until, err := c.readLocked(b)
		changed, netChanged := c.changed, c.net.changed
		c.net.mu.Unlock()
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		wait(changed, netChanged, until)
	}
}

// readLocked takes the bytes that have arrived. If there are none, it returns the time of the next
// attempt; zero: when something changes.
func (c *conn) readLocked(b []byte) (n int, until time.Time, err error) {
	now := time.Now()
	switch {
	case c.dead != nil:
		return 0, until, opError("read", string(c.remote), c.dead)
	case expired(c.readBy, now):
		return 0, until, os.ErrDeadlineExceeded
	case !c.net.openLocked(link{c.out.to, c.out.from}):
		return 0, c.readBy, nil
	case c.in.reset:
		c.net.endLocked(c, syscall.ECONNRESET)
		return 0, until, opError("read", string(c.remote), syscall.ECONNRESET)
	}
	p := c.in
	for len(p.chunks) > 0 && n < len(b) && !p.chunks[0].at.After(now) {
		k := copy(b[n:], p.chunks[0].data)
		n += k
		if p.chunks[0].data = p.chunks[0].data[k:]; len(p.chunks[0].data) == 0 {
			p.chunks = p.chunks[1:]
		}
	}
	switch {
	case n > 0:
		p.size -= n
		c.to.end.changed = c.to.end.changed.fire() // there is room for its writes
		return n, until, nil
	case len(p.chunks) > 0:
		return 0, earlier(c.readBy, p.chunks[0].at), nil
	case p.eof:
		return 0, until, io.EOF
	}
	return 0, c.readBy, nil
}

func (c *conn) Write(b []byte) (int, error) {
	written := 0
	for {
		c.net.mu.Lock()
		n, err := c.writeLocked(b[written:])
		changed, netChanged, until := c.changed, c.net.changed, c.writeBy
		c.net.mu.Unlock()
		written += n
		if err != nil || written == len(b) {
			return written, err
		}
		if n == 0 {
			wait(changed, netChanged, until)
		}
	}
}

// writeLocked puts as much of b into the pipe as it has room for.
func (c *conn) writeLocked(b []byte) (int, error) {
	now := time.Now()
	switch {
	case c.dead != nil:
		return 0, opError("write", string(c.remote), c.dead)
	case expired(c.writeBy, now):
		return 0, os.ErrDeadlineExceeded
	case c.in.reset && c.net.openLocked(link{c.out.to, c.out.from}):
		c.net.endLocked(c, syscall.ECONNRESET)
		return 0, opError("write", string(c.remote), syscall.ECONNRESET)
	case c.to.end.dead != nil && c.net.openLocked(c.out) && c.net.openLocked(link{c.out.to, c.out.from}):
		return 0, opError("write", string(c.remote), syscall.EPIPE)
	}
	k := min(len(b), pipeBytes-c.to.size)
	if k == 0 {
		return 0, nil
	}
	c.to.chunks = append(c.to.chunks, chunk{at: now.Add(c.net.latency), data: append([]byte(nil), b[:k]...)})
	c.to.size += k
	c.net.sent[c.port] += int64(k)
	c.to.end.changed = c.to.end.changed.fire()
	return k, nil
}

// Close ends the connection; the other side reads the written bytes, then EOF.
func (c *conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.dead != nil {
		return nil
	}
	c.to.eof = true
	c.net.endLocked(c, net.ErrClosed)
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	return c.deadline(func() { c.readBy, c.writeBy = t, t })
}
func (c *conn) SetReadDeadline(t time.Time) error  { return c.deadline(func() { c.readBy = t }) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.deadline(func() { c.writeBy = t }) }

func (c *conn) deadline(set func()) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	set()
	c.changed = c.changed.fire()
	return nil
}

// wait returns when a or b fires, or at until, if that is not zero.
func wait(a, b signal, until time.Time) {
	var timeout <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-a:
	case <-b:
	case <-timeout:
	}
}

func expired(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// earlier returns the earlier of two times, of which the first may be zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
