package etcdclock

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// shared lets callers share the result of a fetch that began after each of their calls:
// never the fetch in flight, which may have read too old a state. At most one fetch is
// in flight, and callers that come meanwhile share the next one. No caller runs a
// fetch, so a caller that gives up leaves no work to take over. Each caller is woken
// once.
type shared[T any] struct {
	timeout time.Duration // from a question's first caller to its answer; 0: no bound

	mu     sync.Mutex
	asking bool         // a goroutine runs ask; guarded by mu
	next   *question[T] // the one that callers wait for; nil: no callers; guarded by mu
}

// question is a fetch that has not begun, or is in flight.
type question[T any] struct {
	fetch   func(context.Context) (T, error)
	ctx     context.Context // ends after the timeout, and with the last caller
	cancel  context.CancelFunc
	callers int           // that still wait; guarded by shared.mu
	done    chan struct{} // closed when the fields below are set
	value   T
	err     error
}

func (s *shared[T]) do(ctx context.Context, fetch func(context.Context) (T, error)) (T, error) {
	s.mu.Lock()
	if s.next == nil {
		s.next = newQuestion(fetch, s.timeout)
	}
	q := s.next
	q.callers++
	if !s.asking {
		s.asking = true
		go s.ask()
	}
	s.mu.Unlock()
	select {
	case <-q.done:
		return q.value, q.err
	case <-ctx.Done():
		s.leave(q)
		var none T
		return none, fmt.Errorf("wait for a shared read of etcd: %w", ctx.Err())
	}
}

func newQuestion[T any](fetch func(context.Context) (T, error), timeout time.Duration) *question[T] {
	q := &question[T]{fetch: fetch, done: make(chan struct{})}
	if timeout == 0 {
		q.ctx, q.cancel = context.WithCancel(context.Background()) //nolint:gosec // ask and leave call cancel
	} else {
		q.ctx, q.cancel = context.WithTimeout(context.Background(), timeout) //nolint:gosec // as above
	}
	return q
}

// leave ends a question without callers.
func (s *shared[T]) leave(q *question[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.callers--; q.callers > 0 {
		return
	}
	q.cancel()
	if s.next == q {
		s.next = nil // a later caller begins another one
	}
}

// ask fetches as long as there are callers.
func (s *shared[T]) ask() {
	for {
		runtime.Gosched() // runnable callers join this fetch: 50% more share one
		s.mu.Lock()
		q := s.next
		s.next = nil
		s.asking = q != nil
		s.mu.Unlock()
		if q == nil {
			return
		}
		q.value, q.err = q.fetch(q.ctx)
		q.cancel()
		close(q.done)
	}
}
