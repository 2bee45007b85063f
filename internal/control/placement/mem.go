package placement

import (
	"sync"
	"syscall"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/control/mapfile"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// MemNetwork is a network in memory, for clusters in one process and on fake
// time. Nodes are identified by their Config.Address.
type MemNetwork struct {
	mu    sync.Mutex
	nodes map[string]memNode // guarded by mu
	cuts  map[[2]string]bool // guarded by mu
}

// memNode is a node's end of the network. As on the raft port, only nodes of one
// generation are connected.
type memNode struct {
	*raft.InmemTransport
	generation uint64
}

// NewMemNetwork returns a network without nodes.
func NewMemNetwork() *MemNetwork {
	return &MemNetwork{nodes: make(map[string]memNode), cuts: make(map[[2]string]bool)}
}

// Cut drops all messages between two addresses, both ways, until Heal.
func (n *MemNetwork) Cut(a, b string) { n.set(a, b, true) }

// Heal ends a Cut.
func (n *MemNetwork) Heal(a, b string) { n.set(a, b, false) }

func (n *MemNetwork) set(a, b string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[pair(a, b)] = cut
	n.linkLocked(a, b)
}

// linkLocked connects two nodes if their generations and the cuts allow it, and otherwise disconnects them.
func (n *MemNetwork) linkLocked(a, b string) {
	ta, okA := n.nodes[a]
	tb, okB := n.nodes[b]
	switch {
	case !okA || !okB:
	case n.cuts[pair(a, b)] || ta.generation != tb.generation:
		ta.Disconnect(raft.ServerAddress(b))
		tb.Disconnect(raft.ServerAddress(a))
	default:
		ta.Connect(raft.ServerAddress(b), tb.InmemTransport)
		tb.Connect(raft.ServerAddress(a), ta.InmemTransport)
	}
}

func pair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

func (n *MemNetwork) join(addr string, generation uint64) *raft.InmemTransport {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, t := raft.NewInmemTransport(raft.ServerAddress(addr))
	n.nodes[addr] = memNode{t, generation}
	for a := range n.nodes { // including itself
		n.linkLocked(a, addr)
	}
	return t
}

func (n *MemNetwork) leave(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, ok := n.nodes[addr]
	if !ok {
		return
	}
	delete(n.nodes, addr)
	for _, o := range n.nodes {
		o.Disconnect(raft.ServerAddress(addr))
	}
	t.DisconnectAll()
}

// MemDisk is a data directory in memory. It outlives its node, so that the node
// can be restarted on it. A new MemDisk is an empty disk.
type MemDisk struct {
	uuid string

	mu   sync.Mutex
	logs map[uint64]*storage // by generation; guarded by mu
	m    []byte              // the map file; guarded by mu
	hung chan struct{}       // not nil: raft's writes wait until it is closed; guarded by mu
	full bool                // raft's writes fail; guarded by mu
}

// NewMemDisk returns an empty disk with a new identity.
func NewMemDisk() *MemDisk {
	return &MemDisk{uuid: uuid.NewString(), logs: make(map[uint64]*storage)}
}

// Identity is the equivalent of [Identity] for this disk.
func (d *MemDisk) Identity() string { return d.uuid }

// Hang blocks every write of raft until Unhang.
func (d *MemDisk) Hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hung = make(chan struct{})
}

// Unhang ends a Hang.
func (d *MemDisk) Unhang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.hung)
	d.hung = nil
}

// Fail sets whether every write of raft fails, as on a full disk.
func (d *MemDisk) Fail(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// write waits while the disk hangs, and returns its error.
func (d *MemDisk) write() error {
	d.mu.Lock()
	hung, full := d.hung, d.full
	d.mu.Unlock()
	if hung != nil {
		<-hung
	}
	if full {
		return syscall.ENOSPC
	}
	return nil
}

// memLog is the raft log, and the stable store, of a MemDisk.
type memLog struct {
	*raft.InmemStore
	disk *MemDisk
}

func (l memLog) StoreLogs(es []*raft.Log) error {
	if err := l.disk.write(); err != nil {
		return err
	}
	return l.InmemStore.StoreLogs(es)
}

func (l memLog) Set(key, v []byte) error {
	if err := l.disk.write(); err != nil {
		return err
	}
	return l.InmemStore.Set(key, v)
}

func (l memLog) SetUint64(key []byte, v uint64) error {
	if err := l.disk.write(); err != nil {
		return err
	}
	return l.InmemStore.SetUint64(key, v)
}

func (d *MemDisk) newest() (generation uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for g := range d.logs {
		generation = max(generation, g)
	}
	return generation, nil
}

func (d *MemDisk) open(generation uint64, _ raftLogger) (*storage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full { // bbolt writes when it opens a file
		return nil, syscall.ENOSPC
	}
	if d.logs[generation] == nil {
		d.logs[generation] = d.storage()
	}
	s := *d.logs[generation]
	s.logs = &timedLog{LogStore: s.logs.LogStore}
	return &s, nil
}

func (d *MemDisk) create(generation uint64, _ raftLogger, fill func(*storage) error) error {
	s := d.storage()
	if err := fill(s); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.logs[generation] = s
	return nil
}

// storage returns an empty log.
func (d *MemDisk) storage() *storage {
	log := memLog{InmemStore: raft.NewInmemStore(), disk: d}
	return &storage{logs: &timedLog{LogStore: log}, stable: log, snaps: raft.NewInmemSnapshotStore(), close: func() error { return nil }}
}

// Load implements mapFile.
func (d *MemDisk) Load() (*shard.Map, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.m == nil {
		return nil, nil
	}
	return mapfile.Decode(d.m)
}

// Save implements mapFile.
func (d *MemDisk) Save(m *shard.Map) error {
	b, err := mapfile.Encode(m)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.m = b
	return nil
}

// Refuse implements mapFile.
func (d *MemDisk) Refuse() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.m = nil
	return "nowhere", nil
}
