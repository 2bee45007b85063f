package client

import (
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

// MoveHome runs one round that moves watches to their preferred nodes.
func (c *Client) MoveHome() { c.mover().Round(c.ctx, c.follower.Topology.Load()) }

// Boxed reports whether one of the addresses is in the penalty box.
func (c *Client) Boxed(addrs []string) bool {
	return slices.ContainsFunc(addrs, c.pool.Boxed)
}

// Penalise puts an address into the penalty box.
func (c *Client) Penalise(addr string, d time.Duration) { c.pool.Penalise(addr, d) }

// Draining reports whether the client has learned that a member drains.
func (c *Client) Draining(name string) bool {
	return slices.ContainsFunc(c.follower.Topology.Load().Members, func(m shardmap.Member) bool { return m.Name == name && m.Draining })
}

// Follows reports whether the map of the client has a replica of the shard on the node.
func (c *Client) Follows(id uint64, node string) bool {
	t := c.follower.Topology.Load()
	return t != nil && slices.ContainsFunc(t.Shards, func(s shardmap.Shard) bool { return s.ID == id && s.Replicas[0] == node })
}

// MoveTo moves the watch to a node, unless it is in the middle of a unit.
func (w *Watcher) MoveTo(addr string) bool { return placed{w}.MoveTo(addr) }

// Begin puts the watch in the middle of a unit of that kind; 0: of none.
func (w *Watcher) Begin(k UpdateKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asm.partial.Kind = k
}
