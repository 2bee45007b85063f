package gateway

import (
	"net"
	"syscall"
)

// tcpNotSentLowat is TCP_NOTSENT_LOWAT of linux/tcp.h, which package syscall does not have.
const tcpNotSentLowat = 25

// boundUnsent has writes to a connection wait while the kernel has unsentMost bytes of it that
// were not sent. Bytes that were sent and are not acknowledged do not count, so that a fast
// client far away is as fast as before. A connection that is not the kernel's is left alone.
func boundUnsent(c net.Conn) {
	for c != nil {
		if own, ok := c.(syscall.Conn); ok {
			raw, err := own.SyscallConn()
			if err == nil {
				_ = raw.Control(func(fd uintptr) { // of a closed one: the next write fails
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
