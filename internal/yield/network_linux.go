package yield

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// lookAtNetwork returns when Go's scheduler has looked at the network, which makes the goroutines ready
// that wait for it. The scheduler does so only when no goroutine is ready, or every 10 ms: a goroutine
// that calls runtime.Gosched is ready. It costs some 2 µs of CPU. Without descriptors it returns at once.
func lookAtNetwork() {
	w, ok := waits.Get().(*wait)
	if !ok {
		var err error
		if w, err = newWait(); err != nil {
			return
		}
	}
	w.asked = false
	_ = w.raw.Read(w.look) // it is never closed
	waits.Put(w)
}

// waits are those of lookAtNetwork. One that the pool loses is closed with its file.
var waits sync.Pool //nolint:gochecknoglobals // a pool of the process

// wait is a file of the network poller that is never read: each write makes its reader ready, once the
// scheduler has looked at the network.
type wait struct {
	file  *os.File
	raw   syscall.RawConn // file's
	look  func(fd uintptr) bool
	asked bool
}

func newWait() (*wait, error) {
	fd, _, errno := syscall.Syscall(syscall.SYS_EVENTFD2, 0, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return nil, os.NewSyscallError("eventfd2", errno)
	}
	w := &wait{file: os.NewFile(fd, "eventfd")}
	w.look = w.ask
	var err error
	if w.raw, err = w.file.SyscallConn(); err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("set an eventfd up: %w", err)
	}
	return w, nil
}

// ask writes to the file once, and has the poller wait for that. The counter has room for 2^64 of them.
func (w *wait) ask(fd uintptr) (done bool) {
	if w.asked {
		return true
	}
	w.asked = true
	one := uint64(1)
	_, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one)) //nolint:gosec // what package syscall does
	return errno != 0
}
