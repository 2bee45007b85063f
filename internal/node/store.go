package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// store has the node's caches: the replicas that the map gives it, and relays
// of shards that clients of this node ask for.
type store struct {
	n *Node

	mu       sync.RWMutex
	replicas map[shard.ID]*held // guarded by mu
	relays   map[shard.ID]*held // guarded by mu
	closed   bool               // guarded by mu
	ctx      context.Context    //nolint:containedctx // of run: the relays' life
	running  sync.WaitGroup
}

// held is a cache that runs.
type held struct {
	id     shard.ID
	epoch  uint64
	cache  *cache.Cache
	source *replica.Failover
	stop   context.CancelFunc
	done   chan struct{} // closed when the cache has ended

	// Of relays only.
	users int       // guarded by store.mu
	idle  time.Time // guarded by store.mu; since when it has no users
}

func newStore(n *Node) *store {
	return &store{n: n, replicas: make(map[shard.ID]*held), relays: make(map[shard.ID]*held)}
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
		m, changed := s.n.placement.Watch()
		if m != nil {
			s.follow(ctx, m)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-sweep.C:
			s.sweep()
		}
	}
}

// awaitPeers waits until gossip sees somebody, when it should.
func (s *store) awaitPeers(ctx context.Context) {
	if len(s.n.cfg.Join) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		changed := s.n.changed.wait()
		for _, m := range s.n.members.Members() {
			if m.Name != s.n.self && m.State == shard.Alive {
				return
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
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
	// First stop what goes, so that children of a split inherit from it.
	s.mu.Lock()
	var gone []*held
	for id, h := range s.replicas {
		if sh := mine[id]; sh == nil || sh.Range != h.cache.Range() || m.Lineage != h.cache.Lineage() {
			gone = append(gone, h)
			delete(s.replicas, id)
		}
	}
	for id, h := range s.relays {
		if sh, ok := m.Shard(id); !ok || sh.Range != h.cache.Range() || mine[id] != nil {
			h.stop() // its watches find new homes
			delete(s.relays, id)
		}
	}
	s.mu.Unlock()
	for _, h := range gone {
		h.stop()
	}
	for _, h := range gone {
		<-h.done
	}
	s.mu.Lock()
	for id, sh := range mine {
		if h := s.replicas[id]; h != nil {
			h.epoch = sh.Epoch
			continue
		}
		s.replicas[id] = s.start(ctx, m, sh, gone)
	}
	s.mu.Unlock()
	s.n.router.Kick()
}

// start runs a new replica, which inherits from those that go. The caller
// holds mu.
func (s *store) start(ctx context.Context, m *shard.Map, sh *shard.Shard, gone []*held) *held {
	cfg := s.n.cfg.Cache
	cfg.Range, cfg.Lineage = sh.Range, m.Lineage
	for _, h := range gone {
		if h.cache.Lineage() == m.Lineage && h.cache.Range().Covers(sh.Range) {
			cfg.Seed = h.cache.Seed(sh.Range)
		}
	}
	id := sh.ID
	return s.launch(ctx, id, sh.Epoch, cfg, &replica.Failover{
		Candidates: func() []replica.Candidate { return s.n.chain(id) },
		Warm:       func() []replica.Candidate { return s.n.warm(id) },
		Logger:     s.n.log.With("shard", uint64(id)),
	})
}

// launch runs a cache. The caller holds mu.
func (s *store) launch(ctx context.Context, id shard.ID, epoch uint64, cfg cache.Config, source *replica.Failover) *held {
	cfg.Source = source
	cfg.Logger = source.Logger
	ctx, stop := context.WithCancel(ctx)
	h := &held{id: id, epoch: epoch, cache: cache.New(cfg), source: source, stop: stop, done: make(chan struct{})}
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
			s.n.router.Kick()
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

// loading returns how many replicas are not ready, and how many there are.
func (s *store) loading() (loading, all int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.replicas {
		select {
		case <-h.cache.Ready():
		default:
			loading++
		}
	}
	return loading, len(s.replicas)
}

// relayTimeout is how long a watch waits for a relay to be ready.
const relayTimeout = 2 * time.Second

// relay returns a ready relay of the shard, and a function that gives it back.
func (s *store) relay(ctx context.Context, m *shard.Map, sh shard.Shard) (*cache.Cache, func(), error) {
	unavailable := func(why string) error {
		return &kv.UnavailableError{Why: kv.NotReady, RetryAfter: 200 * time.Millisecond, Detail: fmt.Sprintf("shard %d: %s", sh.ID, why)}
	}
	s.mu.Lock()
	if s.closed || s.ctx == nil {
		s.mu.Unlock()
		return nil, nil, unavailable("the node is starting or stopping")
	}
	h := s.relays[sh.ID]
	if h == nil {
		cfg := s.n.cfg.Cache
		cfg.Range, cfg.Lineage, cfg.Stateless = sh.Range, m.Lineage, true
		id := sh.ID
		h = s.launch(s.ctx, id, sh.Epoch, cfg, &replica.Failover{
			Candidates: func() []replica.Candidate { return s.n.relays(id) },
			Warm:       func() []replica.Candidate { return nil },
			Logger:     s.n.log.With("shard", uint64(id), "relay", true),
		})
		s.relays[id] = h
	}
	h.users++
	s.mu.Unlock()
	release := sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.users--; h.users == 0 {
			h.idle = time.Now()
		}
	})
	ctx, cancel := context.WithTimeout(ctx, relayTimeout)
	defer cancel()
	select {
	case <-h.cache.Ready():
		return h.cache, release, nil
	case <-h.done:
		release()
		return nil, nil, unavailable("it is being moved")
	case <-ctx.Done():
		release()
		return nil, nil, unavailable("none of the nodes that have it answers")
	}
}

// sweep stops relays that nobody uses.
func (s *store) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.relays {
		if h.users == 0 && !h.idle.IsZero() && time.Since(h.idle) > s.n.cfg.RelayIdle {
			h.stop()
			delete(s.relays, id)
		}
	}
}
