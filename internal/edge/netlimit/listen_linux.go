package netlimit

import "syscall"

// silence is how long a client may be connected before its first byte, in seconds, and not be accepted:
// it is what a burst of some ten thousand clients takes to send them, several times over.
const silence = 3

// awaitBytes has the kernel accept connections when their first bytes have arrived. A kernel
// that cannot accepts them at once.
func awaitBytes(fd uintptr) {
	_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_DEFER_ACCEPT, silence) // as above
}
