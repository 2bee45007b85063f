package membership

import (
	"context"
	"fmt"
	"log"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// Transport carries gossip packets and streams. [Network] makes one that lives
// in memory; it is an interface only so that others can hold one.
type Transport interface {
	memberlist.NodeAwareTransport
	// IngestStream hands over a stream as if somebody had dialled us. It
	// blocks until the stream is taken.
	IngestStream(conn net.Conn) error
}

// socketTransport is memberlist's own, over UDP and TCP, with streams that end
// when ctx does: memberlist's exchanges cannot be stopped otherwise.
type socketTransport struct {
	*memberlist.NetTransport
	ctx context.Context // memberlist's interface has none
}

// bindAttempts is how often port 0 is tried: the port that TCP got may be
// taken for UDP.
const bindAttempts = 10

func listenSockets(ctx context.Context, bind string, logger *log.Logger) (*socketTransport, error) {
	host, port, err := net.SplitHostPort(bind)
	if err != nil {
		return nil, fmt.Errorf("--gossip-listen: listen for gossip on %s: %w", bind, err)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("--gossip-listen: listen for gossip on %s: %w", bind, err)
	}
	cfg := &memberlist.NetTransportConfig{BindAddrs: []string{host}, BindPort: n, Logger: logger}
	for attempt := 1; ; attempt++ {
		t, err := memberlist.NewNetTransport(cfg)
		if err == nil {
			return &socketTransport{NetTransport: t, ctx: ctx}, nil
		}
		// memberlist formats the cause away, so look at the text.
		inUse := strings.Contains(err.Error(), syscall.EADDRINUSE.Error())
		if n != 0 || !inUse || attempt == bindAttempts {
			return nil, fmt.Errorf("--gossip-listen: listen for gossip on %s: %w", bind, err)
		}
	}
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
