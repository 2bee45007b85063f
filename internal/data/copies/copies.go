package copies

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/revtrace"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Set has the running caches of a node: the replicas that the map assigns to it, and
// relays of other shards that its clients request.
type Set struct {
	sources

	mu       sync.RWMutex
	replicas map[shard.ID]*Copy // guarded by mu
	relays   map[shard.ID]*Copy // guarded by mu
	leaving  map[shard.ID]*Copy // guarded by mu; see linger
	version  uint64             // guarded by mu; version of the map of replicas; 0: none yet
	closed   bool               // guarded by mu
	ctx      context.Context    //nolint:containedctx // of Run; ends the relays
	running  sync.WaitGroup
	renewals chan renewal
	ended    []kv.Claim  // guarded by mu; the last changed keys of abandoned caches
	starts   int         // bound of concurrently starting caches
	moved    wait.Signal // signals that replicas match a newer map, or that a lingering copy is gone
}

// Copy is a running cache.
type Copy struct {
	ID     shard.ID
	Cache  *cache.Cache
	Source *replica.Failover
	epoch  uint64
	stop   context.CancelFunc
	done   chan struct{} // closed when the cache has ended
	// Renewed: it replaces a wrong copy.
	Renewed bool

	// Of relays only.
	users int       // guarded by Set.mu
	idle  time.Time // guarded by Set.mu; the time since which it has no users

	lag lag // owned by clock
}

// Ready reports whether the cache is loaded.
func (h *Copy) Ready() bool { return wait.Over(h.Cache.Ready()) }

// New returns an empty Set.
func New(cfg Config) *Set {
	return &Set{
		sources: sources{cfg: cfg}, replicas: make(map[shard.ID]*Copy), relays: make(map[shard.ID]*Copy), leaving: make(map[shard.ID]*Copy), renewals: make(chan renewal),
		starts: runtime.GOMAXPROCS(0), // a large state is slow to load; a quiet node uses fewer later
	}
}

// Acted returns the map that the copies match; nil: none yet.
func (s *Set) Acted() *shard.Map { return s.acted.Load() }

// IsRelay reports whether a cache is a relay.
func (s *Set) IsRelay(h *Copy) bool { return s.replica(h.ID) != h }

// Ended returns the last changed keys of the most recently abandoned caches, up to most
// claims.
func (s *Set) Ended(most int) []kv.Claim {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ended[:min(len(s.ended), most)]
}

// patience is how long a node that joins a cluster waits for the other nodes before it
// loads shards without them: they may have state and window.
const patience = 3 * time.Second

