package node

import "sync"

// bell tells any number of others that something has changed. The zero bell
// is ready.
type bell struct {
	mu sync.Mutex
	ch chan struct{} // guarded by mu
}

// wait returns a channel that is closed at the next ring. Take it before you
// look at what it is about, and nothing is missed.
func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
