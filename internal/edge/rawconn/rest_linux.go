package rawconn

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// Rester waits for bytes on connections that rest. It needs one goroutine for all of them, instead of one
// per connection that waits in Read, and an epoll instance besides the runtime's. The zero Rester is
// ready for use. Close it.
type Rester struct {
	mu     sync.Mutex
	epoll  *os.File        // guarded by mu; nil: no connection has rested yet
	raw    syscall.RawConn // guarded by mu; of epoll
	conns  map[int32]*Conn // guarded by mu; registered with epoll, by descriptor
	closed bool            // guarded by mu
	over   sync.WaitGroup
}

// rest is the state of one connection in its Rester.
type rest struct {
	mu     sync.Mutex
	ready  func()  // guarded by mu; nil: the connection does not rest
	of     *Rester // guarded by mu; has registered the connection; nil: none
	fd     int32   // guarded by mu; the registered descriptor
	closed bool    // guarded by mu
}

// interest are the events that end a rest, once: bytes, the end of the peer's data, an error.
const interest = syscall.EPOLLIN | syscall.EPOLLRDHUP | syscall.EPOLLONESHOT

// batch is the number of events of one poll.
const batch = 128

// errClosed is the error of Rest after Close.
var errClosed = errors.New("the rester is closed")

// Rest arranges one call of ready when the next Read may return something: bytes, the end of the
// connection, its Close, or a new deadline. Spurious calls are possible. ready must not block; it is not
// called if Rest returns an error. A connection uses the same Rester for its whole life.
func (r *Rester) Rest(c *Conn, ready func()) error {
	at := &c.rest
	at.mu.Lock()
	defer at.mu.Unlock()
	if at.closed {
		return os.ErrClosed
	}
	at.ready = ready
	var err error
	if failed := c.raw.Control(func(fd uintptr) { err = r.armLocked(c, int32(fd)) }); failed != nil { //nolint:gosec // a descriptor
		err = failed
	}
	if err != nil {
		at.ready = nil
	}
	return err
}

// armLocked makes the kernel report the next event of a connection, once. The caller holds c.rest.mu.
func (r *Rester) armLocked(c *Conn, fd int32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.startLocked(); err != nil {
		return err
	}
	does := syscall.EPOLL_CTL_MOD
	if c.rest.of == nil {
		does = syscall.EPOLL_CTL_ADD
		r.conns[fd], c.rest.of, c.rest.fd = c, r, fd
	}
	var err error
	if failed := r.raw.Control(func(epoll uintptr) {
		err = syscall.EpollCtl(int(epoll), does, int(fd), &syscall.EpollEvent{Events: interest, Fd: fd})
	}); failed != nil {
		err = failed
	}
	if err != nil && does == syscall.EPOLL_CTL_ADD {
		delete(r.conns, fd)
		c.rest.of = nil
	}
	return os.NewSyscallError("epoll_ctl", err)
}

// startLocked starts the goroutine, unless it is running.
func (r *Rester) startLocked() error {
	switch {
	case r.closed:
		return errClosed
	case r.epoll != nil:
		return nil
	}
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // so that the runtime can wait for it
		_ = syscall.Close(fd)
		return fmt.Errorf("set an epoll instance up: %w", err)
	}
	epoll := os.NewFile(uintptr(fd), "epoll")
	raw, err := epoll.SyscallConn()
	if err != nil {
		_ = epoll.Close()
		return fmt.Errorf("set an epoll instance up: %w", err)
	}
	r.epoll, r.raw, r.conns = epoll, raw, make(map[int32]*Conn)
	r.over.Go(func() { r.run(raw) })
	return nil
}

// run wakes connections until the epoll instance is closed.
func (r *Rester) run(raw syscall.RawConn) {
	var events [batch]syscall.EpollEvent
	n := 0
	look := func(fd uintptr) bool {
		n = poll(fd, events[:])
		return n > 0 // else the runtime waits for the next event
	}
	var woken []*Conn
	for raw.Read(look) == nil {
		r.mu.Lock()
		for _, e := range events[:n] {
			if c := r.conns[e.Fd]; c != nil { // nil: closed meanwhile
				woken = append(woken, c)
			}
		}
		r.mu.Unlock()
		for _, c := range woken {
			c.wake()
		}
		clear(woken)
		woken = woken[:0]
	}
}

// poll is epoll_wait(2) without waiting and without the announcement; see the package comment.
func poll(fd uintptr, events []syscall.EpollEvent) int {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0) //nolint:gosec // as in package syscall
		switch errno {
		case 0:
			return int(n)
		case syscall.EINTR:
		default:
			return 0
		}
	}
}

// forget removes a connection from the list, before its descriptor is reused.
func (r *Rester) forget(c *Conn, fd int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns[fd] == c {
		delete(r.conns, fd)
	}
}

// Close ends the goroutine. No connection may rest during or after Close.
func (r *Rester) Close() {
	r.mu.Lock()
	r.closed = true
	epoll := r.epoll
	r.mu.Unlock()
	if epoll != nil {
		_ = epoll.Close()
	}
	r.over.Wait()
}

// wake ends the rest of the connection, if it is resting.
func (c *Conn) wake() {
	c.rest.mu.Lock()
	ready := c.rest.ready
	c.rest.ready = nil
	c.rest.mu.Unlock()
	if ready != nil {
		ready()
	}
}

// Close implements net.Conn. It ends a rest.
func (c *Conn) Close() error {
	c.rest.mu.Lock()
	c.rest.closed = true
	if c.rest.of != nil {
		c.rest.of.forget(c, c.rest.fd)
	}
	c.rest.mu.Unlock()
	err := c.TCPConn.Close()
	c.wake()
	return err //nolint:wrapcheck // net's
}

// SetDeadline implements net.Conn. It ends a rest.
func (c *Conn) SetDeadline(t time.Time) error {
	err := c.TCPConn.SetDeadline(t)
	c.wake()
	return err //nolint:wrapcheck // net's
}

// SetReadDeadline implements net.Conn. It ends a rest.
func (c *Conn) SetReadDeadline(t time.Time) error {
	err := c.TCPConn.SetReadDeadline(t)
	c.wake()
	return err //nolint:wrapcheck // net's
}
