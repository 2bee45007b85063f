package clienttest

// SetLevels sets the finalized feature level, and the levels that the nodes support, in
// the order of the nodes. Initially nodes report none.
func (c *Cluster) SetLevels(final int32, understood ...int32) {
	for i, level := range understood {
		n := c.nodes[i]
		n.mu.Lock()
		n.level = level
		n.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.cloneMapLocked()
	m.FeatureLevel = final
	c.shardMap = m
	c.broadcastLocked()
}
