//go:build !linux || race

package rawconn

import (
	"errors"
	"net"
	"syscall"
)

// Wrap returns the connection as it is. The race detector needs package syscall's calls: they
// order what happens before a write and after the read of its bytes.
func Wrap(c net.Conn) net.Conn { return c }

// Write is write(2).
func Write(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), p) //nolint:gosec // a descriptor
		if !errors.Is(err, syscall.EINTR) {
			return max(n, 0), err //nolint:wrapcheck // an errno
		}
	}
}
