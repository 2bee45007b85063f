//go:build linux && race

package rawconn

import (
	"errors"
	"net"
	"syscall"
)

// Conn is a TCP connection that can rest. It uses the calls of package syscall, because only they tell the
// race detector that a write happens before the read of its bytes.
type Conn struct {
	*net.TCPConn
	raw syscall.RawConn
	haste
	rest rest
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.idle() || c.Hasty && c.waits() {
		return 0, ErrNothing
	}
	n, err := c.TCPConn.Read(p)
	c.drained = err == nil && n < len(p)
	return n, err //nolint:wrapcheck // net's
}

// waits reports whether Read would wait, because nothing has arrived.
func (c *Conn) waits() bool {
	waits := false
	err := c.raw.Control(func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT) //nolint:gosec // a descriptor
		waits = errors.Is(err, syscall.EAGAIN)
	})
	return err == nil && waits
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
	return &Conn{TCPConn: tcp, raw: raw}
}
