package gateway

import (
	"net"
	"syscall"
)

// tcpNotSentLowat is TCP_NOTSENT_LOWAT of linux/tcp.h, which package syscall does not have.
const tcpNotSentLowat = 25

// boundUnsent makes writes to a connection block while the kernel holds unsentMost unsent bytes of it. Bytes
// sent but not acknowledged do not count, so a fast client far away is as fast as before. Connections without a
// socket of the kernel are left alone.
func boundUnsent(c net.Conn) {
	for c != nil {
		if own, ok := c.(syscall.Conn); ok {
			raw, err := own.SyscallConn()
			if err == nil {
				_ = raw.Control(func(fd uintptr) { // if closed, the next write fails
					_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotSentLowat, unsentMost)
				})
			}
			return
		}
		inner, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return
		}
		c = inner.NetConn()
	}
}
