package node

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/data/broadcast"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/trail"
)

// store has the node's caches: the replicas that the map gives it, and relays
// of shards that clients of this node ask for.
type store struct {
	n *Node

	mu       sync.RWMutex
	replicas map[shard.ID]*held        // guarded by mu
	relays   map[shard.ID]*held        // guarded by mu
	leaving  map[shard.ID]*held        // guarded by mu; see linger
	version  uint64                    // guarded by mu; of the map that replicas are of; 0: none yet
	closed   bool                      // guarded by mu
	acted    atomic.Pointer[shard.Map] // that replicas are of; changes under mu
	going    atomic.Pointer[forebears] // that others inherit from at the moment; nil: none
	ctx      context.Context           //nolint:containedctx // of run: the relays' life
	running  sync.WaitGroup
	renewals chan renewal
	ended    []kv.Claim       // guarded by mu; what abandoned caches held of the keys that had changed last
	moved    broadcast.Signal // rings when replicas are what a newer map says, and when one that lingered is gone
}

// held is a cache that runs.
type held struct {
	id     shard.ID
	epoch  uint64
	cache  *cache.Cache
	source *replica.Failover
	stop   context.CancelFunc
	done   chan struct{} // closed when the cache has ended
	// renewed: it comes in the place of one that was wrong.
	renewed bool

	// Of relays only.
	users int       // guarded by store.mu
	idle  time.Time // guarded by store.mu; since when it has no users

	lag lag // owned by clock
}

func (h *held) ready() bool {
	select {
	case <-h.cache.Ready():
		return true
	default:
		return false
	}
}

func newStore(n *Node) *store {
	return &store{n: n, replicas: make(map[shard.ID]*held), relays: make(map[shard.ID]*held), leaving: make(map[shard.ID]*held), renewals: make(chan renewal)}
}

// patience is how long a node that was told to join others waits for them
// before it loads shards without them: they may have state and window.
const patience = 3 * time.Second

// run keeps the caches as the map says, until ctx ends.
func (s *store) run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	defer s.stop()
	s.awaitPeers(ctx)
	sweep := time.NewTicker(5 * time.Second)
	defer sweep.Stop()
	for {
		turned := s.n.lineage.Changed()
		m, changed := s.n.placement.Watch()
		if m != nil {
			s.n.lineage.Enter(m)
			if s.n.lineage.Serves(m.Lineage) {
				s.follow(ctx, m)
			} else {
				s.abandon()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-turned:
		case <-sweep.C:
			s.sweep()
		case r := <-s.renewals:
			s.renew(ctx, r)
		}
	}
}

