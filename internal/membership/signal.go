package membership

import "sync"

// signal wakes any number of subscribers. Many changes may become one wake-up,
// but after a change each subscriber is woken at least once.
type signal struct {
	mu   sync.Mutex
	subs map[chan struct{}]struct{} // guarded by mu
}

// subscribe returns a channel that has a token at once and after changes, and
// a function that ends it.
func (s *signal) subscribe() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	ch <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs == nil {
		s.subs = make(map[chan struct{}]struct{})
	}
	s.subs[ch] = struct{}{}
	return ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subs, ch)
	}
}

func (s *signal) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.subs {
		select {
		case ch <- struct{}{}:
		default: // a token is there: the subscriber has yet to look
		}
	}
}
