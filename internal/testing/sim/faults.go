package sim

// faults are the current faults between hosts. spread applies them to the three networks.
type faults struct {
	cut    map[link]bool
	silent map[string]bool
	dead   map[string]bool
	raft   map[link]bool // ordered pairs that raft's network has cut
}

func newFaults() faults {
	return faults{cut: map[link]bool{}, silent: map[string]bool{}, dead: map[string]bool{}, raft: map[link]bool{}}
}

// open reports whether a link is open; it may lead to a dead host.
func (f *faults) open(l link) bool {
	return !f.cut[l] && !f.silent[l.from] && !f.silent[l.to]
}

// Cut silences everything between two hosts: nodes, clients' hosts or Etcd.
func (c *Cluster) Cut(a, b string) {
	c.Net.Cut(a, b)
	c.faults.cut[link{a, b}], c.faults.cut[link{b, a}] = true, true
	c.spread()
}

// CutOneWay silences the direction from the host from to the host to. Raft's network
// in memory has no directions: it is cut both ways.
func (c *Cluster) CutOneWay(from, to string) {
	c.Net.CutOneWay(from, to)
	c.faults.cut[link{from, to}] = true
	c.spread()
}

// Heal ends Cut and CutOneWay between two hosts.
func (c *Cluster) Heal(a, b string) {
	c.Net.Heal(a, b)
	delete(c.faults.cut, link{a, b})
	delete(c.faults.cut, link{b, a})
	c.spread()
}

// Pause makes a host silent to all others, as SIGSTOP does to an observer
// from outside; its own clocks continue.
func (c *Cluster) Pause(name string) {
	c.Net.Silence(name)
	c.faults.silent[name] = true
	c.spread()
}

// Resume ends a Pause. Data sent meanwhile arrives, except gossip.
func (c *Cluster) Resume(name string) {
	c.Net.Revive(name)
	delete(c.faults.silent, name)
	c.spread()
}

// LoseGossip loses gossip's packets with probability p.
func (c *Cluster) LoseGossip(p float64) { c.gossip.SetLoss(p) }

// HealAll ends all cuts, pauses and losses. Killed nodes stay killed.
func (c *Cluster) HealAll() {
	c.Net.HealAll()
	c.gossip.SetLoss(0)
	clear(c.faults.cut)
	clear(c.faults.silent)
	c.spread()
}

// spread applies the faults to gossip and raft.
func (c *Cluster) spread() {
	for i, a := range c.hosts {
		for _, b := range c.hosts[i+1:] {
			there, back := link{a.name, b.name}, link{b.name, a.name}
			c.gossip.Mend(a.gossipAddress(), b.gossipAddress())
			for _, l := range []link{there, back} {
				if !c.faults.open(l) {
					from, to := a, b
					if l == back {
						from, to = b, a
					}
					c.gossip.CutOneWay(from.gossipAddress(), to.gossipAddress())
				}
			}
			cut := !c.faults.open(there) || !c.faults.open(back) || c.faults.dead[a.name] || c.faults.dead[b.name]
			switch {
			case cut && !c.faults.raft[there]:
				c.raft.Cut(a.raftAddress(), b.raftAddress())
			case !cut && c.faults.raft[there]:
				c.raft.Heal(a.raftAddress(), b.raftAddress())
			}
			c.faults.raft[there] = cut
		}
	}
}
