//go:build !linux

package rawconn

import (
	"errors"
	"net"
)

// Conn is a connection that can rest. This system has none.
type Conn struct {
	*net.TCPConn
	haste
}

// Wrap returns the connection unchanged.
func Wrap(c net.Conn) net.Conn { return c }

// Rester needs epoll: this one does nothing.
type Rester struct{}

// Rest fails.
func (*Rester) Rest(*Conn, func()) error { return errors.ErrUnsupported }

// Close does nothing.
func (*Rester) Close() {}
