package sim

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// start builds the node on its disk and runs it.
func (h *host) start() {
	c := h.c
	c.t.Helper()
	log := slog.New(c.log.handler(h.name))
	ec := etcd.Defaults()
	ec.Endpoints, ec.Dialer, ec.Logger = []string{Etcd + ":2379"}, c.Net.Dialer(h.name), log
	store, err := etcd.New(ec)
	if err != nil {
		c.t.Fatal(err)
	}
	nc := h.config(log)
	nc.Etcd = store
	nc.Listeners = node.Listeners{Client: h.listen(h.clientAddress()), Peer: h.listen(h.peerAddress())}
	if c.cfg.Tune != nil {
		c.cfg.Tune(&nc)
	}
	n, err := node.New(nc)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan struct{})
	h.node, h.cancel, h.ended, h.down = n, cancel, ended, false
	go func() {
		defer close(ended)
		if err := n.Run(ctx); err != nil && !errors.Is(context.Cause(ctx), node.ErrKilled) {
			c.t.Errorf("%s stopped unexpectedly: %v", h.name, err)
		}
		_ = store.Close()
	}()
}

func (h *host) listen(address string) net.Listener {
	h.c.t.Helper()
	l, err := h.c.Net.Listen(address)
	if err != nil {
		h.c.t.Fatal(err)
	}
	return l
}

func (h *host) config(log *slog.Logger) node.Config {
	c := h.c
	nc := node.Defaults()
	nc.Logger = log
	nc.Self = shard.Member{
		Name: shard.NodeID(h.name), Version: "sim",
		ClientAddress: h.clientAddress(), PeerAddress: h.peerAddress(), RaftAddress: h.raftAddress(),
		BootstrapExpect: c.cfg.Voters,
	}
	nc.Spec = shard.Spec{Ranges: []kv.Range{{}}, Shards: c.cfg.Shards, Replicas: c.cfg.Replicas, Owners: c.cfg.Owners}
	for i := range c.cfg.Nodes {
		nc.Join = append(nc.Join, gossipAddress(i+1))
	}
	h.gossip = c.gossip.Transport(h.gossipAddress())
	nc.Simulation = &node.Simulation{
		Gossip: h.gossip, Network: c.raft, Disk: h.disk, Dial: c.Net.Dialer(h.name),
	}
	return nc
}

// Kill ends a node as kill -9 does: its data in the network is lost, and it does not leave the
// cluster. Its disk is kept.
func (c *Cluster) Kill(name string) {
	c.t.Helper()
	h := c.host(name)
	c.Net.Kill(name)
	_ = h.gossip.Shutdown() // dials are refused, as by a machine that runs
	c.faults.dead[name] = true
	c.spread()
	h.down = true
	h.cancel(node.ErrKilled)
}

// Restart starts a killed or stopped node on its disk.
func (c *Cluster) Restart(name string) {
	c.t.Helper()
	h := c.host(name)
	if h.running() {
		c.t.Fatalf("%s runs already", name)
	}
	<-h.ended
	c.Net.Revive(name)
	delete(c.faults.dead, name)
	delete(c.faults.silent, name)
	c.spread() // before start: gossip's first dial must not meet the old cut
	h.start()
}

// Wipe gives a killed node an empty disk.
func (c *Cluster) Wipe(name string) {
	c.t.Helper()
	h := c.host(name)
	if h.running() {
		c.t.Fatalf("%s runs", name)
	}
	h.disk = placement.NewMemDisk()
	h.wiped++
	for l := range c.faults.raft { // its new raft address has no cuts yet
		if l.from == name || l.to == name {
			delete(c.faults.raft, l)
		}
	}
	c.spread()
}

// Stop ends a node as SIGTERM does, and waits until it has drained.
func (c *Cluster) Stop(name string) time.Duration {
	c.t.Helper()
	h := c.host(name)
	began := time.Now()
	h.cancel(context.Canceled)
	<-h.ended
	h.down = true
	return time.Since(began)
}
