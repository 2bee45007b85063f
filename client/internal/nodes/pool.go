package nodes

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/connect"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
)

// MaxWatches bounds the watches of one stream; further watches open another one.
const MaxWatches = 1000

// Watch is a watch that streams carry. Its methods do not wait for a consumer.
type Watch interface {
	// Begin returns the request that starts or resumes the watch. The caller of
	// [Pool.Join] holds the watch's lock.
	Begin() *pb.CreateWatch
	// Handle handles a message for the watch id on a stream.
	Handle(s *Stream, id int64, r *Response)
	// Lost reports that a stream, or the watch id on it, has failed. The watch is placed
	// again after its backoff plus spread.
	Lost(s *Stream, id int64, v outcome.Verdict, spread time.Duration)
	// End ends the watch: no node can serve it.
	End(err error)
}

// Config configures a [Pool]. All fields but Serve must be set.
type Config struct {
	Connect connect.Options
	Pulse   *retry.Pulse // the clock for the silence of nodes
	Logger  *slog.Logger
	// Silence is how long a node may send nothing; AttemptTimeout bounds a login.
	Silence, AttemptTimeout time.Duration
	// Serve is called with each stream in place of serving it; nil: streams are served.
	Serve func(*Stream)
}

// Node is the connection to one address.
type Node struct {
	Addr string
	Conn *grpc.ClientConn

	streams []*Stream // guarded by Pool.mu
}

// Pool has the connections of a client, their streams, and the penalties of nodes.
type Pool struct {
	cfg    Config
	ctx    context.Context //nolint:containedctx // of the streams; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the streams that are served

	// mu is locked before Stream.mu.
	mu        sync.Mutex
	closed    bool             // guarded by mu
	nodes     map[string]*Node // by address; guarded by mu
	penalties retry.Penalties  // guarded by mu
}

// New returns a pool without connections.
func New(cfg Config) *Pool {
	ctx, cancel := context.WithCancel(context.Background())
	return &Pool{cfg: cfg, ctx: ctx, cancel: cancel, nodes: map[string]*Node{}}
}

// Close closes all connections and waits for the streams. The watches must have ended before.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	nodes := make([]*Node, 0, len(p.nodes))
	for _, n := range p.nodes {
		nodes = append(nodes, n)
	}
	clear(p.nodes)
	p.mu.Unlock()
	p.cancel()
	for _, n := range nodes {
		if n.Conn != nil {
			_ = n.Conn.Close()
		}
	}
	p.wg.Wait()
}

// Count returns the numbers of connections and streams.
func (p *Pool) Count() (connections, streams int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.nodes {
		streams += len(n.streams)
	}
	return len(p.nodes), streams
}

// Choose returns the best of addrs: penalised nodes and those already tried come last.
func (p *Pool) Choose(addrs []string, tried retry.Tried) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.penalties.Choose(addrs, tried, time.Now())
}

// Get returns the connection to an address, a new one if there is none.
func (p *Pool) Get(addr string) (*Node, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.getLocked(addr)
}

func (p *Pool) getLocked(addr string) (*Node, error) {
	if p.closed {
		return nil, outcome.ErrClosed
	}
	if n := p.nodes[addr]; n != nil {
		return n, nil
	}
	conn, err := connect.Dial(addr, p.cfg.Connect)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the address
	}
	n := &Node{Addr: addr, Conn: conn}
	p.nodes[addr] = n
	return n, nil
}

// Join puts a watch on a stream to addr that has room, or on a new one. The caller holds
// the watch's lock.
func (p *Pool) Join(w Watch, addr string) (*Stream, int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.getLocked(addr)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range n.streams {
		if id, ok := s.add(w); ok {
			return s, id, nil
		}
	}
	s := newStream(p, n)
	id, _ := s.add(w) // a new stream is neither full nor dead
	n.streams = append(n.streams, s)
	if p.cfg.Serve != nil {
		p.cfg.Serve(s)
	} else {
		p.wg.Go(s.run)
	}
	return s, id, nil
}

// leave removes a stream that ended from its node.
func (p *Pool) leave(s *Stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.node.streams = slices.DeleteFunc(s.node.streams, func(o *Stream) bool { return o == s })
}

// Penalise adds a failure of a node: Choose avoids the node for a while.
func (p *Pool) Penalise(addr string, atLeast time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.penalties.Add(addr, time.Now(), atLeast)
}

// Praise ends the penalty of a node, and forgets its failures.
func (p *Pool) Praise(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.penalties.Clear(addr)
}

// Boxed reports whether a node is penalised.
func (p *Pool) Boxed(addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.penalties.Boxed(addr, time.Now())
}

// Room returns how many watches may move to a node: none while it is penalised, one if
// it serves no watch of this client yet, else those of a stream.
func (p *Pool) Room(n *Node) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.penalties.Boxed(n.Addr, time.Now()):
		return 0
	case len(n.streams) == 0:
		return 1
	}
	return MaxWatches
}

// Drop closes the connection to a node, and thus its streams and calls.
func (p *Pool) Drop(n *Node) {
	p.mu.Lock()
	if p.nodes[n.Addr] == n {
		delete(p.nodes, n.Addr)
	}
	p.mu.Unlock()
	_ = n.Conn.Close()
}

// Forget drops connections to unknown addresses that have no streams.
func (p *Pool) Forget(known map[string]bool) {
	p.mu.Lock()
	var gone []*Node
	for addr, n := range p.nodes {
		if !known[addr] && len(n.streams) == 0 {
			gone = append(gone, n)
		}
	}
	p.mu.Unlock()
	for _, n := range gone {
		p.Drop(n)
	}
}
