package membership

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// ClusterMismatchError reports a node of another cluster.
type ClusterMismatchError struct {
	Member       shard.NodeID
	Address      string
	Ours, Theirs string // cluster IDs
}

func (e *ClusterMismatchError) Error() string {
	return fmt.Sprintf("the node %q at %s belongs to cluster %s, this node to %s: refused; check --join, and --data-dir if this node was meant for the other cluster", e.Member, e.Address, e.Theirs, e.Ours)
}

// standing records whether the other nodes accept our claim to our name.
type standing struct {
	// In the current round of joining: how many lists had our name with our
	// address, with that of an older node, and how many entries had other names.
	accepted, elsewhere, company int
	// refused: in the last round with an answer, no member accepted this node.
	refused bool
	// holder is the node that has this node's name instead.
	holder string
}

// delegate receives memberlist's calls to Membership, often under memberlist's
// own lock: it must not call memberlist, nor wait.
type delegate Membership

func (d *delegate) m() *Membership { return (*Membership)(d) }

// NodeMeta returns our metadata.
func (d *delegate) NodeMeta(int) []byte {
	m := d.m()
	m.mu.Lock()
	defer m.mu.Unlock()
	host := ""
	if self := m.selfLocked(); self.GossipAddress != "" {
		host, _, _ = splitAddress(self.GossipAddress)
	}
	b, err := encodeMeta(m.self, host)
	if err != nil {
		// Validate and SetClusterID ensure that it fits.
		m.log.Error("cannot encode this node's metadata", "error", err)
		return nil
	}
	return b
}

// NotifyJoin wakes watch.
func (d *delegate) NotifyJoin(*memberlist.Node) { d.looks.Wake() }

// NotifyLeave wakes watch.
func (d *delegate) NotifyLeave(*memberlist.Node) { d.looks.Wake() }

// NotifyUpdate wakes watch.
func (d *delegate) NotifyUpdate(*memberlist.Node) { d.looks.Wake() }

// NotifyAlive refuses nodes of other clusters and nodes with unreadable
// metadata that gossip announces.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	m := d.m()
	peer, err := decodeMeta(n.Meta, n.Addr.String())
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.onceLocked("meta " + n.Address()) {
			m.log.Warn("node refused: its metadata cannot be read; it runs a newer version or is not a cache node", "member", n.Name, "gossip", n.Address(), "error", err)
		}
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.checkClusterLocked(n, peer, m.clusterLocked()); err != nil {
		return err
	}
	if m.company == "" {
		m.company = peer.ClusterID
	}
	return nil
}

// NotifyMerge refuses to merge with another cluster. When a node joins, it is
// called on both sides with the other side's list.
func (d *delegate) NotifyMerge(nodes []*memberlist.Node) error {
	if isObserver(nodes) {
		return errObserver
	}
	m := d.m()
	m.mu.Lock()
	defer m.mu.Unlock()
	cluster := m.clusterLocked()
	// sorted by name, so that retries return the same error
	for _, n := range slices.SortedFunc(slices.Values(nodes), func(a, b *memberlist.Node) int { return cmp.Compare(a.Name, b.Name) }) {
		peer, ok := fromNode(n)
		if !ok || gone(peer.Member) {
			continue
		}
		if err := m.checkClusterLocked(n, peer, cluster); err != nil {
			return err
		}
		if cluster == "" {
			cluster = peer.ClusterID
		}
	}
	m.company = cluster
	m.hearLocked(nodes)
	return nil
}

// hearLocked takes the entries for our name from another node's list.
func (m *Membership) hearLocked(nodes []*memberlist.Node) {
	s := &m.standing
	for _, n := range nodes {
		if n.Name != string(m.self.Name) {
			s.company++
			continue
		}
		if n.Address() == m.address {
			s.accepted++
			continue
		}
		if other, ok := fromNode(n); ok && newcomer(m.self, other) {
			s.elsewhere++
			s.holder = other.GossipAddress
		}
	}
}

// NotifyConflict is called when two nodes have one name. If the name is ours,
// existing is this node.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	m := d.m()
	peer, ok := fromNode(other)
	m.mu.Lock()
	defer m.mu.Unlock()
	if existing.Name != string(m.self.Name) {
		if m.onceLocked("claim " + other.Name + other.Address()) {
			m.log.Info("a second node claims the name of a member", "member", existing.Name, "gossip", existing.Address(), "claimant", other.Address())
		}
		return
	}
	if !ok || m.left {
		return
	}
	if m.onceLocked("name " + other.Address()) {
		m.log.Warn("another node has this node's name; the node that started later will exit", "gossip", other.Address(), "uuid", peer.UUID, "we_started_later", newcomer(m.self, peer))
	}
	if newcomer(m.self, peer) {
		m.standing.refused = true
		m.standing.holder = peer.GossipAddress
		m.joins.Wake()
	}
	if err := m.conflict.claimed(time.Now(), m.self, peer); err != nil {
		select {
		case m.verdict <- err:
		default:
		}
	}
}

// clusterLocked returns the cluster we belong to: our own ID, or that of the
// nodes we have met.
func (m *Membership) clusterLocked() string {
	if m.self.ClusterID != "" {
		return m.self.ClusterID
	}
	return m.company
}

// checkClusterLocked returns an error when peer belongs to another cluster, and
// logs each error once.
func (m *Membership) checkClusterLocked(n *memberlist.Node, peer meta, ours string) error {
	if ours == "" || peer.ClusterID == "" || peer.ClusterID == ours {
		return nil
	}
	err := &ClusterMismatchError{Member: shard.NodeID(n.Name), Address: n.Address(), Ours: ours, Theirs: peer.ClusterID}
	if m.onceLocked("cluster " + err.Error()) {
		m.log.Warn("node of another cluster refused", "error", err)
	}
	return err
}
