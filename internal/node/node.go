package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/auth/etcdauth"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/control/drain"
	"github.com/shardwatch/shardwatch/internal/control/mapfollow"
	"github.com/shardwatch/shardwatch/internal/control/operator"
	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/control/roster"
	"github.com/shardwatch/shardwatch/internal/data/copies"
	"github.com/shardwatch/shardwatch/internal/data/lineage"
	"github.com/shardwatch/shardwatch/internal/data/peers"
	"github.com/shardwatch/shardwatch/internal/data/verify"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/ops/delivery"
	"github.com/shardwatch/shardwatch/internal/ops/revtrace"
	"github.com/shardwatch/shardwatch/internal/ops/statuspage"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Node is one cache node. Create it with New, run it once.
type Node struct {
	cfg  Config
	self shard.NodeID
	log  *slog.Logger

	limits      limits
	members     *membership.Membership
	placement   *placement.Placement
	peers       *peers.Set
	roster      *roster.Roster
	drainer     *drain.Drainer
	operator    *operator.Operator
	mapFollower *mapfollow.Follower
	copies      *copies.Set
	permits     *permits
	history     *historian
	lineage     *lineage.Keeper
	clock       *clock
	verifier    *verify.Verifier
	suspects    *suspects
	trace       *revtrace.Trace
	delivery    *delivery.Recorder
	router      *router.Router
	etcdAuth    *etcdauth.Checker
	authorizer  *authz.Authorizer // nil: no policy
	audit       *authz.Audit
	budget      *budget.Budget
	openQueue   *fair.Gate
	turns       *fair.Turns
	etcdAPI     *etcdapi.API
	server      *server.Server
	page        *statuspage.Page // nil: none
	pulse       *pulse

	changed wait.Signal // of the map or the members
	started time.Time
	health  sync.Mutex  // held while served, drained and gRPC's health change together
	served  atomic.Bool // was ready once
	drained atomic.Bool
	handler atomic.Pointer[http.Handler]
}

// New builds a node. It opens the data directory and starts nothing.
func New(cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	n := &Node{cfg: cfg, self: cfg.Self.Name, log: cfg.Logger.With("node", string(cfg.Self.Name))}
	if err := identify(n); err != nil {
		return nil, err
	}
	n.turns = fair.NewTurns()
	n.limits = newLimits(&n.cfg, n.turns)
	n.cfg.Listeners = n.limits.listeners(cfg.Listeners)
	// Each function uses the parts that are built before it, and functions that call
	// later parts once the node runs.
	for _, build := range []func(n *Node) error{
		buildMembership, buildCluster, buildLineage, buildDataPath, buildEtcdAuth, buildPolicy, buildAPIs, buildServer,
	} {
		if err := build(n); err != nil {
			return nil, err
		}
	}
	buildStatusPage(n)
	n.pulse = newPulse(n)
	if cfg.Meter != nil {
		if err := n.register(cfg.Meter); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return n, nil
}

// ErrKilled, as the cause that ends Run's context, ends the node without notice to
// other nodes, like kill -9. It is for simulations.
var ErrKilled = errors.New("killed")

// Run serves until ctx ends, then drains within DrainTimeout and returns nil.
// An error names the reason why the node cannot continue.
func (n *Node) Run(ctx context.Context) error {
	n.started = time.Now()
	// The parts outlive ctx, because the drain needs them.
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, inner := errgroup.WithContext(inner)
	part := func(name string, run func(context.Context) error) {
		g.Go(func() error {
			if err := run(inner); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if inner.Err() == nil {
				return fmt.Errorf("%s stopped unexpectedly", name)
			}
			return nil
		})
	}
	part("gossip", n.gossip)
	part("placement", n.placement.Run)
	part("shard map", n.mapFollower.Run)
	part("announcer", n.announce)
	part("drain order", n.drainer.Run)
	part("clock", n.clock.run)
	part("lineage", n.lineage.Run)
	part("delivery metrics", n.delivery.Run)
	part("keeper", n.copies.Run)
	part("history", n.history.run)
	part("verifier", n.verifier.Run)
	part("suspects", n.suspects.run)
	part("router", n.router.Run)
	part("pulse", n.pulse.run)
	part("etcd auth", n.etcdAuth.Run)
	part("etcd API", n.etcdAPI.Run)
	part("server", func(ctx context.Context) error {
		return n.server.Run(ctx, n.cfg.Listeners.Client, n.cfg.Listeners.Peer)
	})
	if n.page != nil {
		part("status page", n.page.Run)
	}
	if l := n.cfg.Listeners.HTTP; l != nil {
		part("http", func(ctx context.Context) error { return telemetry.Serve(ctx, l, n.http(), n.cfg.HTTPTLS, n.mayLook()) })
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), ErrKilled) {
				n.drainer.Drain(inner)
			}
			stop()
		case <-inner.Done():
		}
		return nil
	})
	err := g.Wait()
	n.peers.Close()
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	n.log.Info("stopped")
	return nil
}

