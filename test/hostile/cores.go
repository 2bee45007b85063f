package hostile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// moveApart moves this process to the second half of its cores, and makes nodes run on the first
// half. Child processes (etcd and the attackers) inherit the cores of this process.
func (c *Config) moveApart(ctx context.Context) error {
	all, err := coresOf(os.Getpid())
	if err != nil {
		return err
	}
	if len(all) < 2 {
		return errors.New("--apart: the node needs a core to itself, and there is one core; use --apart=false")
	}
	node, others := join(all[:len(all)/2]), join(all[len(all)/2:])
	out, err := exec.CommandContext(ctx, "taskset", "-a", "-p", "-c", others, strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("--apart: move to cores %s: %w: %s", others, err, out)
	}
	c.under = []string{"taskset", "-c", node}
	c.Say("the node has the cores %s; its clients, etcd and attackers have %s", node, others)
	return nil
}

// coresOf returns the cores that a process may use, in order.
func coresOf(pid int) ([]int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, fmt.Errorf("read the cores of a process: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return parseCores(strings.TrimSpace(list))
		}
	}
	return nil, fmt.Errorf("/proc/%d/status has no Cpus_allowed_list", pid)
}

// parseCores parses the kernel's notation, for example 0-2,5.
func parseCores(list string) (out []int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("list of cores %q: %w", list, err)
		}
		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}

// join formats cores in the notation of taskset.
func join(cores []int) string {
	text := make([]string, len(cores))
	for i, n := range cores {
		text[i] = strconv.Itoa(n)
	}
	return strings.Join(text, ",")
}