// awaitPeers waits until gossip shows those who may have our shards, when it
// should: state and window of one that we do not see yet would be lost on us,
// and with them the place of every watch that comes to us.
func (s *store) awaitPeers(ctx context.Context) {
	if len(s.n.cfg.Join) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		changed := s.n.changed.Wait()
		if s.met() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// met reports whether gossip has shown, in whatever state, every node that has
// shards of this one; without a map, whether it shows anybody alive.
func (s *store) met() bool {
	m := s.n.placement.Map()
	if m == nil {
		return s.n.accompanied()
	}
	for i := range m.Shards {
		replicas := m.Shards[i].Replicas
		if !slices.Contains(replicas, s.n.self) {
			continue
		}
		for _, r := range replicas {
			if _, known := s.n.member(r); !known {
				return false
			}
		}
	}
	return true
}

// follow makes the replicas what the map says.
func (s *store) follow(ctx context.Context, m *shard.Map) {
	mine := make(map[shard.ID]*shard.Shard)
	for i := range m.Shards {
		for _, r := range m.Shards[i].Replicas {
			if r == s.n.self {
				mine[m.Shards[i].ID] = &m.Shards[i]
			}
		}
	}
	s.mu.Lock()
	s.ended = nil
	var gone estate
	var reordered []*held
	for id, h := range s.replicas {
		switch sh := mine[id]; {
		case sh == nil || sh.Range != h.cache.Range() || m.Lineage != h.cache.Lineage():
			gone.add(h)
		default:
			if h.epoch != sh.Epoch {
				reordered = append(reordered, h)
			}
			h.epoch = sh.Epoch
			delete(mine, id)
		}
	}
	for id, h := range s.relays {
		if sh, ok := m.Shard(id); !ok || sh.Range != h.cache.Range() || m.Lineage != h.cache.Lineage() {
			gone.add(h)
		}
	}
	s.mu.Unlock()
	for _, h := range reordered {
		h.source.Scout() // another one may be the best source now
	}
	past := s.n.history.load(m, mine)
	// What goes serves until what comes in its place is as far.
	from := &forebears{lineage: m.Lineage, caches: gone.caches(m.Lineage)}
	s.going.Store(from)
	replicas, relays := s.succeed(ctx, m, mine, gone, from.caches, past)
	s.mu.Lock()
	for _, h := range gone.held {
		if s.replicas[h.id] == h {
			delete(s.replicas, h.id)
			s.leaving[h.id] = h
		}
		if s.relays[h.id] == h {
			delete(s.relays, h.id)
		}
	}
	for _, h := range replicas {
		s.replicas[h.id] = h
	}
	for _, h := range relays {
		if s.relays[h.id] == nil {
			s.relays[h.id] = h
		} else { // somebody was in a hurry
			h.stop()
		}
	}
	s.version = m.Version
	s.acted.Store(m)
	s.mu.Unlock()
	s.moved.Notify()
	s.going.Store(nil)
	for _, h := range gone.held {
		s.running.Go(func() { s.leave(ctx, h) })
	}
	for _, h := range replicas {
		s.running.Go(func() { s.welcome(h) })
	}
	s.n.router.Kick()
}

// handOver is how long a cache that inherits is waited for: until it has a
// source and is as far as those that it inherits from.
const handOver = time.Second

// succeed starts the replicas that this node has got, and relays where there
// are watches of shards that other nodes have now. All of them inherit from
// those that go, as far as these have what they need, and are as far as they are
// when it returns, or nearly so.
func (s *store) succeed(ctx context.Context, m *shard.Map, mine map[shard.ID]*shard.Shard, gone estate, from []*cache.Cache, past map[shard.ID]*cache.History) (replicas, relays []*held) {
	var starting, following errgroup.Group
	starting.SetLimit(runtime.GOMAXPROCS(0)) // a large state takes its time
	limit, cancel := context.WithTimeout(ctx, handOver)
	defer cancel()
	var mu sync.Mutex
	come := func(list *[]*held, h *held) {
		mu.Lock()
		defer mu.Unlock()
		*list = append(*list, h)
		following.Go(func() error {
			ctx, cancel := s.whileThere(limit, h)
			defer cancel()
			h.overtake(ctx, s.n.self, from)
			return nil
		})
	}
	for _, sh := range mine {
		starting.Go(func() error {
			come(&replicas, s.start(ctx, m, sh, cache.Inherit(sh.Range, false, from...), past[sh.ID], nil))
			return nil
		})
	}
	for i := range m.Shards {
		if sh := &m.Shards[i]; gone.watched(sh.Range) && !slices.Contains(sh.Replicas, s.n.self) {
			starting.Go(func() error {
				if seed := cache.Inherit(sh.Range, true, from...); seed != nil {
					h := s.lend(m, sh, seed)
					h.idle = time.Now()
					come(&relays, h)
				}
				return nil
			})
		}
	}
	_ = starting.Wait()  // always nil
	_ = following.Wait() // always nil
	return replicas, relays
}

// whileThere returns a context that ends with ctx, or once the newest map has the
// cache's shard no more: those it would come from may have left it, and whoever
// waits for it does not act on that map.
func (s *store) whileThere(ctx context.Context, h *held) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			m, changed := s.n.placement.Watch()
			if sh, ok := m.Shard(h.id); !ok || sh.Range != h.cache.Range() || m.Lineage != h.cache.Lineage() {
				cancel()
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// overtake waits until the cache has a source, other than those on this node that
// it comes of, and is where others are that have a part of its range. One that has
// inherited nothing is not waited for.
func (h *held) overtake(ctx context.Context, self shard.NodeID, others []*cache.Cache) {
	if !h.ready() {
		return
	}
	for {
		changed := h.source.Changed() // before Current: nothing is missed
		if name, _ := h.source.Current(); name != "" && name != string(self) {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
	var furthest kv.Revision
	for _, c := range others {
		if c.Range().Overlaps(h.cache.Range()) {
			furthest = max(furthest, c.Progress())
		}
	}
	_ = h.cache.WaitProgress(ctx, furthest) // else they will have to wait for it
}

// abandon ends all caches: what they hold is of a history that has ended. Their
// watches wait for the new lineage, which ends them.
func (s *store) abandon() {
	s.mu.Lock()
	gone := make([]*held, 0, len(s.replicas))
	for id, h := range s.replicas {
		gone = append(gone, h)
		delete(s.replicas, id)
		s.ended = append(s.ended, h.cache.Claims()...)
	}
	for _, h := range s.relays {
		s.dropLocked(h)
	}
	for _, h := range s.leaving {
		h.stop()
	}
	s.mu.Unlock()
	for _, h := range gone {
		h.stop()
	}
	for _, h := range gone {
		<-h.done
	}
}

// welcome sends those who use a relay of the shard to the replica, once that
// is ready. Until then they stay: they miss nothing there.
func (s *store) welcome(h *held) {
	select {
	case <-h.cache.Ready():
	case <-h.done:
		return
	}
	s.mu.Lock()
	if r := s.relays[h.id]; r != nil {
		s.dropLocked(r)
	}
	s.mu.Unlock()
	s.n.router.Kick()
}

// dropLocked ends a relay; its watches find new homes.
func (s *store) dropLocked(h *held) {
	h.stop()
	delete(s.relays, h.id)
}

// start runs a new replica, which begins with seed, or else has past. It takes its
// state from none of those to avoid.
func (s *store) start(ctx context.Context, m *shard.Map, sh *shard.Shard, seed *cache.Seed, past *cache.History, avoid []string) *held {
	cfg := s.n.cfg.Cache
	cfg.Range, cfg.Lineage, cfg.Seed, cfg.History = sh.Range, m.Lineage, seed, past
	id := sh.ID
	return s.launch(ctx, id, sh.Epoch, cfg, &replica.Failover{
		Candidates: func() []replica.Candidate { return s.n.chain(id) },
		Warm:       func() []replica.Candidate { return s.n.warm(id) },
		Avoid:      avoid,
		Noticed:    s.n.delivery.Noticed(id),
		Logger:     s.n.log.With("shard", uint64(id)),
	})
}

// launch runs a cache.
func (s *store) launch(ctx context.Context, id shard.ID, epoch uint64, cfg cache.Config, source *replica.Failover) *held {
	cfg.Source = source
	cfg.Logger = source.Logger
	var h *held // set before the cache runs
	cfg.OtherHistory = func(found *kv.ContradictionError) { s.n.suspects.report(h, found) }
	cfg.Applied = func(b *kv.Batch) {
		from, _ := source.Current()
		if from == string(s.n.self) { // its forebears have told
			return
		}
		s.n.trail.Applied(cfg.Lineage, b.Revision, trail.Hop{
			Shard: uint64(id), Relay: cfg.Stateless, Source: from, Received: b.Received, Applied: time.Now(),
		})
	}
	ctx, stop := context.WithCancel(ctx)
	h = &held{id: id, epoch: epoch, cache: cache.New(cfg), source: source, stop: stop, done: make(chan struct{})}
	// No less true for a new one: its age is known once it is loaded.
	if revision, at, _ := s.n.clock.last(); !at.IsZero() && h.cache.Observe(at, revision) {
		h.cache.Demand(revision)
	}
	began := time.Now()
	s.running.Go(func() {
		defer close(h.done)
		_ = h.cache.Run(ctx) // ends with ctx only
	})
	s.running.Go(func() {
		select {
		case <-h.cache.Ready():
			source.Logger.Debug("shard loaded", "range", cfg.Range, "relay", cfg.Stateless,
				"revision", h.cache.Progress(), "floor", h.cache.Floor(), "took", time.Since(began))
		case <-h.done:
		}
	})
	return h
}

// stop ends all caches.
func (s *store) stop() {
	s.mu.Lock()
	s.closed = true
	for _, h := range s.replicas {
		h.stop()
	}
	for _, h := range s.relays {
		h.stop()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// replica returns the cache of a shard that the map gives this node, or nil.
func (s *store) replica(id shard.ID) *held {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.replicas[id]
}

// following returns the cache of a shard that other nodes may follow: a replica,
// or one that lingers; nil when there is none.
func (s *store) following(id shard.ID) *held {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if h := s.replicas[id]; h != nil {
		return h
	}
	return s.leaving[id]
}

// all returns the caches; relays too.
func (s *store) all() []*held {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*held, 0, len(s.replicas)+len(s.relays))
	for _, h := range s.replicas {
		out = append(out, h)
	}
	for _, h := range s.relays {
		out = append(out, h)
	}
	return out
}

// inUse reports whether h is a relay with watches.
func (s *store) inUse(h *held) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return h.users > 0
}

// loading returns how many replicas are not ready, and how many there are;
// begun is false while no map was acted on.
func (s *store) loading() (loading, all int, begun bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.replicas {
		if !h.ready() {
			loading++
		}
	}
	return loading, len(s.replicas), s.version > 0
}

// sweep stops relays that nobody uses.
func (s *store) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.relays {
		unused := h.users == 0 && !h.idle.IsZero() && time.Since(h.idle) > s.n.cfg.RelayIdle
		if own := s.replicas[id]; unused || (own != nil && own.ready()) {
			s.dropLocked(h)
		}
	}
}
