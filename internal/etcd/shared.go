package etcd

import (
	"context"
	"fmt"
	"runtime"
	"sync"
)

// shared lets callers share the result of a fetch that began after each of
// them came: never the one in flight, which may have seen too little. There is
// at most one in flight. One of the callers runs it, under its own context;
// when that one gives up, another takes over.
type shared[T any] struct {
	mu    sync.Mutex
	begun uint64     // fetches begun so far; guarded by mu
	now   *flight[T] // the one in flight, or nil; guarded by mu
}

type flight[T any] struct {
	number uint64
	done   chan struct{} // closed when the fields below are set
	value  T
	err    error
	gaveUp bool // the caller's context ended: the result says nothing
}

func (s *shared[T]) do(ctx context.Context, fetch func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	first := s.begun + 1 // the first fetch that begins after this call
	for s.now != nil {
		f := s.now
		s.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			var none T
			return none, fmt.Errorf("wait for a shared read of etcd: %w", ctx.Err())
		}
		if f.number >= first && !f.gaveUp {
			return f.value, f.err
		}
		s.mu.Lock()
	}
	f := &flight[T]{number: s.begun + 1, done: make(chan struct{})}
	s.now = f
	s.mu.Unlock()
	runtime.Gosched() // calls that are ready to run join this fetch: half again as many share one
	s.mu.Lock()
	s.begun++
	s.mu.Unlock()
	f.value, f.err = fetch(ctx)
	f.gaveUp = f.err != nil && ctx.Err() != nil
	s.mu.Lock()
	s.now = nil
	s.mu.Unlock()
	close(f.done)
	return f.value, f.err
}
