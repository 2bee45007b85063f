package sim

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Network is an in-memory network of named hosts. Addresses are "host:port"; a host exists as soon
// as its name is used. Connections keep order and lose nothing, as TCP does. A test can cause the
// faults of TCP:
//
//   - A cut link is silent: bytes, closes and connection requests on it wait
//     until it is healed, without an error. A dial waits for its context.
//   - A broken connection ends with ECONNRESET on both sides.
//   - A silenced host is cut off from all others, like a host without power or a stopped process.
//   - A killed host is a process that died: its listeners are gone, its
//     connections are reset, and dials are refused at once.
//
// Waiting is on channels only and the lock is never held in a wait, so that a
// Network made in a testing/synctest bubble works on fake time.
type Network struct {
	mu        sync.Mutex
	latency   time.Duration        // guarded by mu
	listeners map[string]*listener // by address; guarded by mu
	conns     map[*conn]struct{}   // both ends of every connection; guarded by mu
	cut       map[link]bool        // guarded by mu
	silent    map[string]bool      // hosts; guarded by mu
	killed    map[string]bool      // hosts; guarded by mu
	changed   signal               // any of the above; guarded by mu
	nextPort  int                  // guarded by mu
	sent      map[string]int64     // bytes, by the dialled port; guarded by mu
}

// link is one direction between two hosts.
type link struct{ from, to string }

// NewNetwork returns a network without hosts, faults or latency.
func NewNetwork() *Network {
	return &Network{
		listeners: map[string]*listener{},
		conns:     map[*conn]struct{}{},
		cut:       map[link]bool{},
		silent:    map[string]bool{},
		killed:    map[string]bool{},
		changed:   make(signal),
		nextPort:  49152,
		sent:      map[string]int64{},
	}
}

// Listen opens addr, "host:port". It fails with EADDRINUSE when a host
// listens there, and with ENETDOWN on a killed host.
func (n *Network) Listen(addr string) (net.Listener, error) {
	host, err := hostOf(addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.killed[host] {
		return nil, opError("listen", addr, syscall.ENETDOWN)
	}
	if n.listeners[addr] != nil {
		return nil, opError("listen", addr, syscall.EADDRINUSE)
	}
	l := &listener{net: n, addr: Addr(addr)}
	n.listeners[addr] = l
	return l, nil
}

// Dial connects the host from to addr. It is refused with ECONNREFUSED when
// the host can be reached and does not listen there; while the host cannot be
// reached, it waits for ctx. It does not wait for the other side's Accept.
func (n *Network) Dial(ctx context.Context, from, addr string) (net.Conn, error) {
	to, err := hostOf(addr)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	n.mu.Lock()
	latency := n.latency
	n.mu.Unlock()
	if err := sleep(ctx, 2*latency); err != nil {
		return nil, opError("dial", addr, err)
	}
	for {
		c, wait, err := n.connect(from, to, addr)
		if err != nil {
			return nil, opError("dial", addr, err)
		}
		if c != nil {
			return c, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, opError("dial", addr, ctx.Err())
		}
	}
}

// Dialer returns Dial for one host, as grpc.WithContextDialer wants it. Use it
// with targets "passthrough:///host:port".
func (n *Network) Dialer(from string) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) { return n.Dial(ctx, from, addr) }
}

// Bytes returns how many bytes were sent so far over connections to a port of any
// host, in both directions.
func (n *Network) Bytes(port string) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent[port]
}

// connect makes one attempt: it returns a connection, an error, or a signal to wait for.
func (n *Network) connect(from, to, addr string) (*conn, signal, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch l := n.listeners[addr]; {
	case n.killed[from]:
		return nil, nil, syscall.ENETDOWN
	case !n.openLocked(link{from, to}) || !n.openLocked(link{to, from}):
		return nil, n.changed, nil
	case l == nil:
		return nil, nil, syscall.ECONNREFUSED
	default:
		n.nextPort++
		near, far := n.pairLocked(Addr(fmt.Sprintf("%s:%d", from, n.nextPort)), Addr(addr), link{from, to}, strings.TrimPrefix(addr, to+":"))
		l.backlog = append(l.backlog, far)
		n.notifyLocked()
		return near, nil, nil
	}
}