// Run runs the caches that the map assigns to this node, until ctx ends.
func (s *Set) Run(ctx context.Context) error {
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	defer s.stop()
	s.awaitPeers(ctx)
	sweep := time.NewTicker(5 * time.Second)
	defer sweep.Stop()
	for {
		turned := s.cfg.Lineage.Changed()
		m, changed := s.cfg.Placement.Watch()
		if m != nil {
			s.cfg.Lineage.Enter(m)
			if s.cfg.Lineage.Serves(m.Lineage) {
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

// awaitPeers waits, if configured, until gossip shows the nodes that may have this node's
// shards. Without their state and window, watches could not resume here.
func (s *Set) awaitPeers(ctx context.Context) {
	if !s.cfg.Join {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		changed := s.cfg.Changed()
		if s.met() {
			return
		}
		if !wait.For(ctx, changed) {
			return
		}
	}
}

// met reports whether gossip has shown, in any state, every node that has shards of
// this node; without a map, whether it shows any live node.
func (s *Set) met() bool {
	m := s.cfg.Placement.Map()
	if m == nil {
		return s.cfg.Accompanied()
	}
	for i := range m.Shards {
		replicas := m.Shards[i].Replicas
		if !slices.Contains(replicas, s.cfg.Self) {
			continue
		}
		for _, r := range replicas {
			if !s.cfg.Known(r) {
				return false
			}
		}
	}
	return true
}

// follow starts and stops replicas to match the map.
func (s *Set) follow(ctx context.Context, m *shard.Map) {
	mine := make(map[shard.ID]*shard.Shard)
	for i := range m.Shards {
		for _, r := range m.Shards[i].Replicas {
			if r == s.cfg.Self {
				mine[m.Shards[i].ID] = &m.Shards[i]
			}
		}
	}
	s.mu.Lock()
	s.ended = nil
	var gone retiring
	var reordered []*Copy
	for id, h := range s.replicas {
		switch sh := mine[id]; {
		case sh == nil || sh.Range != h.Cache.Range() || m.Lineage != h.Cache.Lineage():
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
		if sh, ok := m.Shard(id); !ok || sh.Range != h.Cache.Range() || m.Lineage != h.Cache.Lineage() {
			gone.add(h)
		}
	}
	s.mu.Unlock()
	for _, h := range reordered {
		h.Source.Scout() // another node may be the best source now
	}
	past := s.cfg.History.Load(m, mine)
	// A predecessor serves until its successor has reached its revision.
	from := &predecessors{lineage: m.Lineage, caches: gone.caches(m.Lineage), patience: s.cfg.HandOver}
	s.going.Store(from)
	replicas, relays := s.succeed(ctx, m, mine, gone, from.caches, past)
	s.mu.Lock()
	for _, h := range gone.held {
		if s.replicas[h.ID] == h {
			delete(s.replicas, h.ID)
			s.leaving[h.ID] = h
		}
		if s.relays[h.ID] == h {
			delete(s.relays, h.ID)
		}
	}
	for _, h := range replicas {
		s.replicas[h.ID] = h
	}
	for _, h := range relays {
		if s.relays[h.ID] == nil {
			s.relays[h.ID] = h
		} else { // a caller has started another relay meanwhile
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
	s.cfg.Kick()
}

// succeed starts the new replicas of this node, and relays for watches of shards that
// other nodes have now. All inherit from the ending caches where these have the data.
// When it returns they have caught up with these, or nearly so.
func (s *Set) succeed(ctx context.Context, m *shard.Map, mine map[shard.ID]*shard.Shard, gone retiring, from []*cache.Cache, past map[shard.ID]*cache.Past) (replicas, relays []*Copy) {
	var starting, following errgroup.Group
	starting.SetLimit(s.starts)
	limit, cancel := context.WithTimeout(ctx, s.cfg.HandOver)
	defer cancel()
	var mu sync.Mutex
	come := func(list *[]*Copy, h *Copy) {
		mu.Lock()
		defer mu.Unlock()
		*list = append(*list, h)
		following.Go(func() error {
			ctx, cancel := s.whileThere(limit, h)
			defer cancel()
			h.overtake(ctx, s.cfg.Self, from)
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
		if sh := &m.Shards[i]; gone.watched(sh.Range) && !slices.Contains(sh.Replicas, s.cfg.Self) {
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

// whileThere returns a context that ends with ctx, or once the newest map no longer has
// the cache's shard: its sources may have dropped it, and its waiters do not act on
// that map.
func (s *Set) whileThere(ctx context.Context, h *Copy) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			m, changed := s.cfg.Placement.Watch()
			if sh, ok := m.Shard(h.ID); !ok || sh.Range != h.Cache.Range() || m.Lineage != h.Cache.Lineage() {
				cancel()
			}
			if !wait.For(ctx, changed) {
				return
			}
		}
	}()
	return ctx, cancel
}

// overtake waits until the cache has a source other than its predecessors on this node,
// and has caught up with the others that have a part of its range. It does not wait for
// a cache that has inherited nothing.
func (h *Copy) overtake(ctx context.Context, self shard.NodeID, others []*cache.Cache) {
	if !h.Ready() {
		return
	}
	for {
		changed := h.Source.Changed() // before Current, so that no change is missed
		if name, _ := h.Source.Current(); name != "" && name != string(self) {
			break
		}
		if !wait.For(ctx, changed) {
			return
		}
	}
	var furthest kv.Revision
	for _, c := range others {
		if c.Range().Overlaps(h.Cache.Range()) {
			furthest = max(furthest, c.Progress())
		}
	}
	_ = h.Cache.WaitProgress(ctx, furthest) // else its watches have to wait for it
}

// abandon ends all caches: their data belongs to a history that has ended. Their
// watches wait for the new lineage, which ends them.
func (s *Set) abandon() {
	s.mu.Lock()
	gone := make([]*Copy, 0, len(s.replicas))
	for id, h := range s.replicas {
		gone = append(gone, h)
		delete(s.replicas, id)
		s.ended = append(s.ended, h.Cache.Claims()...)
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

// welcome moves the users of a relay of the shard to the replica once it is ready.
// Until then they stay at the relay, and miss nothing.
func (s *Set) welcome(h *Copy) {
	select {
	case <-h.Cache.Ready():
	case <-h.done:
		return
	}
	s.mu.Lock()
	if r := s.relays[h.ID]; r != nil {
		s.dropLocked(r)
	}
	s.mu.Unlock()
	s.cfg.Kick()
}

// dropLocked ends a relay; its watches search for a new source.
func (s *Set) dropLocked(h *Copy) {
	h.stop()
	delete(s.relays, h.ID)
}

// start runs a new replica, which begins with seed, or else with past. It does not load
// its state from the nodes in avoid.
func (s *Set) start(ctx context.Context, m *shard.Map, sh *shard.Shard, seed *cache.Seed, past *cache.Past, avoid []string) *Copy {
	cfg := s.cfg.Cache
	cfg.Range, cfg.Lineage, cfg.Seed, cfg.History = sh.Range, m.Lineage, seed, past
	id := sh.ID
	return s.launch(ctx, id, sh.Epoch, cfg, &replica.Failover{
		Candidates: func() []replica.Candidate { return s.chain(id) },
		Warm:       func() []replica.Candidate { return s.warm(id) },
		Avoid:      avoid,
		Noticed:    s.cfg.Noticed(id),
		Logger:     s.cfg.Logger.With("shard", uint64(id)),
	})
}

// launch runs a cache.
func (s *Set) launch(ctx context.Context, id shard.ID, epoch uint64, cfg cache.Config, source *replica.Failover) *Copy {
	cfg.Source = source
	cfg.Logger = source.Logger
	// The functions below must not use cfg: they would keep its seed and its history as long as the copy runs.
	lineage, relay := cfg.Lineage, cfg.Stateless
	var h *Copy // set before the cache runs
	cfg.OtherHistory = func(found *kv.ContradictionError) { s.cfg.Contradicted(h, found) }
	cfg.Applied = func(b *kv.Batch) {
		from, _ := source.Current()
		if from == string(s.cfg.Self) { // its predecessors have recorded it
			return
		}
		s.cfg.Trace.Applied(lineage, b.Revision, revtrace.Hop{
			Shard: uint64(id), Relay: relay, Source: from, Received: b.Received, Applied: time.Now(),
		})
	}
	ctx, stop := context.WithCancel(ctx)
	h = &Copy{ID: id, epoch: epoch, Cache: cache.New(cfg), Source: source, stop: stop, done: make(chan struct{})}
	// This also holds for a new cache: its age is known once it is loaded.
	if revision, at, _ := s.cfg.Clock.Last(); at.IsZero() {
		s.cfg.Clock.LookNow()
	} else if h.Cache.Observe(at, revision) {
		h.Cache.Demand(revision)
	}
	began := time.Now()
	s.running.Go(func() {
		defer close(h.done)
		_ = h.Cache.Run(ctx)   // ends with ctx only
		cache.Release(h.Cache) // its successors have inherited
	})
	s.running.Go(func() {
		select {
		case <-h.Cache.Ready():
			source.Logger.Debug("shard loaded", "range", h.Cache.Range(), "relay", relay,
				"revision", h.Cache.Progress(), "floor", h.Cache.Floor(), "took", time.Since(began))
		case <-h.done:
		}
	})
	return h
}

// stop ends all caches.
func (s *Set) stop() {
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

// replica returns the cache of a shard that the map assigns to this node, or nil.
func (s *Set) replica(id shard.ID) *Copy {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.replicas[id]
}

// following returns the cache of a shard that other nodes may follow: a replica, or a
// lingering copy; nil: none.
func (s *Set) following(id shard.ID) *Copy {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if h := s.replicas[id]; h != nil {
		return h
	}
	return s.leaving[id]
}

// All returns all caches, including relays.
func (s *Set) All() []*Copy {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*Copy, 0, len(s.replicas)+len(s.relays))
	for _, h := range s.replicas {
		out = append(out, h)
	}
	for _, h := range s.relays {
		out = append(out, h)
	}
	return out
}

// InUse reports whether h is a relay with watches.
func (s *Set) InUse(h *Copy) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return h.users > 0
}

// Loading is the loading progress of a node's replicas.
type Loading struct {
	All     int  // replicas that the map assigns to the node
	Loads   int  // of these, replicas without state
	Ageless int  // of the others, replicas of unknown age: reads with a bound fail there
	Begun   bool // a map was acted on
}

// Loading returns the loading progress of the replicas.
func (s *Set) Loading() Loading {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := Loading{All: len(s.replicas), Begun: s.version > 0}
	for _, h := range s.replicas {
		if !h.Ready() {
			out.Loads++
		} else if _, known := h.Cache.Age(); !known {
			out.Ageless++
		}
	}
	return out
}

// sweep stops unused relays.
func (s *Set) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.relays {
		unused := h.users == 0 && !h.idle.IsZero() && time.Since(h.idle) > s.cfg.RelayIdle
		if own := s.replicas[id]; unused || (own != nil && own.Ready()) {
			s.dropLocked(h)
		}
	}
}

// Caches returns the caches of the shards that the map assigns to this node.
func (s *Set) Caches() map[shard.ID]*cache.Cache {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[shard.ID]*cache.Cache, len(s.replicas))
	for id, h := range s.replicas {
		out[id] = h.Cache
	}
	return out
}
