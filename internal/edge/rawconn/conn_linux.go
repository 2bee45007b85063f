//go:build linux && !race

package rawconn

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// Conn is a TCP connection. As in package net, one goroutine at a time reads it and one writes it;
// others wait.
type Conn struct {
	*net.TCPConn
	raw syscall.RawConn
	haste
	rest    rest
	in, out transfer
	reading sync.Mutex // held by Read; guards in
	writing sync.Mutex // held by Write; guards out
	pull    func(fd uintptr) (done bool)
	push    func(fd uintptr) (done bool)
}

// transfer is one read or write. It is a field of the connection, so that it allocates nothing.
type transfer struct {
	p   []byte
	n   int
	err error
}

// Wrap returns a TCP connection as a *Conn, and any other connection unchanged.
func Wrap(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	out := &Conn{TCPConn: tcp, raw: raw}
	out.pull, out.push = out.read, out.write
	return out
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.idle() {
		return 0, ErrNothing
	}
	c.in = transfer{p: p}
	err := c.raw.Read(c.pull)
	n, failed := c.in.n, c.in.err
	c.in = transfer{}
	switch {
	case err != nil:
		return 0, err //nolint:wrapcheck // net's
	case errors.Is(failed, syscall.EAGAIN):
		return 0, ErrNothing
	case failed != nil:
		return 0, c.failed("read", failed)
	case n == 0:
		return 0, io.EOF
	}
	c.drained = n < len(p)
	return n, nil
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	c.out = transfer{p: p}
	err := c.raw.Write(c.push)
	n, failed := c.out.n, c.out.err
	c.out = transfer{}
	if err == nil && failed != nil {
		err = c.failed("write", failed)
	}
	return n, err
}

// failed returns the error of a system call in the form of package net.
func (c *Conn) failed(deed string, err error) error {
	return &net.OpError{Op: deed, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(deed, err)}
}

// read reads once. If nothing has arrived, it returns false to be called again, unless Hasty is set.
func (c *Conn) read(fd uintptr) (done bool) {
	c.in.n, c.in.err = call(syscall.SYS_READ, fd, c.in.p)
	return c.Hasty || !errors.Is(c.in.err, syscall.EAGAIN)
}

// write writes all bytes. If the kernel takes no more for now, it returns false to be called again.
func (c *Conn) write(fd uintptr) (done bool) {
	for c.out.n < len(c.out.p) {
		n, err := Write(fd, c.out.p[c.out.n:])
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return false
		case err != nil:
			c.out.err = err
			return true
		case n == 0:
			c.out.err = io.ErrUnexpectedEOF
			return true
		}
		c.out.n += n
	}
	return true
}

// Write is write(2) on a non-blocking descriptor, without the announcement; see the package comment.
func Write(fd uintptr, p []byte) (int, error) { return call(syscall.SYS_WRITE, fd, p) }

// call makes a system call on p, and repeats it when a signal interrupts it.
func call(trap, fd uintptr, p []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p))) //nolint:gosec // as in package syscall, without the announcement
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
