package lifecycle

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// network gives pods addresses on a bridge, and names. The test's own address is self.
type network struct {
	id     string // prefix of the names of all its resources
	self   string
	prefix string // of all addresses

	mu    sync.Mutex
	last  int                 // guarded by mu; the newest host
	names map[string][]string // guarded by mu; addresses by name
}

// newNetwork creates a network, which is removed with the test, or skips the test if it cannot.
func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs root, for network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skipf("it needs ip: %v", err)
	}
	prefix := freePrefix(t)
	n := &network{id: "swl" + strings.ToLower(crand.Text()[:5]), self: prefix + ".1", prefix: prefix, last: 9, names: map[string][]string{}}
	bridge := n.id + "b"
	t.Cleanup(func() { _ = inOrder(context.Background(), "ip link del "+bridge) })
	if err := inOrder(t.Context(), "ip link add "+bridge+" type bridge", "ip addr add "+n.self+"/24 dev "+bridge, "ip link set "+bridge+" up"); err != nil {
		t.Skipf("there can be no network here: %v", err)
	}
	n.serveNames(t)
	return n
}

// host is the network namespace of one pod.
type host struct {
	ip, space string
}

// newHost adds a host at an unused address.
func (n *network) newHost(ctx context.Context) (*host, error) {
	n.mu.Lock()
	n.last++
	number := n.last
	n.mu.Unlock()
	h := &host{ip: n.prefix + "." + strconv.Itoa(number), space: n.id + "n" + strconv.Itoa(number)}
	outside := n.id + "v" + strconv.Itoa(number)
	etc := filepath.Join("/etc/netns", h.space) // `ip netns exec` mounts it over /etc
	err := errors.Join(os.MkdirAll(etc, 0o755), os.WriteFile(filepath.Join(etc, "resolv.conf"), []byte("nameserver "+n.self+"\n"), 0o644))
	if err == nil {
		err = inOrder(ctx,
			"ip netns add "+h.space,
			"ip link add "+outside+" type veth peer name eth0 netns "+h.space,
			"ip link set "+outside+" master "+n.id+"b up",
			"ip -n "+h.space+" addr add "+h.ip+"/24 dev eth0",
			"ip -n "+h.space+" link set eth0 up",
			"ip -n "+h.space+" link set lo up",
		)
	}
	if err != nil {
		h.remove()
		return nil, err
	}
	return h, nil
}

// remove removes the host with its address. Its processes have ended.
func (h *host) remove() {
	_ = inOrder(context.Background(), "ip netns del "+h.space)
	_ = os.RemoveAll(filepath.Join("/etc/netns", h.space))
}

// serveNames serves the addresses of names at port 53 of self.
func (n *network) serveNames(t *testing.T) {
	t.Helper()
	socket, err := net.ListenPacket("udp", net.JoinHostPort(n.self, "53"))
	if err != nil {
		t.Skipf("there can be no DNS here: %v", err)
	}
	s := &dns.Server{PacketConn: socket, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg).SetReply(q)
		name := strings.TrimSuffix(q.Question[0].Name, ".")
		n.mu.Lock()
		addresses, known := n.names[name]
		n.mu.Unlock()
		if !known {
			r.Rcode = dns.RcodeNameError
		}
		for _, a := range addresses {
			if q.Question[0].Qtype == dns.TypeA {
				r.Answer = append(r.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.ParseIP(a)})
			}
		}
		_ = w.WriteMsg(r) // the client retries
	})}
	served := make(chan error, 1)
	go func() { served <- s.ActivateAndServe() }()
	t.Cleanup(func() {
		_ = socket.Close()
		<-served
	})
}

// name sets the addresses of a name.
func (n *network) name(name string, addresses []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[name] = addresses
}

// freePrefix returns the first three parts of unused addresses in the range for tests of networks
// (RFC 2544).
func freePrefix(t *testing.T) string {
	t.Helper()
	taken, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
next:
	for {
		prefix := fmt.Sprintf("198.%d.%d", 18+rand.IntN(2), rand.IntN(256))
		for _, a := range taken {
			if strings.HasPrefix(a.String(), prefix+".") {
				continue next
			}
		}
		return prefix
	}
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
