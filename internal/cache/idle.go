package cache

// Idle reports whether the cache has no watchers, and nothing was read from it since the
// last call. If so, it calls arrived once, with the next watch or read; arrived must not
// block. A source may bring the events of an idle cache late: a read at a revision, and a
// wait for one, ask the source for it.
//
// It implements kv.FollowRequest.Idle. Of several sources that follow for the cache at a
// time, the one that called last is told.
func (c *Cache) Idle(arrived func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrived = nil
	if c.used.Swap(false) || c.index.count > 0 {
		return false
	}
	c.arrived = arrived
	return true
}

// use notes a read.
func (c *Cache) use() {
	if c.used.Load() || c.used.Swap(true) {
		return
	}
	c.mu.Lock()
	arrived := c.arriveLocked()
	c.mu.Unlock()
	arrived()
}

// arriveLocked returns what is to be called outside the lock, now that the cache is used.
func (c *Cache) arriveLocked() func() {
	arrived := c.arrived
	if arrived == nil {
		return func() {}
	}
	c.arrived = nil
	return arrived
}
