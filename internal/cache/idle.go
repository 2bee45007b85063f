package cache

// Idle reports whether the cache has no watchers, and nothing was read from it since the
// last call. If so, it calls arrived once, with the next watch or read; arrived must not
// block. A source may deliver the events of an idle cache late: a read at a revision, and
// a wait for a revision, request it from the source.
//
// It implements kv.FollowRequest.Idle. If several sources follow for the cache at a time,
// only the arrived of the last call is called.
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