// SetHTTP sets the handler of the HTTP port for all paths except the status page. Call it before Run.
func (n *Node) SetHTTP(h http.Handler) { n.handler.Store(&h) }

// SetGossipKeys replaces the keys that gossip is encrypted with. See
// membership.Membership.SetKeys.
func (n *Node) SetGossipKeys(keys [][]byte) error { return n.members.SetKeys(keys) }

// gossip runs membership after the disk was read, when the node knows its
// cluster: a node that announces no cluster is accepted by every cluster.
func (n *Node) gossip(ctx context.Context) error {
	if !wait.For(ctx, n.placement.Opened()) {
		return nil
	}
	n.members.SetClusterID(n.placement.ClusterID())
	return n.members.Run(ctx)
}

// announce passes the cluster's ID and the version of the map to gossip, notifies the watchers of map
// and members, and checks whether the node is ready.
func (n *Node) announce(ctx context.Context) error {
	told, flags := "", ""
	for {
		members := n.members.Changes() // before the values, so that no change is missed
		m, mapChanged := n.placement.Watch()
		n.peers.Prune()
		n.changed.Notify()
		if id := n.placement.ClusterID(); id != told {
			n.members.SetClusterID(id)
			told = id
		}
		if m != nil {
			n.members.SetMapVersion(m.Version)
			flags = n.tellOverruled(m, flags)
		}
		var again <-chan time.Time
		if len(n.NotReady()) > 0 && !n.drained.Load() { // a ready node stays ready until it drains
			again = time.After(readyEvery)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-members:
		case <-mapChanged:
		case <-again:
		}
	}
}

// readyEvery is the interval at which a node checks whether it is ready.
const readyEvery = 250 * time.Millisecond

// owedWait is how long a node stays unready, from when it first knows etcd's revision, until it has
// the shards that are assigned to it, so that a rolling restart waits until they have enough
// replicas. The wait is bounded, because the shards come only while the voters have a majority. The
// wait for etcd's revision is not bounded: without it the leader gives the node no shards.
const owedWait = 30 * time.Second

// NotReady returns the reasons why the node does not serve yet; none when it serves. A ready
// node stays ready until it drains: other nodes have the shards that it loads later, and a node
// that is cut off from etcd serves its cached data.
func (n *Node) NotReady() []string {
	if n.drained.Load() {
		return []string{"the node is shutting down"}
	}
	if n.served.Load() {
		return nil
	}
	why := n.missing()
	if len(why) == 0 {
		if n.serves() {
			n.log.Info("ready: the node serves", "after", time.Since(n.started).Round(time.Millisecond))
		}
		return nil
	}
	if err := n.clock.Trouble(); err != nil {
		why = append(why, "etcd: "+err.Error())
	}
	return why
}

// serves makes all probes report that the node is ready. It returns false if they
// did before, or if the node shuts down.
func (n *Node) serves() bool {
	n.health.Lock()
	defer n.health.Unlock()
	if n.served.Load() || n.drained.Load() {
		return false
	}
	n.server.SetReady(true)
	n.served.Store(true)
	return true
}

// leaves makes all probes report that the node shuts down.
func (n *Node) leaves() {
	n.health.Lock()
	defer n.health.Unlock()
	n.drained.Store(true)
	n.server.SetReady(false)
}

// missing returns the reasons why the node is not ready yet.
func (n *Node) missing() []string {
	if n.placement.Map() == nil {
		text := "no shard map yet"
		if n.cfg.Self.BootstrapExpect > 0 {
			text += fmt.Sprintf(": the cluster is founded once %d nodes that were started with --bootstrap-expect %d see each other and etcd answers", n.cfg.Self.BootstrapExpect, n.cfg.Self.BootstrapExpect)
		} else {
			text += ": it comes from other nodes; see --join"
		}
		why := []string{text}
		if err := n.members.JoinError(); err != nil {
			why = append(why, "gossip: "+err.Error())
		}
		return why
	}
	if why := n.lineage.Refusal(); why != nil {
		return []string{why.Error()}
	}
	switch l := n.copies.Loading(); {
	case !l.Begun:
		return []string{"waiting for the nodes to join: they may have the shards of this node"}
	case l.Loads > 0:
		return []string{fmt.Sprintf("%d of %d shards are still being loaded", l.Loads, l.All)}
	case l.Ageless > 0:
		return []string{fmt.Sprintf("the age of %d of %d shards is not known yet: etcd's revision must be read first", l.Ageless, l.All)}
	}
	first := n.clock.First()
	if m := n.copies.Acted(); m != nil && (first.IsZero() || time.Since(first) < owedWait) {
		switch owed := n.placement.Owed(m); {
		case owed > 0 && first.IsZero():
			return []string{fmt.Sprintf("%d shards with too few live replicas move to this node once it has read etcd's revision", owed)}
		case owed > 0:
			return []string{fmt.Sprintf("%d shards with too few live replicas are about to move to this node; it waits for them until %s after it first read etcd's revision", owed, owedWait)}
		}
	}
	if trouble := n.etcdAuth.Trouble(); trouble != "" {
		return []string{trouble}
	}
	return nil
}
