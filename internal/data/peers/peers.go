package peers

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Config configures a Set.
type Config struct {
	// Member returns a node as gossip sees it.
	Member func(shard.NodeID) (shard.Member, bool)
	// Cluster returns the ID of this node's cluster; "": not known yet.
	Cluster func() string
	// Heard is called with reads of etcd's revision by other nodes; nil: not called.
	Heard func(replica.Look)
	// TLS makes a connection to a node; nil: no TLS.
	TLS func(raw net.Conn, node string) (net.Conn, *tls.Config)
	// Dial opens a connection to an address; nil: rawconn.Dial.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Set keeps a connection to each other node's peer port. All methods may be called
// from any goroutine.
type Set struct {
	cfg Config

	mu     sync.Mutex
	conns  map[shard.NodeID]*Conn // guarded by mu
	closed bool                   // guarded by mu
}

// Conn is the connection to one node.
type Conn struct {
	address string
	*grpc.ClientConn
	link *replica.Link
}

// maxPeerMessage bounds a message from another node: a fragment of a
// revision, or one event with its previous value, at most twice etcd's limit.
const maxPeerMessage = 64 << 20

// New returns a Set without connections. They are created when first requested.
func New(cfg Config) *Set {
	if cfg.Dial == nil {
		cfg.Dial = rawconn.Dial
	}
	return &Set{cfg: cfg, conns: make(map[shard.NodeID]*Conn)}
}

// Conn returns the connection to a node that gossip knows and does not report as gone.
// It does not wait until the connection is established.
func (p *Set) Conn(node shard.NodeID) (*Conn, error) {
	if m, ok := p.cfg.Member(node); ok && (m.State == shard.Dead || m.State == shard.Left) {
		return nil, away("node %s is gone according to gossip", node)
	}
	return p.Reach(node)
}

// Reach is Conn for callers without an alternative: gossip is a hint, and wrong about the
// others for a while after a partition.
func (p *Set) Reach(node shard.NodeID) (*Conn, error) {
	m, ok := p.cfg.Member(node)
	if !ok {
		return nil, away("node %s is not known to gossip", node)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, away("node %s: this node is stopping", node)
	}
	if c := p.conns[node]; c != nil {
		if c.address == m.PeerAddress {
			return c, nil
		}
		_ = c.Close() // the node came back at another address
	}
	c, err := grpc.NewClient("passthrough:///"+m.PeerAddress, p.options(node)...)
	if err != nil {
		return nil, fmt.Errorf("node %s at %s: %w", node, m.PeerAddress, err)
	}
	pc := &Conn{address: m.PeerAddress, ClientConn: c}
	pc.link = replica.NewLink(c, p.cfg.Heard)
	p.conns[node] = pc
	return pc, nil
}

// Reachable is Reach for callers that need only a grpc.ClientConnInterface.
func (p *Set) Reachable(node shard.NodeID) (grpc.ClientConnInterface, error) {
	c, err := p.Reach(node)
	if err != nil {
		return nil, err // not a nil *Conn
	}
	return c, nil
}

// Client is Conn for callers that need only a grpc.ClientConnInterface.
func (p *Set) Client(node shard.NodeID) (grpc.ClientConnInterface, error) {
	c, err := p.Conn(node)
	if err != nil {
		return nil, err // not a nil *Conn
	}
	return c, nil
}

// Link returns the link to a node that gossip knows and does not report as gone.
func (p *Set) Link(node shard.NodeID) (*replica.Link, error) {
	c, err := p.Conn(node)
	if err != nil {
		return nil, err
	}
	return c.link, nil
}

// Flow control of other nodes' messages, in bytes. By default, gRPC measures the
// capacity of a connection: it answers incoming data with a ping, which causes half of
// all wake-ups of an idle cluster.
const (
	streamWindow = 1 << 20
	connWindow   = 8 << 20
)

func (p *Set) options(node shard.NodeID) []grpc.DialOption {
	creds := insecure.NewCredentials()
	if p.cfg.TLS != nil {
		creds = tlsconf.PeerCredentials(p.cfg.TLS, string(node))
	}
	o := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxPeerMessage)),
		// Reconnect at once to a node that comes back, and give up a partitioned node
		// soon: there are others.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithDisableServiceConfig(),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		// A node of another cluster at a remembered address refuses the call.
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, answer any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(wire.NameCluster(ctx, p.cfg.Cluster()), method, request, answer, c, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(wire.NameCluster(ctx, p.cfg.Cluster()), desc, c, method, opts...)
		}),
	}
	return append(o, grpc.WithContextDialer(p.cfg.Dial))
}

// Prune closes the connections to nodes that are gone.
func (p *Set) Prune() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node, c := range p.conns {
		if m, ok := p.cfg.Member(node); !ok || m.State == shard.Dead || m.State == shard.Left {
			_ = c.Close()
			delete(p.conns, node)
		}
	}
}

// away returns the error for a node that is unavailable now: callers may retry.
func away(format string, node shard.NodeID) error {
	return &kv.UnavailableError{Why: kv.NotReady, RetryAfter: 200 * time.Millisecond, Detail: fmt.Sprintf(format, node)}
}

// Close closes all connections, and creates no more.
func (p *Set) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.conns {
		_ = c.Close()
	}
}
