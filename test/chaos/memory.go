package chaos

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// flipInMemory flips the lowest bit of the byte at offset at of every occurrence of pattern in the
// private writable memory of a process, which is stopped meanwhile. It returns the number of flips.
// It needs the right to trace the process (ptrace(2)).
func flipInMemory(pid int, pattern []byte, at int) (flipped int, err error) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return 0, fmt.Errorf("stop process %d: %w", pid, err)
	}
	defer func() { err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)) }()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer mem.Close()
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		var from, to int64
		var rights string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &rights); err != nil || !strings.HasPrefix(rights, "rw-p") {
			continue
		}
		n, err := flipRegion(mem, from, to, pattern, at)
		flipped += n
		if err != nil {
			return flipped, err
		}
	}
	return flipped, nil
}

// flipRegion is flipInMemory for the addresses from from to before to.
func flipRegion(mem *os.File, from, to int64, pattern []byte, at int) (flipped int, err error) {
	const step = 4 << 20
	for ; from < to; from += step {
		b := make([]byte, min(step+int64(len(pattern))-1, to-from)) // a match may begin at the end of a step
		n, err := mem.ReadAt(b, from)
		if err != nil && n == 0 {
			continue // reserved but not mapped, like most of Go's arenas
		}
		for b, base := b[:n], from; ; {
			i := bytes.Index(b, pattern)
			if i < 0 || base+int64(i) >= from+step {
				break
			}
			if _, err := mem.WriteAt([]byte{pattern[at] ^ 1}, base+int64(i+at)); err != nil {
				return flipped, fmt.Errorf("write to memory: %w", err)
			}
			flipped++
			b, base = b[i+1:], base+int64(i+1)
		}
	}
	return flipped, nil
}
