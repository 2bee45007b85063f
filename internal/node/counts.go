package node

import (
	"sync"

	"github.com/shardwatch/shardwatch/internal/replica"
)

// counts counts what the sources of shards have told.
type counts struct {
	mu   sync.Mutex
	many map[replica.What]int64 // guarded by mu
}

func (c *counts) add(what replica.What) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.many == nil {
		c.many = make(map[replica.What]int64)
	}
	c.many[what]++
}

func (c *counts) of(what replica.What) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.many[what]
}
