package chaos

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hear connects from a host to an address, in a process on that host: the test's own sockets are
// all in one namespace.
func hear(t *testing.T, from *host, ip string, patience time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	bin, args := from.run("bash", []string{"-c", "exec 3<>/dev/tcp/" + strings.Replace(ip, ":", "/", 1)})
	return exec.CommandContext(ctx, bin, args...).Run()
}

func TestNetworkIsCutAndRestored(t *testing.T) {
	if err := netless(); err != nil {
		t.Skip(err)
	}
	ctx := t.Context()
	n, err := newNetwork(ctx, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
		if err := n.close(); err != nil {
			t.Errorf("a second time: %v", err)
		}
		for _, h := range n.hosts {
			if _, err := os.Stat(filepath.Join("/run/netns", h.space)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", h.space, err)
			}
		}
	}()
	l, err := net.Listen("tcp", n.self+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, b, addr := n.hosts[0], n.hosts[1], l.Addr().String()
	reaches := func(h *host, want bool) {
		t.Helper()
		patience := time.Second
		if want { // a busy machine may be slow
			patience = time.Minute
		}
		if err := hear(t, h, addr, patience); (err == nil) != want {
			t.Errorf("%s reaches us: %v", h.name, err)
		}
	}
	reaches(a, true)
	reaches(b, true)
	for _, rules := range [][]string{both(dropped, n.self), both(reset, n.self), {from(n.self, dropped)}, {to(n.self, dropped)}} {
		mend, err := a.apply(ctx, rules...)
		if err != nil {
			t.Fatal(err)
		}
		reaches(a, false)
		reaches(b, true)
		if err := mend(ctx); err != nil {
			t.Fatal(err)
		}
		reaches(a, true)
	}
	if _, err := a.apply(ctx, from(n.self, dropped), "INPUT -j NOSUCHTARGET"); err == nil {
		t.Error("applied a rule that there is not")
	}
	reaches(a, true)
}

// A run removes the leftovers of crashed runs, and keeps the resources of live processes.
func TestSweepRemovesOnlyLeftovers(t *testing.T) {
	if err := netless(); err != nil {
		t.Skip(err)
	}
	dead := exec.CommandContext(t.Context(), "true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	of := func(pid int) string { return ourNames + strconv.Itoa(pid) + "n0" }
	left, ours := of(dead.Process.Pid), of(os.Getpid())
	for _, name := range []string{left, ours} {
		if err := inOrder(t.Context(), "ip netns add "+name); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = inOrder(context.Background(), "ip netns del "+name) }()
	}
	if err := sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	there := func(name string) bool { _, err := os.Stat(filepath.Join("/run/netns", name)); return err == nil }
	if there(left) || !there(ours) {
		t.Errorf("of the dead: %v, of the living: %v", there(left), there(ours))
	}
}

func TestNamesIdentifyTheirOwner(t *testing.T) {
	for name, want := range map[string]int{"swc17b": 17, "swc17n12": 17, "swc4194304v1": 4194304, "swc": 0, "swcx": 0, "eth0": 0, "swarm1": 0} {
		if pid, ok := owner(name); pid != want || ok != (want > 0) {
			t.Errorf("%s: %d, %v", name, pid, ok)
		}
	}
	if errors.Is(syscall.Kill(os.Getpid(), 0), syscall.ESRCH) {
		t.Error("we are not there")
	}
}
