package membership

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/shardwatch/shardwatch/internal/edge/netlimit"
)

// Transport carries gossip packets and streams. [Network] makes one that works in
// memory. It is exported as an interface so that other packages can hold one.
type Transport interface {
	memberlist.NodeAwareTransport
	// IngestStream adds a stream as if a node had dialled this one. It blocks
	// until the stream is accepted.
	IngestStream(conn net.Conn) error
}

// socketTransport is memberlist's transport over UDP and TCP, with streams that
// end when ctx does: memberlist's exchanges cannot be stopped otherwise.
// Incoming streams are bounded, in number and in bytes: memberlist reads up to
// 20 MB of each before it knows whether the sender has the key.
type socketTransport struct {
	*memberlist.NetTransport
	ctx     context.Context // memberlist's interface has none
	limit   *netlimit.Limit // nil: no bound
	streams chan net.Conn

	once           sync.Once
	stopping, done chan struct{} // stopping: streams are no longer accepted; done: no more streams come
	admitting      sync.WaitGroup
}

// maxState bounds the bytes read from a stream: the metadata of all members,
// about 600 bytes each.
const maxState = 4 << 20

// bindAttempts is how often port 0 is tried: the port that TCP got may be in
// use for UDP.
const bindAttempts = 10

// listenSockets listens on bind, host:port. An empty host means all IPv4 addresses, and all IPv6
// addresses too if advertised, the IP address that others use, is an IPv6 address.
func listenSockets(ctx context.Context, bind, advertised string, limit *netlimit.Limit, logger *log.Logger) (*socketTransport, error) {
	host, port, err := net.SplitHostPort(bind)
	if err != nil {
		return nil, fmt.Errorf("--gossip-listen: listen for gossip on %s: %w", bind, err)
	}
	if host == "" {
		host = "0.0.0.0"
		if ip, err := netip.ParseAddr(advertised); err == nil && ip.Is6() {
			host = "::" // Go's net accepts IPv4 there, too
		}
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("--gossip-listen: listen for gossip on %s: %w", bind, err)
	}
	cfg := &memberlist.NetTransportConfig{BindAddrs: []string{host}, BindPort: n, Logger: logger}
	for attempt := 1; ; attempt++ {
		t, err := memberlist.NewNetTransport(cfg)
		if err == nil {
			s := &socketTransport{
				NetTransport: t, ctx: ctx, limit: limit, streams: make(chan net.Conn),
				stopping: make(chan struct{}), done: make(chan struct{}),
			}
			s.admitting.Go(s.admit)
			return s, nil
		}
		// memberlist formats the cause away, so only the text is left.
		inUse := strings.Contains(err.Error(), syscall.EADDRINUSE.Error())
		if n != 0 || !inUse || attempt == bindAttempts {
			return nil, fmt.Errorf("--gossip-listen: listen for gossip on %s: %w", bind, err)
		}
	}
}

// admit accepts the streams that others open, until Shutdown.
func (t *socketTransport) admit() {
	for {
		select {
		case <-t.done:
			return
		case conn := <-t.NetTransport.StreamCh():
			if t.limit != nil {
				admitted, ok := t.limit.Admit(conn)
				if !ok {
					continue
				}
				conn = admitted
			}
			select {
			case t.streams <- &boundedConn{Conn: conn, left: maxState}:
			case <-t.stopping:
				_ = conn.Close()
			}
		}
	}
}

// StreamCh returns the streams that others opened.
func (t *socketTransport) StreamCh() <-chan net.Conn { return t.streams }

// IngestStream adds a stream of our own.
func (t *socketTransport) IngestStream(conn net.Conn) error {
	select {
	case t.streams <- conn:
		return nil
	case <-t.stopping:
		return net.ErrClosed
	}
}

// Shutdown closes the sockets. It may be called twice.
func (t *socketTransport) Shutdown() error {
	t.once.Do(func() {
		close(t.stopping)
		_ = t.NetTransport.Shutdown() // always nil; it waits until its streams are accepted
		close(t.done)
		t.admitting.Wait()
	})
	return nil
}

// boundedConn is a stream with a bound on the bytes read.
type boundedConn struct {
	net.Conn
	left int
}

var errState = errors.New("state exceeds the size limit")

// Read implements net.Conn.
func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, errState
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// DialTimeout dials addr.
func (t *socketTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	conn, err := d.DialContext(t.ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	stop := context.AfterFunc(t.ctx, func() { _ = conn.Close() })
	return &boundConn{Conn: conn, stop: stop}, nil
}

// DialAddressTimeout dials addr.
func (t *socketTransport) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(addr.Addr, timeout)
}

type boundConn struct {
	net.Conn
	stop func() bool
}

// Close closes the connection.
func (c *boundConn) Close() error {
	c.stop()
	return c.Conn.Close()
}
