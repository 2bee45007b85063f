package placement

import (
	"sync"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// MemNetwork is a network in memory, for clusters in one process and on fake
// time. Nodes are known by their Config.Address.
type MemNetwork struct {
	mu    sync.Mutex
	nodes map[string]*raft.InmemTransport // guarded by mu
	cuts  map[[2]string]bool              // guarded by mu
}

// NewMemNetwork returns a network without nodes.
func NewMemNetwork() *MemNetwork {
	return &MemNetwork{nodes: make(map[string]*raft.InmemTransport), cuts: make(map[[2]string]bool)}
}

// Cut drops everything between two addresses, both ways, until Heal.
func (n *MemNetwork) Cut(a, b string) { n.set(a, b, true) }

// Heal ends a Cut.
func (n *MemNetwork) Heal(a, b string) { n.set(a, b, false) }

func (n *MemNetwork) set(a, b string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[pair(a, b)] = cut
	ta, tb := n.nodes[a], n.nodes[b]
	if ta == nil || tb == nil {
		return
	}
	if cut {
		ta.Disconnect(raft.ServerAddress(b))
		tb.Disconnect(raft.ServerAddress(a))
	} else {
		ta.Connect(raft.ServerAddress(b), tb)
		tb.Connect(raft.ServerAddress(a), ta)
	}
}

func pair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

func (n *MemNetwork) join(addr string) *raft.InmemTransport {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, t := raft.NewInmemTransport(raft.ServerAddress(addr))
	t.Connect(raft.ServerAddress(addr), t)
	for a, o := range n.nodes {
		if !n.cuts[pair(a, addr)] {
			t.Connect(raft.ServerAddress(a), o)
			o.Connect(raft.ServerAddress(addr), t)
		}
	}
	n.nodes[addr] = t
	return t
}

func (n *MemNetwork) leave(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.nodes[addr]
	if t == nil {
		return
	}
	delete(n.nodes, addr)
	for _, o := range n.nodes {
		o.Disconnect(raft.ServerAddress(addr))
	}
	t.DisconnectAll()
}

// MemDisk is a data directory in memory. It outlives its node, so that one can
// be restarted on it; a new one is an empty disk.
type MemDisk struct {
	uuid  string
	logs  *raft.InmemStore
	snaps *raft.InmemSnapshotStore

	mu   sync.Mutex
	m    []byte        // the map file; guarded by mu
	hung chan struct{} // not nil: raft's writes wait for its end; guarded by mu
}

// NewMemDisk returns an empty disk with an identity of its own.
func NewMemDisk() *MemDisk {
	return &MemDisk{uuid: uuid.NewString(), logs: raft.NewInmemStore(), snaps: raft.NewInmemSnapshotStore()}
}

// Identity is [Identity] of this disk.
func (d *MemDisk) Identity() string { return d.uuid }

// Hang lets every write of the raft log wait until Unhang.
func (d *MemDisk) Hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hung == nil {
		d.hung = make(chan struct{})
	}
}

// Unhang ends a Hang.
func (d *MemDisk) Unhang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hung != nil {
		close(d.hung)
		d.hung = nil
	}
}

// memLog is the raft log of a MemDisk.
type memLog struct {
	*raft.InmemStore
	disk *MemDisk
}

func (l memLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l memLog) StoreLogs(es []*raft.Log) error {
	l.disk.mu.Lock()
	hung := l.disk.hung
	l.disk.mu.Unlock()
	if hung != nil {
		<-hung
	}
	return l.InmemStore.StoreLogs(es)
}

func (d *MemDisk) storage() *storage {
	return &storage{logs: &timedLog{LogStore: memLog{InmemStore: d.logs, disk: d}}, stable: d.logs, snaps: d.snaps, close: func() error { return nil }}
}

func (d *MemDisk) load() (*shard.Map, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.m == nil {
		return nil, nil
	}
	return decodeMapFile(d.m)
}

func (d *MemDisk) save(m *shard.Map) error {
	b, err := encodeMapFile(m)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.m = b
	return nil
}

func (d *MemDisk) refuse() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.m = nil
	return "nowhere", nil
}
