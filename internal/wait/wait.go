// Package wait has primitives for goroutines that wait: a [Signal] wakes any number of them, a [Bell] wakes
// one, and the end of a context ends [For] and [Sleep].
package wait

import (
	"context"
	"sync"
	"time"
)

// Signal notifies any number of goroutines of a change. The zero Signal is
// ready. All methods may be called from any goroutine.
type Signal struct {
	mu sync.Mutex
	ch chan struct{} // guarded by mu
}

// Wait returns a channel that is closed at the next Notify. Call it before reading the state that it guards, to
// miss no change.
func (s *Signal) Wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// Notify closes the channel returned by Wait.
func (s *Signal) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// Bell wakes the one goroutine that receives from it. Create it with NewBell.
type Bell chan struct{}

// NewBell returns a Bell that has not rung.
func NewBell() Bell { return make(Bell, 1) }

// Wake makes the goroutine receive once more. It does not block: calls before the goroutine receives count
// once.
func (b Bell) Wake() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// For waits until c is ready to receive. It returns false if ctx ends first.
func For(ctx context.Context, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Over reports whether c is closed.
func Over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
