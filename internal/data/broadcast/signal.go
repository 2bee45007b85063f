// Package broadcast notifies any number of goroutines of a change.
package broadcast

import "sync"

// Signal notifies any number of goroutines of a change. The zero Signal is
// ready. All methods may be called from any goroutine.
type Signal struct {
	mu sync.Mutex
	ch chan struct{} // guarded by mu
}

// Wait returns a channel that is closed at the next Notify. Take it before you look at
// the state that it is about, and no change is missed.
func (s *Signal) Wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// Notify closes the channel that Wait has returned.
func (s *Signal) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
