package client

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/client/internal/calls"
	"github.com/shardwatch/shardwatch/client/internal/connect"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/client/internal/mapfollow"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/retry"
	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

// Client connects a program to a cluster. One is enough for a program: its watches
// share connections and streams. Close it when done.
type Client struct {
	cfg     Config
	connect connect.Options
	pool    *nodes.Pool
	calls   *calls.Caller
	prefers shardmap.Preference
	pulse   *retry.Pulse // the clock for the silence of nodes

	ctx    context.Context // ends with Close; for work that outlives a call
	cancel context.CancelFunc
	wg     sync.WaitGroup // every goroutine and timer of the client

	follower *mapfollow.Follower

	// The order of locks: Watcher.mu, then mu or those of the pool. No other lock is
	// taken while unitsMu, or the follower's mu, is held.
	mu       sync.Mutex
	closed   bool                  // guarded by mu
	watchers map[*Watcher]struct{} // that have not ended; guarded by mu

	starts, resumes, lists atomic.Int64
	unitsMu                sync.Mutex
	units                  Units // guarded by unitsMu
}

// New returns a client of the cluster that the endpoints belong to. It connects in the
// background: it fails only if the configuration, or a file that it names, is invalid.
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
		watchers: map[*Watcher]struct{}{},
	}
	c.pool = nodes.New(nodes.Config{Connect: c.connect, Pulse: c.pulse, Logger: cfg.Logger, Silence: cfg.Silence, AttemptTimeout: cfg.AttemptTimeout})
	c.follower = mapfollow.New(c.followConfig())
	c.calls = calls.New(c.callConfig())
	slices.SortStableFunc(cfg.Endpoints, func(a, b string) int { // spreads clients that have no map yet, too
		return cmp.Compare(shardmap.Score(c.prefers.Seed, b), shardmap.Score(c.prefers.Seed, a))
	})
	c.wg.Go(func() { c.pulse.Run(ctx) })
	c.wg.Go(func() { c.follower.Run(ctx) })
	c.wg.Go(func() { c.mover().Run(ctx) })
	if files != nil {
		c.wg.Go(func() { files.Follow(ctx, cfg.Logger) })
	}
	return c, nil
}

// Close ends all watchers, mirrors and calls and closes all connections. It waits for
// all goroutines of the client except functions given to [OnResume]. It always returns
// nil, and may be called twice.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	for _, w := range c.living() { // closed prevents new ones
		w.end(ErrClosed)
	}
	c.cancel()
	c.pool.Close()
	c.wg.Wait()
	return nil
}

// Go runs f in a goroutine that [Client.Close] waits for, as package mirror does: f must
// return once the client's watches have ended, and must not call Close. If the client is
// closed, Go returns false and does not run f.
func (c *Client) Go(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// Stats has a client's statistics.
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
	// Units counts the units of all watchers so far.
	Units
	// Lists counts the lists requested from nodes, including retries.
	Lists int64
	// TLSError is the reason why the current content of [Config.TLSFiles] is not in
	// use, and the previous content still is; nil: it is in use.
	TLSError error
}

// Stats returns the client's current statistics.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{
		Watchers: len(c.watchers), Resumes: c.resumes.Load(), Lists: c.lists.Load(), TLSError: c.connect.Files.Failing(),
	}
	s.Connections, s.Streams = c.pool.Count()
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

// pick returns the address of the node to try for r: one of hints, else a member by the
// map, else an endpoint. Penalised nodes and those already tried come last.
func (c *Client) pick(r Range, hints []string, tried retry.Tried) string {
	addrs := slices.Concat(hints, c.follower.Topology.Load().Candidates(r.keys(), c.prefers), c.cfg.Endpoints)
	return c.pool.Choose(addrs, tried)
}

// followConfig returns the configuration of the follower of the shard map.
func (c *Client) followConfig() mapfollow.Config {
	return mapfollow.Config{
		Pool: c.pool, Pulse: c.pulse, Connect: &c.connect, Logger: c.cfg.Logger, Endpoints: c.cfg.Endpoints,
		Pick:    func(tried retry.Tried) string { return c.pick(Range{}, nil, tried) },
		Watches: watches{c},
	}
}

// watches implements [mapfollow.Watches] for the client's watches.
type watches struct{ c *Client }

// Ranges implements [mapfollow.Watches].
func (ws watches) Ranges() []keyrange.Range {
	var ranges []keyrange.Range
	for _, w := range ws.c.living() {
		ranges = append(ranges, w.asm.rng.keys()) // which never changes
	}
	return ranges
}

// Open implements [mapfollow.Watches].
func (ws watches) Open() {
	for _, w := range ws.c.living() {
		w.place()
	}
}

// Mapped implements [mapfollow.Watches].
func (ws watches) Mapped(t *shardmap.Topology) {
	for _, w := range ws.c.living() {
		w.mapped(t)
	}
}

// Regroup implements [mapfollow.Watches]. The watches resume with their positions, which
// name the other cluster.
func (ws watches) Regroup(cluster string) {
	living := ws.c.living()
	for _, w := range living {
		w.follow(cluster, retry.Herd(len(living)))
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
