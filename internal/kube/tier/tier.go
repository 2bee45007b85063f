package tier

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/data/peerapi"
	"github.com/shardwatch/shardwatch/internal/data/peers"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Feeds are the resources that this node follows.
type Feeds interface {
	// Copy returns the copy of a resource, for other nodes to follow. If follow is set, it
	// starts and waits for the copy; otherwise it fails unless the copy is loaded.
	Copy(ctx context.Context, r source.Resource, follow bool) (peerapi.Resource, error)
	// Used returns the resources that clients of this node use.
	Used() []source.Resource
	// Keep keeps a copy of a resource that clients of another node use.
	Keep(r source.Resource)
}

// Config configures a Tier.
type Config struct {
	// Self is this node, with its peer address.
	Self shard.Member
	// Gossip finds the other nodes. Its Self is set by New.
	Gossip membership.Config
	// Apiservers identify the cluster.
	Apiservers *source.Client
	// ServerTLS, ClientTLS and Speaks secure the peer port, as in tlsconf.Peer; nil: plain.
	ServerTLS *tls.Config
	ClientTLS func(raw net.Conn, node string) (net.Conn, *tls.Config)
	Speaks    func(state *tls.ConnectionState, node string) error
	Logger    *slog.Logger
}

// Tier is this node's part in a tier.
type Tier struct {
	cfg     Config
	members *membership.Membership
	peers   *peers.Set
	feeds   Feeds

	id       atomic.Pointer[string] // of the cluster; nil: unknown
	verified bool                   // an apiserver has confirmed id; owned by look
	settled  chan struct{}          // closed when the first states may be loaded
	draining chan struct{}          // closed by Drain
	drain    sync.Once
}

const (
	// lookEvery is the interval between requests to the other nodes for their used resources.
	lookEvery = time.Second
	// settleTime is how long a node that finds no other nodes waits before it lists at an
	// apiserver: gossip tries to join once a second.
	settleTime = 3 * time.Second
	// askTime bounds a request to another node, or to an apiserver.
	askTime = time.Second
	// leaveTime bounds the notification of the other nodes when this node leaves.
	leaveTime = time.Second
)

// New returns a Tier for cfg. It starts nothing.
func New(cfg Config) (*Tier, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	t := &Tier{cfg: cfg, settled: make(chan struct{}), draining: make(chan struct{})}
	gossip := cfg.Gossip
	gossip.Self, gossip.Logger = cfg.Self, cfg.Logger
	var err error
	if t.members, err = membership.New(gossip); err != nil {
		return nil, err
	}
	t.peers = peers.New(peers.Config{Member: t.member, Cluster: t.cluster, TLS: cfg.ClientTLS})
	return t, nil
}

// Run takes part in the tier until ctx ends. ln is the peer port. Run closes it.
func (t *Tier) Run(ctx context.Context, feeds Feeds, ln net.Listener) error {
	t.feeds = feeds
	gossiping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return t.members.Run(gossiping) })
	g.Go(func() error { return t.serve(ctx, ln) })
	g.Go(func() error {
		defer stop()
		err := t.look(ctx)
		leaving, done := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		defer done()
		if err := t.members.Leave(leaving); err != nil {
			t.cfg.Logger.Debug("leaving: other nodes were not notified", "error", err)
		}
		return err
	})
	err := g.Wait()
	t.peers.Close()
	return err
}

// Drain makes the other nodes stop following resources at this node.
func (t *Tier) Drain() {
	t.drain.Do(func() {
		t.members.SetDraining(true)
		close(t.draining)
	})
}

// SetGossipKeys replaces the encryption keys of gossip.
func (t *Tier) SetGossipKeys(keys [][]byte) error { return t.members.SetKeys(keys) }

// cluster returns the UID of the cluster; "": unknown yet.
func (t *Tier) cluster() string {
	if id := t.id.Load(); id != nil {
		return *id
	}
	return ""
}

// nodes returns the nodes that may own resources.
func (t *Tier) nodes() []shard.NodeID {
	id := t.cluster()
	if id == "" {
		return nil
	}
	return live(t.members.Members(), id)
}

// Members returns the live nodes of the tier, including this one, sorted by name.
func (t *Tier) Members() []shard.Member {
	id := t.cluster()
	all := slices.DeleteFunc(slices.Clone(t.members.Members()), func(m shard.Member) bool {
		return m.State != shard.Alive && m.State != shard.Suspect || m.ClusterID != id
	})
	slices.SortFunc(all, func(a, b shard.Member) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Nodes returns the number of nodes that may own resources.
func (t *Tier) Nodes() int { return len(t.nodes()) }

func (t *Tier) member(name shard.NodeID) (shard.Member, bool) {
	all := t.members.Members()
	i := slices.IndexFunc(all, func(m shard.Member) bool { return m.Name == name })
	if i < 0 {
		return shard.Member{}, false
	}
	return all[i], true
}

// look identifies the cluster, and keeps copies of the resources that other nodes' clients
// use, until ctx ends.
func (t *Tier) look(ctx context.Context) error {
	began := time.Now()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	settled := false
	for {
		changed := t.members.Changes() // before the members, to miss no change
		if err := t.identify(ctx); err != nil {
			return err
		}
		if !settled && (len(t.nodes()) > 1 || time.Since(began) >= settleTime) {
			settled = true
			close(t.settled)
		}
		t.keep(ctx)
		t.peers.Prune()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

// identify sets the cluster that this node serves: from an apiserver, or, while none
// answers, from the other nodes. It fails if these belong to different clusters.
func (t *Tier) identify(ctx context.Context) error {
	if t.verified {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	known := t.cluster()
	id, err := t.cfg.Apiservers.Cluster(asking)
	switch {
	case err != nil && known == "":
		t.cfg.Logger.Info("cannot identify the cluster of the apiservers", "error", err)
		if id = othersCluster(t.members.Members(), t.cfg.Self.Name); id == "" {
			return nil
		}
	case err != nil:
		return nil
	case known != "" && known != id:
		return fmt.Errorf("this node has joined nodes of cluster %s, and its apiservers are of cluster %s: check --join and --kube-server", known, id)
	default:
		t.verified = true
	}
	if known == "" {
		t.id.Store(&id)
		t.members.SetClusterID(id)
	}
	return nil
}

// othersCluster returns the cluster of the other nodes; "": unknown to them, too. Gossip refuses
// nodes of different clusters.
func othersCluster(members []shard.Member, self shard.NodeID) string {
	for i := range members {
		if m := &members[i]; m.Name != self && (m.State == shard.Alive || m.State == shard.Suspect) && m.ClusterID != "" {
			return m.ClusterID
		}
	}
	return ""
}

// keep keeps copies of the resources that the clients of the other nodes use.
func (t *Tier) keep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var asking sync.WaitGroup
	for _, node := range t.nodes() {
		if node == t.cfg.Self.Name {
			continue
		}
		conn, err := t.peers.Conn(node)
		if err != nil {
			continue
		}
		asking.Go(func() {
			answer, err := peerv1.NewPeerServiceClient(conn).UsedResources(ctx, &peerv1.UsedResourcesRequest{Node: string(t.cfg.Self.Name)})
			if err != nil {
				return // the next round retries
			}
			for _, used := range answer.GetResources() {
				if r, ok := source.ParseResource(used.GetPrefix(), used.GetEncoding()); ok {
					t.feeds.Keep(r)
				}
			}
		})
	}
	asking.Wait()
}

var _ replica.Source = (*Source)(nil)
