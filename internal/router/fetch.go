package router

import (
	"context"
	"fmt"
	"sync"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// fetches lets readings share data of other nodes: if many clients list a remote
// shard, it is fetched once and held once. The zero value is empty.
type fetches struct {
	mu     sync.Mutex
	live   map[fetchKey]*fetch          // guarded by mu
	places map[shard.ID]*fetchesOfShard // guarded by mu
}

// fetchKey identifies a fetch: at a revision, its result is the same for all callers.
type fetchKey struct {
	shard    shard.ID
	lineage  uint64
	revision kv.Revision
	rng      kv.Range
	limit    int64
	keysOnly bool
}

// fetch has the items that another node has sent.
type fetch struct {
	users  int           // guarded by fetches.mu
	done   chan struct{} // closed when the rest is set
	items  []*kv.KeyValue
	load   load
	count  int64
	err    error
	gaveUp bool // the reading that fetched was canceled: err does not count for others
}

// fetchesOfShard are the big fetches of a shard.
type fetchesOfShard struct {
	users int // guarded by fetches.mu
	place chan struct{}
}

// Bounds of fetches.
const (
	// maxFetches bounds the concurrent big fetches of a shard: each
	// holds the shard's keys at its own revision.
	maxFetches = 2
	// smallFetch is the highest limit of a small fetch.
	smallFetch = 10_000
)

// get returns the items that do fetches for the key, in this call or in a concurrent
// call, and a function that releases them. One of the callers runs do; if that caller
// is canceled, another caller does.
func (s *fetches) get(ctx context.Context, key fetchKey, do func(*fetch) error) (f *fetch, leave func(), err error) {
	for {
		f, first := s.join(key)
		leave = func() { s.leave(key, f) }
		if first {
			f.err = s.run(ctx, key, f, do)
			f.gaveUp = f.err != nil && ctx.Err() != nil
			if f.err != nil {
				s.drop(key, f)
			}
			close(f.done)
		}
		if !wait.For(ctx, f.done) {
			leave()
			return nil, nil, fmt.Errorf("wait for a shared fetch of shard %d: %w", key.shard, context.Cause(ctx))
		}
		switch {
		case f.err == nil:
			return f, leave, nil
		case first || !f.gaveUp:
			leave()
			return nil, nil, f.err
		}
		leave()
	}
}

// run waits for a place if the fetch is big, then fetches.
func (s *fetches) run(ctx context.Context, key fetchKey, f *fetch, do func(*fetch) error) error {
	if key.limit > 0 && key.limit <= smallFetch {
		return do(f)
	}
	s.mu.Lock()
	p := s.places[key.shard]
	if p == nil {
		p = &fetchesOfShard{place: make(chan struct{}, maxFetches)}
		if s.places == nil {
			s.places = make(map[shard.ID]*fetchesOfShard)
		}
		s.places[key.shard] = p
	}
	p.users++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(s.places, key.shard)
		}
	}()
	select {
	case p.place <- struct{}{}:
		defer func() { <-p.place }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return do(f)
}

// join returns the fetch of a key, and whether it is new.
func (s *fetches) join(key fetchKey) (f *fetch, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.live[key]; f == nil {
		f, first = &fetch{done: make(chan struct{})}, true
		if s.live == nil {
			s.live = make(map[fetchKey]*fetch)
		}
		s.live[key] = f
	}
	f.users++
	return f, first
}

func (s *fetches) leave(key fetchKey, f *fetch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.users--; f.users > 0 {
		return
	}
	f.load.release()
	if s.live[key] == f {
		delete(s.live, key)
	}
}

// drop removes a failed fetch, so that the next caller fetches again.
func (s *fetches) drop(key fetchKey, f *fetch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[key] == f {
		delete(s.live, key)
	}
}
