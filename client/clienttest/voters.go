package clienttest

// leader returns the first node that runs, when a majority of the nodes does.
func (c *Cluster) leader() (first *Node) {
	run := 0
	for _, n := range c.nodes {
		n.mu.Lock()
		up := n.server != nil
		n.mu.Unlock()
		if !up {
			continue
		}
		if run++; first == nil {
			first = n
		}
	}
	if 2*run <= len(c.nodes) {
		return nil
	}
	return first
}
