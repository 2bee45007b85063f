package chaos

import (
	"context"
	"sync"
)

// gate blocks slow readers while it is closed.
type gate struct {
	mu sync.Mutex
	is chan struct{} // guarded by mu; closed: the gate is open
}

func newGate() *gate {
	g := &gate{is: make(chan struct{})}
	close(g.is)
	return g
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.is = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.is:
	default:
		close(g.is)
	}
}

// pass waits until the gate is open, and reports whether it was closed.
func (g *gate) pass(ctx context.Context) (waited bool) {
	g.mu.Lock()
	is := g.is
	g.mu.Unlock()
	select {
	case <-is:
		return false
	default:
	}
	select {
	case <-is:
	case <-ctx.Done():
	}
	return true
}
