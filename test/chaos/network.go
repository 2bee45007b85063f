package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// network gives every process of a run an address in a network namespace of its own, all on one
// bridge, so that the run can cut the link between two of them and change nothing else on the
// machine. The run itself, with all clients, uses the bridge's address. It needs root, ip and
// iptables.
type network struct {
	id    string // part of the names of all its resources
	self  string // the run's address
	hosts []*host
}

// host is the network namespace of one process.
type host struct {
	name, ip string
	space    string // the namespace
}

// ourNames is the prefix of all resources of a network. The ID of the process that created it
// follows, so that a later run finds the leftovers of a crashed one.
const ourNames = "swc"

// netless returns the reason why this machine does not support a network, or nil.
func netless() error {
	if os.Geteuid() != 0 {
		return errors.New("it needs root, for network namespaces")
	}
	for _, tool := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("it needs %s: %w", tool, err)
		}
	}
	return nil
}

// newNetwork makes a network with a host for each name, after it has removed the leftovers of
// crashed runs.
func newNetwork(ctx context.Context, names []string) (n *network, err error) {
	if err := sweep(ctx); err != nil {
		return nil, err
	}
	prefix, err := freePrefix()
	if err != nil {
		return nil, err
	}
	n = &network{id: ourNames + strconv.Itoa(os.Getpid()), self: prefix + ".1"}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	bridge := n.id + "b"
	if err := inOrder(ctx,
		"ip link add "+bridge+" type bridge",
		"ip addr add "+n.self+"/24 dev "+bridge,
		"ip link set "+bridge+" up",
	); err != nil {
		return n, err
	}
	for i, name := range names {
		h := &host{name: name, ip: prefix + "." + strconv.Itoa(10+i), space: n.id + "n" + strconv.Itoa(i)}
		n.hosts = append(n.hosts, h)
		outside := n.id + "v" + strconv.Itoa(i)
		if err := inOrder(ctx,
			"ip netns add "+h.space,
			"ip link add "+outside+" type veth peer name eth0 netns "+h.space,
			"ip link set "+outside+" master "+bridge+" up",
			"ip -n "+h.space+" addr add "+h.ip+"/24 dev eth0",
			"ip -n "+h.space+" link set eth0 up",
			"ip -n "+h.space+" link set lo up",
		); err != nil {
			return n, err
		}
	}
	return n, nil
}

// close removes the network. No process may run in it any more.
func (n *network) close() error {
	ctx := context.Background() // also when the run was interrupted
	return remove(ctx, func(name string) bool {
		of, ok := owner(name)
		return ok && of == os.Getpid()
	})
}

// sweep removes the networks of processes that have ended.
func sweep(ctx context.Context) error {
	return remove(ctx, func(name string) bool {
		of, ok := owner(name)
		return ok && errors.Is(syscall.Kill(of, 0), syscall.ESRCH)
	})
}

// owner returns the process that created a network's resource.
func owner(name string) (pid int, ok bool) {
	rest, ok := strings.CutPrefix(name, ourNames)
	if !ok {
		return 0, false
	}
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		rest = rest[:end]
	}
	pid, err := strconv.Atoi(rest)
	return pid, err == nil
}

// remove removes the namespaces and links with chosen names. It ignores a link that was removed
// with its namespace.
func remove(ctx context.Context, chosen func(name string) bool) error {
	var errs []error
	spaces, err := os.ReadDir("/run/netns")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, s := range spaces {
		if chosen(s.Name()) {
			errs = append(errs, inOrder(ctx, "ip netns del "+s.Name()))
		}
	}
	links, err := net.Interfaces()
	errs = append(errs, err)
	for _, l := range links {
		if chosen(l.Name) && inOrder(ctx, "ip link del "+l.Name) != nil {
			if _, err := net.InterfaceByName(l.Name); err == nil {
				errs = append(errs, fmt.Errorf("link %s could not be removed", l.Name))
			}
		}
	}
	return errors.Join(errs...)
}

// freePrefix returns the first three parts of unused addresses in the range for tests of networks
// (RFC 2544).
func freePrefix() (string, error) {
	taken, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("find free addresses: %w", err)
	}
next:
	for range 100 {
		prefix := fmt.Sprintf("198.%d.%d", 18+rand.IntN(2), rand.IntN(256))
		for _, a := range taken {
			if strings.HasPrefix(a.String(), prefix+".") {
				continue next
			}
		}
		return prefix, nil
	}
	return "", errors.New("all addresses of 198.18.0.0/15 are taken")
}

// inOrder runs commands until one fails.
func inOrder(ctx context.Context, commands ...string) error {
	for _, c := range commands {
		words := strings.Fields(c)
		if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// run returns a command that starts a program on the host.
func (h *host) run(bin string, args []string) (string, []string) {
	return "ip", append([]string{"netns", "exec", h.space, bin}, args...)
}

// apply adds rules to the host's filter, and returns a function that removes exactly these. Each
// begins with the chain, as in "INPUT -s 198.18.0.10 -j DROP".
func (h *host) apply(ctx context.Context, rules ...string) (heal, error) {
	var added []string
	undo := func(ctx context.Context) error {
		var errs []error
		for _, r := range added {
			errs = append(errs, h.iptables(ctx, "-D "+r))
		}
		added = nil
		return errors.Join(errs...)
	}
	for _, r := range rules {
		if err := h.iptables(ctx, "-A "+r); err != nil {
			return nil, errors.Join(err, undo(context.WithoutCancel(ctx)))
		}
		added = append(added, r)
	}
	return undo, nil
}

func (h *host) iptables(ctx context.Context, args string) error {
	return inOrder(ctx, "ip netns exec "+h.space+" iptables -w "+args)
}

// from returns a rule for packets from an address to the host, to one for packets to the address;
// by is the treatment of the packets.
func from(ip, by string) string { return "INPUT -s " + ip + by }
func to(ip, by string) string   { return "OUTPUT -d " + ip + by }

// Treatments of packets: drop them, or reset the connection at once.
const (
	dropped = " -j DROP"
	reset   = " -p tcp -j REJECT --reject-with tcp-reset"
)

// both returns the rules that cut a host from addresses in both directions.
func both(by string, ips ...string) (rules []string) {
	for _, ip := range ips {
		rules = append(rules, from(ip, by), to(ip, by))
	}
	return rules
}
