package netlimit

import "syscall"

// silence is how long the kernel holds back a connection without bytes, in seconds: several times what a
// burst of ten thousand clients takes to send its first bytes.
const silence = 3

// awaitBytes makes the kernel report connections only after their first bytes have arrived. A kernel
// without this option reports them at once.
func awaitBytes(fd uintptr) {
	_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_DEFER_ACCEPT, silence) // an error leaves it as without the option
}
