//go:build !linux || race

package rawconn

import (
	"errors"
	"syscall"
)

// Write is write(2).
func Write(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), p) //nolint:gosec // a descriptor
		if !errors.Is(err, syscall.EINTR) {
			return max(n, 0), err //nolint:wrapcheck // an errno
		}
	}
}
