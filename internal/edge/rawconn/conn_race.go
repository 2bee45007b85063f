//go:build linux && race

package rawconn

import (
	"net"
	"syscall"
)

// Conn is a TCP connection that can rest. The race detector needs package syscall's calls: they
// order what happens before a write and after the read of its bytes.
type Conn struct {
	*net.TCPConn
	raw  syscall.RawConn
	rest rest
}

// Wrap returns a TCP connection as a *Conn, and any other unchanged.
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
