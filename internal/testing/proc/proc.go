// Package proc reads the resource usage of processes from Linux's /proc.
package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU adds up the CPU time, user's and system's, that the processes have used, to
// the nanosecond: /proc/<pid>/stat counts it in ticks of 10 ms for each of the two.
func CPU(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		var used unix.Timespec
		if err := unix.ClockGettime(cpuClock(pid), &used); err != nil {
			return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
		}
		sum += time.Duration(used.Nano())
	}
	return sum, nil
}

// cpuClock returns the clock of a process's CPU time, as clock_getcpuclockid(3) does.
func cpuClock(pid int) int32 {
	const sched = 2 // CPUCLOCK_SCHED: what the scheduler counts, in nanoseconds
	return int32(^pid<<3 | sched)
}

// ResetPeaks resets the peak memory of the processes to their current memory.
func ResetPeaks(pids []int) error {
	for _, pid := range pids {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o600); err != nil {
			return fmt.Errorf("reset the peak memory of a process: %w", err)
		}
	}
	return nil
}

// Peaks returns the greatest memory of each process since ResetPeaks.
func Peaks(pids []int) ([]int64, error) {
	var out []int64
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return nil, fmt.Errorf("read the memory of a process: %w", err)
		}
		n, err := size(string(text), "VmHWM:")
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		out = append(out, n)
	}
	return out, nil
}

// Memory adds up the memory of the processes, in bytes; shared memory is divided
// among the processes that share it (PSS).
func Memory(pids []int) (int64, error) {
	var sum int64
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, fmt.Errorf("read the memory of a process: %w", err)
		}
		n, err := size(string(text), "Pss:")
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		sum += n
	}
	return sum, nil
}

// size reads a line of a file that gives sizes in kB.
func size(file, name string) (int64, error) {
	for line := range strings.Lines(file) {
		if text, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("there is no %s", name)
}
