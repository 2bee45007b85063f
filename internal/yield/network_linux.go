package yield

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// lookAtNetwork returns after Go's scheduler has polled the network, which makes the goroutines that wait for
// it ready. The scheduler polls only when no goroutine is ready, or every 10 ms: a goroutine that calls
// runtime.Gosched is ready. It costs some 2 µs of CPU. Without free descriptors it returns at once.
func lookAtNetwork() {
	w, ok := waits.Get().(*wait)
	if !ok {
		var err error
		if w, err = newWait(); err != nil {
			return
		}
	}
	w.asked = false
	_ = w.raw.Read(w.look) // the file is never closed
	waits.Put(w)
}

// waits is the pool of lookAtNetwork. If the pool drops a wait, its file's finalizer closes it.
var waits sync.Pool //nolint:gochecknoglobals // a pool of the process

// wait is a file of the network poller that is never read: each write makes its reader ready once the scheduler
// has polled the network.
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
		return nil, fmt.Errorf("set up an eventfd: %w", err)
	}
	return w, nil
}

// ask writes to the file once, and then makes the poller wait for the write. The counter has room for 2^64
// writes.
func (w *wait) ask(fd uintptr) (done bool) {
	if w.asked {
		return true
	}
	w.asked = true
	one := uint64(1)
	_, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one)) //nolint:gosec // what package syscall does
	return errno != 0
}