// SetLatency makes every byte take d from one end to the other, and a dial 2d.
// It counts from the next write on. With no latency at all, two sides that
// answer each other without pause never let fake time pass.
func (n *Network) SetLatency(d time.Duration) {
	n.change(func() { n.latency = d })
}

// Cut silences the link between a and b, both ways.
func (n *Network) Cut(a, b string) {
	n.change(func() { n.cut[link{a, b}], n.cut[link{b, a}] = true, true })
}

// CutOneWay silences the direction from the host from to the host to; the other
// direction stays open.
func (n *Network) CutOneWay(from, to string) {
	n.change(func() { n.cut[link{from, to}] = true })
}

// Heal opens the link between a and b both ways. Data sent meanwhile arrives.
func (n *Network) Heal(a, b string) {
	n.change(func() {
		delete(n.cut, link{a, b})
		delete(n.cut, link{b, a})
	})
}

// HealAll opens all links and ends every silence. Killed hosts stay killed.
func (n *Network) HealAll() {
	n.change(func() {
		clear(n.cut)
		clear(n.silent)
	})
}

// Break resets the existing connections between a and b. New connections are
// possible.
func (n *Network) Break(a, b string) {
	n.change(func() {
		for c := range n.conns {
			if c.out == (link{a, b}) || c.out == (link{b, a}) {
				n.resetLocked(c)
			}
		}
	})
}

// Silence cuts host off from all others, until Revive, HealAll or Kill.
func (n *Network) Silence(host string) {
	n.change(func() { n.silent[host] = true })
}

// Kill closes the listeners of host and resets its connections. Connections to it are refused, and
// it can neither dial nor listen until Revive. The other ends receive the reset once the link to
// them is open.
func (n *Network) Kill(host string) {
	n.change(func() {
		n.killed[host] = true
		delete(n.silent, host) // the host that answers for it now answers with resets
		for _, l := range n.listeners {
			if h, _ := hostOf(string(l.addr)); h == host {
				l.closeLocked()
			}
		}
		for c := range n.conns {
			if c.out.from == host {
				n.resetLocked(c)
			}
		}
	})
}

// Revive undoes Kill and Silence. The listeners and connections of a killed host are gone; it
// listens again after a call of Listen.
func (n *Network) Revive(host string) {
	n.change(func() {
		delete(n.killed, host)
		delete(n.silent, host)
	})
}

func (n *Network) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	n.notifyLocked()
}

func (n *Network) notifyLocked() { n.changed = n.changed.fire() }

func (n *Network) openLocked(l link) bool {
	return !n.cut[l] && !n.silent[l.from] && !n.silent[l.to]
}

// signal is a broadcast: a channel that is closed when something changed.
type signal chan struct{}

// fire wakes the waiters for s, and returns the next signal to wait for.
func (s signal) fire() signal {
	close(s)
	return make(signal)
}

// Addr is an address of a Network, "host:port".
type Addr string

// Network returns "sim".
func (Addr) Network() string { return "sim" }

// String returns "host:port".
func (a Addr) String() string { return string(a) }

func hostOf(addr string) (string, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	return host, nil
}

func opError(op, addr string, err error) error {
	return &net.OpError{Op: op, Net: "sim", Addr: Addr(addr), Err: err}
}

// sleep waits for d or for ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listener is an address that takes connections.
type listener struct {
	net     *Network
	addr    Addr
	backlog []*conn // guarded by net.mu
	closed  bool    // guarded by net.mu
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, wait, err := l.next()
		if err != nil {
			return nil, opError("accept", string(l.addr), err)
		}
		if c != nil {
			return c, nil
		}
		<-wait
	}
}

func (l *listener) next() (*conn, signal, error) {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	switch {
	case l.closed:
		return nil, nil, net.ErrClosed
	case len(l.backlog) == 0:
		return nil, l.net.changed, nil
	}
	c := l.backlog[0]
	l.backlog = l.backlog[1:]
	return c, nil, nil
}

func (l *listener) Close() error {
	l.net.change(l.closeLocked)
	return nil
}

// closeLocked resets connections that were not accepted, as a kernel does.
func (l *listener) closeLocked() {
	if l.closed {
		return
	}
	l.closed = true
	for _, c := range l.backlog {
		l.net.resetLocked(c)
	}
	l.backlog = nil
	if l.net.listeners[string(l.addr)] == l {
		delete(l.net.listeners, string(l.addr))
	}
}

func (l *listener) Addr() net.Addr { return l.addr }
