package cache

// Idle reports whether the cache has no watchers, and nothing was read from it since the
// last call. If so, it calls arrived once, with the next watch or read; arrived must not
// block. A source may bring the events of an idle cache late: a read at a revision, and a
// wait for one, ask the source for it.
//
// It implements kv.FollowRequest.Idle. Of several sources that follow for the cache at a
// time, the one that called last is told.
func (c *Cache) Idle(arrived func()) bool {
	c.wakeups.mu.Lock()
	defer c.wakeups.mu.Unlock()
	c.wakeups.arrived = nil
	if c.wakeups.used.Swap(false) || c.wakeups.index.count > 0 {
		return false
	}
	c.wakeups.arrived = arrived
	return true
}
