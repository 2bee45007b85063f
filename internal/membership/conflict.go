package membership

import (
	"fmt"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// NameTakenError reports that a live node with another address has our name.
type NameTakenError struct {
	Name    shard.NodeID
	Address string // gossip address of the other node
	UUID    string // UUID of the other node
	SameID  bool   // the other has our UUID, too
	For     time.Duration
}

func (e *NameTakenError) Error() string {
	s := fmt.Sprintf("the name %q is taken by the node at %s, alive for %s since this node started; give each node a different --name", e.Name, e.Address, e.For.Round(time.Second))
	if e.SameID {
		s += " and --data-dir: the other node has the same UUID, so its data directory is a copy of this node's"
	}
	return s
}

// conflict tracks a conflict about our name. It is a value: claims and times
// are its input, the verdict is its output.
type conflict struct {
	limit time.Duration // how long it may last
	pause time.Duration // a longer silence ends it
	since time.Time     // zero: there is no conflict
	last  time.Time
	other meta
}

// claimed records that other has our name, at another address. It returns an
// error when we are the newcomer and the conflict has lasted too long.
//
// The newcomer is the node that started later; the greater UUID decides a tie.
// Both sides reach the same result, as far as their clocks agree.
func (c *conflict) claimed(now time.Time, self, other meta) error {
	if !newcomer(self, other) {
		return nil
	}
	if c.since.IsZero() || now.Sub(c.last) > c.pause || other.GossipAddress != c.other.GossipAddress {
		c.since = now
	}
	c.last, c.other = now, other
	if now.Sub(c.since) < c.limit {
		return nil
	}
	return &NameTakenError{
		Name: self.Name, Address: other.GossipAddress, UUID: other.UUID,
		SameID: other.UUID == self.UUID, For: now.Sub(c.since),
	}
}

// settled records that others accept us under our name.
func (c *conflict) settled() { c.since = time.Time{} }

func newcomer(self, other meta) bool {
	if !self.started.Equal(other.started) {
		return self.started.After(other.started)
	}
	return self.UUID > other.UUID
}
