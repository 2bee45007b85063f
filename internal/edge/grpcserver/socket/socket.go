// Package socket is the lowest layer of connections. Its user controls whether reads and writes
// block, also beneath TLS.
//
// A [Socket] belongs to one connection. Its Write may be called from any goroutine.
package socket

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
)

// Socket is the lowest layer of a connection, beneath TLS. After Own, Write does not block: bytes
// that the kernel does not accept are its backlog, until Drain has written them.
type Socket struct {
	mu      sync.Mutex
	owned   bool            // guarded by mu
	held    bool            // guarded by mu; Write only appends to the backlog
	backlog []byte          // guarded by mu
	raw     syscall.RawConn // nil: the connection has no descriptor
	attempt attempt         // guarded by mu

	net.Conn
	Low *rawconn.Conn // the lowest connection; nil: it cannot rest
}

// attempt is one write(2). It is a field of the socket, so that a write allocates nothing.
type attempt struct {
	p    []byte // the remaining bytes
	err  error
	call func(fd uintptr)
}

// MaxWrite is the largest output that is written at once, in bytes.
const MaxWrite = 96 << 10

// record is the size of the largest TLS record: fewer bytes leave in one write without hold.
const record = 16 << 10

// maxBacklog bounds the backlog of a socket, in bytes: the largest single output, with the
// overhead of TLS.
const maxBacklog = 2 * MaxWrite

var errBacklog = errors.New("the peer does not read, and the backlog is full")

// netConn is a connection that wraps another one.
type netConn interface{ NetConn() net.Conn }

// New returns a socket of a connection.
func New(c net.Conn) *Socket {
	s := &Socket{Conn: c}
	s.attempt.call = s.attempt.do
	for c != nil {
		if k, ok := c.(syscall.Conn); ok {
			if raw, err := k.SyscallConn(); err == nil {
				s.raw = raw
			}
			s.Low, _ = c.(*rawconn.Conn)
			break
		}
		inner, ok := c.(netConn)
		if !ok {
			break
		}
		c = inner.NetConn()
	}
	return s
}

// NetConn returns the connection beneath.
func (s *Socket) NetConn() net.Conn { return s.Conn }

// Of returns the socket beneath a connection, and whether TLS is between the two; nil:
// there is none.
func Of(c net.Conn) (s *Socket, sealed bool) {
	for c != nil {
		switch at := c.(type) {
		case *Socket:
			return at, sealed
		case *tls.Conn:
			sealed = true
		}
		inner, ok := c.(netConn)
		if !ok {
			return nil, sealed
		}
		c = inner.NetConn()
	}
	return nil, sealed
}

// Own makes writes non-blocking from now on.
func (s *Socket) Own() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned = true
}

// Write implements net.Conn.
func (s *Socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	if !s.owned {
		s.mu.Unlock()
		return s.Conn.Write(p)
	}
	defer s.mu.Unlock()
	n := 0
	if len(s.backlog) == 0 && !s.held {
		var err error
		if n, err = s.tryLocked(p); err != nil {
			return n, err
		}
	}
	if rest := p[n:]; len(rest) > 0 {
		if len(s.backlog)+len(rest) > maxBacklog {
			return n, errBacklog
		}
		if s.backlog == nil {
			s.backlog = GetBuffer()
		}
		s.backlog = append(s.backlog, rest...)
	}
	return len(p), nil
}

// Send writes bytes without blocking, to the kernel or to the backlog. If sealed, it writes them
// to above, which encrypts them. Otherwise no layer above the socket changes bytes, and Send bypasses
// these layers.
func (s *Socket) Send(above net.Conn, sealed bool, p []byte) error {
	if !sealed {
		_, err := s.Write(p)
		return err
	}
	if len(p) <= record {
		_, err := above.Write(p)
		return err
	}
	s.hold()
	_, err := above.Write(p)
	if sent := s.release(); err == nil {
		err = sent
	}
	return err
}

// hold collects writes until release, so that several TLS records leave in one system call.
func (s *Socket) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
}

// release ends hold.
func (s *Socket) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	n, err := s.tryLocked(s.backlog)
	s.takenLocked(n)
	return err
}

// Stalled reports whether there is a backlog. If so, call Drain.
func (s *Socket) Stalled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.backlog) > 0
}

// Drain writes the backlog. It blocks while the peer does not read.
func (s *Socket) Drain() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.backlog) > 0 {
		now := s.backlog
		s.mu.Unlock()
		n, err := s.Conn.Write(now)
		s.mu.Lock()
		s.takenLocked(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// takenLocked removes the first n bytes of the backlog, which are written.
func (s *Socket) takenLocked(n int) {
	if n < len(s.backlog) {
		s.backlog = s.backlog[n:]
		return
	}
	PutBuffer(s.backlog)
	s.backlog = nil
}

// tryLocked writes as many bytes as the kernel accepts.
func (s *Socket) tryLocked(p []byte) (int, error) {
	if s.raw == nil || len(p) == 0 {
		return 0, nil
	}
	a := &s.attempt
	a.p, a.err = p, nil
	err := s.raw.Control(a.call)
	n := len(p) - len(a.p)
	a.p = nil
	if err == nil {
		err = a.err
	}
	return n, err
}

// do makes the system call on the descriptor. It never waits, so RawConn.Control suffices:
// RawConn.Write would prepare the runtime's poller for a wait.
func (a *attempt) do(fd uintptr) {
	n, err := rawconn.Write(fd, a.p)
	switch {
	case errors.Is(err, syscall.EAGAIN):
	case err != nil:
		a.err = err
	default:
		a.p = a.p[n:]
	}
}
