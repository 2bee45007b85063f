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

// Transport carries gossip packets and streams. [Network] makes one that lives
// in memory; it is an interface only so that others can hold one.
type Transport interface {
	memberlist.NodeAwareTransport
	// IngestStream hands over a stream as if a node had dialled this one. It
	// blocks until the stream is taken.
	IngestStream(conn net.Conn) error
}

// socketTransport is memberlist's own, over UDP and TCP, with streams that end
// when ctx does: memberlist's exchanges cannot be stopped otherwise. Those that
// others open are bounded, in number and in bytes: memberlist reads up to 20 MB
// of each before it knows whether the sender has the key.
type socketTransport struct {
	*memberlist.NetTransport
	ctx     context.Context // memberlist's interface has none
	limit   *netlimit.Limit // nil: no bound
	streams chan net.Conn

	once           sync.Once
	stopping, done chan struct{} // closed when streams are no longer taken, and when none comes
	admitting      sync.WaitGroup
}

// maxState bounds what is read of a stream, in bytes: the metadata of all
// members, about 600 bytes each.
const maxState = 4 << 20

// bindAttempts is how often port 0 is tried: the port that TCP got may be
// taken for UDP.
const bindAttempts = 10

// listenSockets listens on bind, host:port. An empty host means all addresses: of IPv4, and of IPv6,
// too, if advertised, the IP address that others use, is one.
func listenSockets(ctx context.Context, bind, advertised string, limit *netlimit.Limit, logger *log.Logger) (*socketTransport, error) {
	host, port, err := net.SplitHostPort(bind)
	if err != nil {
		return nil, fmt.Errorf("--gossip-listen: listen for gossip on %s: %w", bind, err)
	}
	if host == "" {
		host = "0.0.0.0"
		if ip, err := netip.ParseAddr(advertised); err == nil && ip.Is6() {
			host = "::" // Go's net takes IPv4 there, too
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
		// memberlist formats the cause away, so look at the text.
		inUse := strings.Contains(err.Error(), syscall.EADDRINUSE.Error())
		if n != 0 || !inUse || attempt == bindAttempts {
			return nil, fmt.Errorf("--gossip-listen: listen for gossip on %s: %w", bind, err)
		}
	}
}

// admit hands the streams on that others open, until Shutdown.
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

// IngestStream hands over a stream of our own.
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
		_ = t.NetTransport.Shutdown() // always nil; it waits until its streams are taken
		close(t.done)
		t.admitting.Wait()
	})
	return nil
}

// boundedConn is a stream of which so much may be read.
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
