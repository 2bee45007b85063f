package placement

import (
	"fmt"
	"sync"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// board shows the newest map this node knows, wherever it came from.
//
// Invariant: all maps shown are of one cluster, and their versions increase.
type board struct {
	mu      sync.Mutex
	m       *shard.Map
	changed chan struct{} // closed and replaced when m is
}

func newBoard() *board { return &board{changed: make(chan struct{})} }

// show makes m the newest map, unless it is not. A map of another cluster is
// refused with ErrForeign.
func (b *board) show(m *shard.Map) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.m != nil {
		if m.ClusterID != b.m.ClusterID {
			return fmt.Errorf("shard map of cluster %s; this node's data directory belongs to cluster %s: %w", m.ClusterID, b.m.ClusterID, ErrForeign)
		}
		if m.Version <= b.m.Version {
			return nil
		}
	}
	b.m = m
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

func (b *board) watch() (*shard.Map, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.m, b.changed
}

// bell wakes any number of waiters. Take the channel, look, then wait.
type bell struct {
	mu sync.Mutex
	ch chan struct{}
}

func newBell() *bell { return &bell{ch: make(chan struct{})} }

func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.ch)
	b.ch = make(chan struct{})
}
