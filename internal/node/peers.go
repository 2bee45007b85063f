package node

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
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/tlsconf"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// peers keeps a connection to each other node's peer port.
type peers struct {
	member  func(shard.NodeID) (shard.Member, bool)
	cluster func() string                                           // the ID of this node's cluster; "": not known yet
	heard   func(replica.Look)                                      // what other nodes have read of etcd
	tls     func(raw net.Conn, node string) (net.Conn, *tls.Config) // nil: no TLS
	sim     *Simulation

	mu     sync.Mutex
	conns  map[shard.NodeID]*peerConn // guarded by mu
	closed bool                       // guarded by mu
}

type peerConn struct {
	address string
	*grpc.ClientConn
	link *replica.Link
}

// maxPeerMessage bounds what one node accepts from another: a fragment of a
// revision, or one event with its previous value, at most twice etcd's limit.
const maxPeerMessage = 64 << 20

func newPeers(member func(shard.NodeID) (shard.Member, bool), cluster func() string, heard func(replica.Look), t func(net.Conn, string) (net.Conn, *tls.Config), sim *Simulation) *peers {
	return &peers{member: member, cluster: cluster, heard: heard, tls: t, sim: sim, conns: make(map[shard.NodeID]*peerConn)}
}

// conn returns the connection to a node that gossip sees and does not call
// gone. It does not wait for it to stand.
func (p *peers) conn(node shard.NodeID) (*peerConn, error) {
	if m, ok := p.member(node); ok && (m.State == shard.Dead || m.State == shard.Left) {
		return nil, away("node %s is gone according to gossip", node)
	}
	return p.reach(node)
}

// reach is conn for callers without an alternative: gossip is a hint, and wrong about the
// others for a while after this node was cut off from them.
func (p *peers) reach(node shard.NodeID) (*peerConn, error) {
	m, ok := p.member(node)
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
		_ = c.Close() // it came back under another address
	}
	c, err := grpc.NewClient("passthrough:///"+m.PeerAddress, p.options(node)...)
	if err != nil {
		return nil, fmt.Errorf("node %s at %s: %w", node, m.PeerAddress, err)
	}
	pc := &peerConn{address: m.PeerAddress, ClientConn: c}
	pc.link = replica.NewLink(c, p.heard)
	p.conns[node] = pc
	return pc, nil
}

// reachable is reach for those that only make calls.
func (p *peers) reachable(node shard.NodeID) (grpc.ClientConnInterface, error) {
	c, err := p.reach(node)
	if err != nil {
		return nil, err // not a nil *peerConn
	}
	return c, nil
}

// client is conn for those that only make calls.
func (p *peers) client(node shard.NodeID) (grpc.ClientConnInterface, error) {
	c, err := p.conn(node)
	if err != nil {
		return nil, err // not a nil *peerConn
	}
	return c, nil
}

// linkTo returns the link to a node that gossip sees and does not call gone.
func (p *peers) linkTo(node shard.NodeID) (*replica.Link, error) {
	c, err := p.conn(node)
	if err != nil {
		return nil, err
	}
	return c.link, nil
}

// Flow control of what other nodes send, in bytes. Left to itself, gRPC measures
// what a connection could carry: it answers what comes in with a ping, which is
// half of all wake-ups of an idle cluster.
const (
	streamWindow = 1 << 20
	connWindow   = 8 << 20
)

func (p *peers) options(node shard.NodeID) []grpc.DialOption {
	creds := insecure.NewCredentials()
	if p.tls != nil {
		creds = tlsconf.PeerCredentials(p.tls, string(node))
	}
	o := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxPeerMessage)),
		// A node that comes back is to be found at once, and one that is cut
		// off to be given up soon: there are others.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithDisableServiceConfig(),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		// A node that was rebuilt at the address of one that this node remembers
		// refuses the call.
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, answer any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(wire.NameCluster(ctx, p.cluster()), method, request, answer, c, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(wire.NameCluster(ctx, p.cluster()), desc, c, method, opts...)
		}),
	}
	dial := rawconn.Dial
	if p.sim != nil {
		dial = p.sim.Dial
	}
	return append(o, grpc.WithContextDialer(dial))
}

// prune closes the connections to nodes that are gone.
func (p *peers) prune() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node, c := range p.conns {
		if m, ok := p.member(node); !ok || m.State == shard.Dead || m.State == shard.Left {
			_ = c.Close()
			delete(p.conns, node)
		}
	}
}

// away is the error of a node that cannot be asked now: to be tried again, and
// no fault of ours.
func away(format string, node shard.NodeID) error {
	return &kv.UnavailableError{Why: kv.NotReady, RetryAfter: 200 * time.Millisecond, Detail: fmt.Sprintf(format, node)}
}

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.conns {
		_ = c.Close()
	}
}

// cluster returns the ID of the cluster whose shard map this node has; "": none yet.
func (n *Node) cluster() string {
	if m := n.placement.Map(); m != nil {
		return m.ClusterID
	}
	return ""
}
