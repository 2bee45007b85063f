package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/client/internal/connect"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

// Client is a program's door to a cluster. One is enough for a program: its
// watches share connections and streams. Close it when done.
type Client struct {
	cfg     Config
	connect connect.Options
	prefers shardmap.Preference
	pulse   *retry.Pulse // what nodes are timed by

	ctx    context.Context // ends with Close; for what outlives a call
	cancel context.CancelFunc
	wg     sync.WaitGroup // every goroutine and timer of the client

	follower *follower

	// The order of locks: Watcher.mu, then mu, then stream.mu. Nothing is locked
	// while unitsMu, or the follower's mu, is held.
	mu        sync.Mutex
	closed    bool                  // guarded by mu
	nodes     map[string]*node      // by address; guarded by mu
	penalties retry.Penalties       // guarded by mu
	watchers  map[*Watcher]struct{} // those that have not ended; guarded by mu

	starts, resumes, lists atomic.Int64
	unitsMu                sync.Mutex
	units                  Units // guarded by unitsMu
}

// New returns a client of the cluster that the endpoints belong to. It
// connects in the background: an error is about the configuration alone, and the
// files that it names.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	files, err := cfg.TLSFiles.open()
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	cfg = cfg.withDefaults()
	cfg.Endpoints = slices.Clone(cfg.Endpoints)
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{
		cfg: cfg, connect: cfg.connection(files), prefers: shardmap.Preference{Zone: cfg.Zone, Seed: strconv.FormatUint(rand.Uint64(), 36)}, pulse: retry.NewPulse(cfg.Silence/12, time.Now()),
		ctx: ctx, cancel: cancel,
		nodes: map[string]*node{}, watchers: map[*Watcher]struct{}{},
	}
	c.follower = newFollower(c)
	slices.SortStableFunc(cfg.Endpoints, func(a, b string) int { // clients spread before they know the map, too
		if shardmap.Score(c.prefers.Seed, a) > shardmap.Score(c.prefers.Seed, b) {
			return -1
		}
		return 1
	})
	c.wg.Go(func() { c.pulse.Run(ctx) })
	c.wg.Go(c.follower.run)
	c.wg.Go(c.goHome)
	if files != nil {
		c.wg.Go(func() { files.Follow(ctx, cfg.Logger) })
	}
	return c, nil
}

// Close ends all watchers, mirrors and calls and closes all connections. It
// returns when nothing of the client runs any more but functions given to
// [OnResume], always nil, and may be called twice.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	watchers := make([]*Watcher, 0, len(c.watchers))
	for w := range c.watchers {
		watchers = append(watchers, w)
	}
	nodes := make([]*node, 0, len(c.nodes))
	for _, n := range c.nodes {
		nodes = append(nodes, n)
	}
	clear(c.nodes)
	c.mu.Unlock()
	for _, w := range watchers {
		w.end(ErrClosed)
	}
	c.cancel()
	for _, n := range nodes {
		_ = n.conn.Close()
	}
	c.wg.Wait()
	return nil
}

// spawn runs f in a goroutine that Close waits for; false when the client is
// closed.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// Stats are the client's figures.
type Stats struct {
	// Connections is the number of nodes connected to, or being dialled.
	Connections int
	// Streams is the number of watch streams.
	Streams int
	// Watchers is the number of watchers that have not ended.
	Watchers int
	// Resumes counts the times a watcher resumed on a node, the same one or
	// another, after it had been started before.
	Resumes int64
	// Units are those of all watchers so far.
	Units
	// Lists counts the lists asked of nodes, those asked again included.
	Lists int64
	// TLSError is why what is in [Config.TLSFiles] is not in use, but what was read
	// before; nil: it is in use.
	TLSError error
}

// Stats returns the client's figures as they are now.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{
		Connections: len(c.nodes), Watchers: len(c.watchers), Resumes: c.resumes.Load(), Lists: c.lists.Load(), TLSError: c.connect.Files.Failing(),
	}
	for _, n := range c.nodes {
		s.Streams += len(n.streams)
	}
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	s.Units = c.units
	return s
}

// count counts an update, if it is a unit.
func (c *Client) count(u *Update) {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	c.units.add(u)
}

// pick returns the address to ask about r: one of hints, else a member by the
// map, else an endpoint. Those in the penalty box, and those tried, come last.
func (c *Client) pick(r Range, hints []string, tried retry.Tried) string {
	addrs := slices.Concat(hints, c.follower.topology.Load().Candidates(r.keys(), c.prefers), c.cfg.Endpoints)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.penalties.Choose(addrs, tried, time.Now())
}

// node returns the connection to an address, a new one when there is none.
func (c *Client) node(addr string) (*node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodeLocked(addr)
}

func (c *Client) nodeLocked(addr string) (*node, error) {
	if c.closed {
		return nil, ErrClosed
	}
	if n := c.nodes[addr]; n != nil {
		return n, nil
	}
	conn, err := connect.Dial(addr, c.connect)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the address
	}
	n := &node{addr: addr, conn: conn}
	c.nodes[addr] = n
	return n, nil
}

// join puts a watch on a stream to addr that has room, a new one when none
// has. The caller holds w.mu.
func (c *Client) join(w *Watcher, addr string) (*stream, int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.nodeLocked(addr)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range n.streams {
		if id, ok := s.add(w); ok {
			return s, id, nil
		}
	}
	s := newStream(c, n)
	id, _ := s.add(w) // a new stream is neither full nor dead
	n.streams = append(n.streams, s)
	c.wg.Go(func() { s.run(c.ctx) })
	return s, id, nil
}

// leave takes a stream that ended off its node.
func (c *Client) leave(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.node.streams = slices.DeleteFunc(s.node.streams, func(o *stream) bool { return o == s })
}

// penalise puts a node into the penalty box.
func (c *Client) penalise(addr string, atLeast time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.penalties.Add(addr, time.Now(), atLeast)
}

// praise takes a node out of the penalty box.
func (c *Client) praise(addr string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.penalties.Clear(addr)
}

// drop closes the connection to a node, and with it all that uses it.
func (c *Client) drop(n *node) {
	c.mu.Lock()
	if c.nodes[n.addr] == n {
		delete(c.nodes, n.addr)
	}
	c.mu.Unlock()
	_ = n.conn.Close()
}

// forget drops connections without watches that lead to
// nodes the cluster no longer has.
func (c *Client) forget(t *shardmap.Topology) {
	known := map[string]bool{}
	for _, m := range t.Members {
		if !m.Gone() {
			known[m.Address] = true
		}
	}
	for _, e := range c.cfg.Endpoints {
		known[e] = true
	}
	c.mu.Lock()
	var gone []*node
	for addr, n := range c.nodes {
		if !known[addr] && len(n.streams) == 0 {
			gone = append(gone, n)
		}
	}
	c.mu.Unlock()
	for _, n := range gone {
		c.drop(n)
	}
}

// living returns the watchers that have not ended.
func (c *Client) living() []*Watcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	watchers := make([]*Watcher, 0, len(c.watchers))
	for w := range c.watchers {
		watchers = append(watchers, w)
	}
	return watchers
}

// renewed notes that a call or stream, which began at a time, has failed with v. It
// reports whether it lacked valid credentials and others can be had.
func (c *Client) renewed(v outcome.Verdict, began time.Time) bool {
	if !errors.Is(v.Err, ErrUnauthenticated) {
		return false
	}
	another := v.Refused && c.connect.Login.Again(began)
	return another || c.cfg.Token != nil || c.cfg.PasswordFrom != nil
}
