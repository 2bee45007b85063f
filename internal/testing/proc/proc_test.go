package proc

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTexts(t *testing.T) {
	if n, err := size("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n", "VmHWM:"); n != 2<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := size("Name:\tx\n", "VmHWM:"); err == nil {
		t.Error("a status without VmHWM is accepted")
	}
	self := []int{os.Getpid()}
	debug.FreeOSMemory() // otherwise the ballast reuses freed memory of a previous run
	if err := ResetPeaks(self); err != nil {
		t.Fatal(err)
	}
	before, err := Peaks(self)
	if err != nil {
		t.Fatal(err)
	}
	ballast := bytes.Repeat([]byte("x"), 64<<20)
	after, err := Peaks(self)
	if err != nil || after[0]-before[0] < 32<<20 {
		t.Errorf("the peak grew by %d bytes with %d bytes of ballast, %v", after[0]-before[0], len(ballast), err)
	}
	if n, err := Memory(self); err != nil || n < int64(len(ballast)) {
		t.Errorf("%d bytes of memory with %d bytes of ballast, %v", n, len(ballast), err)
	}
}

// The CPU time of a process agrees with getrusage(2), and is finer than ticks of 10 ms.
func TestCPU(t *testing.T) {
	self := []int{os.Getpid()}
	before, err := CPU(self)
	if err != nil {
		t.Fatal(err)
	}
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	after, err := CPU(self)
	if err != nil {
		t.Fatal(err)
	}
	if used := time.Duration(usage.Utime.Nano() + usage.Stime.Nano()); used < before-time.Microsecond || used > after {
		t.Errorf("CPU time is %v and then %v, and %v in between by getrusage(2)", before, after, used)
	}
	if before == after {
		t.Errorf("CPU time did not grow from %v during system calls", before)
	}
	if _, err := CPU([]int{1 << 22}); err == nil {
		t.Error("got the CPU time of a process that cannot exist: the limit of PIDs is 1<<22")
	}
}

func TestProcess(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := Start(log, "sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Err(); err != nil {
		t.Errorf("the process has ended: %v", err)
	}
	if _, err := CPU([]int{p.PID()}); err != nil {
		t.Error(err)
	}
	p.Kill()
	p.Kill()
	if p.Err() == nil {
		t.Error("the process runs after Kill")
	}
	p.Interrupt()
	if p, err = Start(log, "sleep", "1000"); err != nil {
		t.Fatal(err)
	}
	if p.Interrupt(); p.Err() == nil {
		t.Error("the process runs after Interrupt")
	}
	if _, err := Start(log, "/no/such/program"); err == nil {
		t.Error("a missing program was started")
	}
}

// CPU returns the CPU time of a running process, and also after it has ended.
func TestCPUOfAProcessThatHasEnded(t *testing.T) {
	p, err := Start(filepath.Join(t.TempDir(), "log"), "sh", "-c", "while :; do :; done")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	running, err := p.CPU()
	for err == nil && running == 0 {
		runtime.Gosched()
		running, err = p.CPU()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if ended, err := p.CPU(); err != nil || ended < running/2 {
		t.Errorf("CPU time is %v and was %v: %v", ended, running, err)
	}
}
