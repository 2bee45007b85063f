package clienttest

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// Node is one node of a cluster.
type Node struct {
	Name string
	c    *Cluster
	zone string

	cut     atomic.Int64 // responses until the streams break; 0: never
	garble  atomic.Int64 // responses until one is spoilt; 0: never
	waiting atomic.Int64 // open watches

	mu       sync.Mutex
	addr     string       // kept across restarts; guarded by mu
	server   *grpc.Server // nil: killed; guarded by mu
	served   chan struct{}
	gate     *gate         // of the running server; guarded by mu
	draining bool          // guarded by mu
	level    int32         // the feature level that its software supports; guarded by mu
	held     int64         // the newest revision that it has; 0: all; guarded by mu
	refusal  *pb.Ended     // answer to new watches; nil: start them; guarded by mu
	readonly error         // answer to writes; nil: do them; guarded by mu
	notHere  []string      // nodes with the data that it lacks; nil: it has all data; guarded by mu
	age      time.Duration // how old its data is; guarded by mu
}

// Addr returns host:port. It stays the same when the node is restarted.
func (n *Node) Addr() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addr
}

// Restart starts the node, if it is not running, in its initial state: not stalled, not draining.
func (n *Node) Restart() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server != nil {
		return nil
	}
	addr := n.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	var l net.Listener
	var err error
	for range 50 { // a closing connection may still use the port for a moment
		if l, err = net.Listen("tcp", addr); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	n.addr = l.Addr().String()
	n.draining, n.held, n.refusal, n.readonly, n.notHere, n.age = false, 0, nil, nil, nil, 0
	n.cut.Store(0)
	n.garble.Store(0)
	n.gate = &gate{dead: make(chan struct{})}
	gate := n.gate
	s := grpc.NewServer(grpc.MaxConcurrentStreams(1<<20), grpc.UnaryInterceptor(n.c.accounts.checkCall), grpc.StreamInterceptor(n.c.accounts.checkStream))
	pb.RegisterCacheServiceServer(s, &cacheServer{n: n})
	pb.RegisterClusterServiceServer(s, &clusterServer{n: n})
	pb.RegisterAdminServiceServer(s, &adminServer{n: n})
	etcdserverpb.RegisterKVServer(s, &kvServer{n: n})
	etcdserverpb.RegisterAuthServer(s, &authServer{a: &n.c.accounts})
	healthgrpc.RegisterHealthServer(s, health.NewServer())
	n.server = s
	served := make(chan struct{})
	n.served = served
	go func() {
		defer close(served)
		_ = s.Serve(&gatedListener{Listener: l, gate: gate})
	}()
	return nil
}

// Kill ends the node at once: its connections are cut, its port refuses.
func (n *Node) Kill() {
	n.mu.Lock()
	s, served, gate := n.server, n.served, n.gate
	n.server = nil
	n.mu.Unlock()
	if s == nil {
		return
	}
	close(gate.dead)
	s.Stop()
	<-served
}

// Stall stops the node as SIGSTOP does: it accepts connections but does not answer.
func (n *Node) Stall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gate.close()
}

// Continue ends Stall.
func (n *Node) Continue() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gate.open()
}

// Drain ends the node's watches with REASON_DRAINING, and rejects new ones.
func (n *Node) Drain() {
	n.mu.Lock()
	n.draining = true
	n.mu.Unlock()
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.c.shardMap = n.c.cloneMapLocked()
	n.c.broadcastLocked()
}

// Hold makes the node lag: it gets no revision after the given one. 0 ends it.
func (n *Node) Hold(revision int64) {
	n.mu.Lock()
	n.held = revision
	n.mu.Unlock()
	n.c.broadcast()
}

// RefuseWatches answers every new watch with e; nil ends it.
func (n *Node) RefuseWatches(e *pb.Ended) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusal = e
}

// RefuseWrites answers every write with an error; nil ends it.
func (n *Node) RefuseWrites(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.readonly = err
}

func (n *Node) writable() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.readonly
}

// NotHere answers reads with NOT_HERE, naming the nodes to ask. None ends it.
func (n *Node) NotHere(endpoints ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notHere = endpoints
}

// CutAfter breaks the stream that would send the node's n-th response from now on,
// instead of sending it. Responses with events, and chunks of states and of lists, count.
func (n *Node) CutAfter(responses int64) { n.cut.Store(responses) }

// Garble spoils the node's n-th response from now on: it is sent twice, or violates the
// protocol. The same responses count as for CutAfter.
func (n *Node) Garble(responses int64) { n.garble.Store(responses) }

// SetAge sets the age of the node's data. Watches that need fresher data end.
func (n *Node) SetAge(age time.Duration) {
	n.mu.Lock()
	n.age = age
	n.mu.Unlock()
	n.c.broadcast()
}

func (n *Node) ageNow() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.age
}

// Watches returns how many watches are open at the node.
func (n *Node) Watches() int64 { return n.waiting.Load() }

// due counts a response down, and reports whether it is the n-th.
func due(count *atomic.Int64) bool {
	for {
		left := count.Load()
		if left == 0 {
			return false
		}
		if count.CompareAndSwap(left, left-1) {
			return left == 1
		}
	}
}

func (n *Node) isDraining() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.draining
}

// visible returns the newest revision the node has.
func (n *Node) visible(head int64) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held > 0 {
		return min(n.held, head)
	}
	return head
}

func (n *Node) member() *pb.Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	return &pb.Member{
		Name: n.Name, Uuid: "uuid-" + n.Name, ClientAddress: n.addr, State: pb.MemberState_MEMBER_STATE_ALIVE,
		Voter: true, Draining: n.draining, Zone: n.zone, Version: "test", FeatureLevel: n.level,
	}
}

// gate blocks all messages while it is closed.
type gate struct {
	dead chan struct{} // closed: the node was killed

	mu   sync.Mutex
	shut chan struct{} // nil: open; guarded by mu
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// pass waits while the gate is closed; it returns false if the node was killed.
func (g *gate) pass(closed <-chan struct{}) bool {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		select {
		case <-shut:
		case <-closed:
		case <-g.dead:
		}
	}
	select {
	case <-g.dead:
		return false
	default:
		return true
	}
}

type gatedListener struct {
	net.Listener
	gate *gate
}

func (l *gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // stands for the listener
	}
	return &gatedConn{Conn: c, gate: l.gate, closed: make(chan struct{})}, nil
}

type gatedConn struct {
	net.Conn
	gate   *gate
	once   sync.Once
	closed chan struct{}
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.gate.pass(c.closed) {
		return 0, net.ErrClosed
	}
	return n, err //nolint:wrapcheck // stands for the connection
}

func (c *gatedConn) Write(b []byte) (int, error) {
	if !c.gate.pass(c.closed) {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b) //nolint:wrapcheck // stands for the connection
}

func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close() //nolint:wrapcheck // stands for the connection
}
