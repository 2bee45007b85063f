package node

import (
	"context"
	"fmt"
	"path/filepath"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/control/drain"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/control/mapfollow"
	"github.com/shardwatch/shardwatch/internal/control/operator"
	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/control/roster"
	"github.com/shardwatch/shardwatch/internal/data/copies"
	"github.com/shardwatch/shardwatch/internal/data/lineage"
	"github.com/shardwatch/shardwatch/internal/data/peers"
	"github.com/shardwatch/shardwatch/internal/data/verify"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/edge/etcdwatch"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/ops/delivery"
	"github.com/shardwatch/shardwatch/internal/ops/revtrace"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
)

func identify(n *Node) error {
	if s := n.cfg.Simulation; s != nil {
		n.cfg.Self.UUID = s.Disk.Identity()
		return nil
	}
	id, err := placement.Identity(n.cfg.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir %s: %w", n.cfg.DataDir, err)
	}
	n.cfg.Self.UUID = id
	return nil
}

func buildMembership(n *Node) error {
	c := membership.Defaults()
	c.Self, c.Join, c.SecretKeys, c.Logger = n.cfg.Self, n.cfg.Join, n.cfg.GossipKeys, n.log
	c.BindAddr, c.Streams = n.cfg.GossipBind, n.limits.gossip
	c.AdvertiseAddr = n.cfg.Self.GossipAddress
	if s := n.cfg.Simulation; s != nil {
		c.Transport = s.Gossip
	}
	if n.cfg.TuneMembership != nil {
		n.cfg.TuneMembership(&c)
	}
	var err error
	n.members, err = membership.New(c)
	return err
}

// buildCluster builds the parts that track the other nodes and the shard map.
func buildCluster(n *Node) error {
	n.clock = newClock(n)
	if err := buildPlacement(n); err != nil {
		return err
	}
	n.roster = roster.New(roster.Config{
		Self: n.self, Members: n.members.Members, Map: n.placement.Map, SignOfLife: n.cfg.SignOfLife,
		Reach: func(node shard.NodeID) (grpc.ClientConnInterface, error) { return n.peers.Reachable(node) },
	})
	pc := peers.Config{Member: n.roster.Member, Cluster: n.cluster, Heard: func(look replica.Look) { n.clock.heard(look) }, TLS: n.cfg.PeerClientTLS}
	if s := n.cfg.Simulation; s != nil {
		pc.Dial = s.Dial
	}
	n.peers = peers.New(pc)
	n.mapFollower = mapfollow.New(mapfollow.Config{
		Self: n.self, Placement: n.placement, Members: n.members, Changed: n.changed.Wait, Conn: n.peers.Client, Logger: n.log,
	})
	return nil
}

func buildPlacement(n *Node) error {
	c := placement.Defaults()
	c.Name, c.UUID, c.DataDir = n.self, n.cfg.Self.UUID, n.cfg.DataDir
	c.BootstrapExpect, c.Join, c.Address = n.cfg.Self.BootstrapExpect, n.cfg.Join, n.cfg.Self.RaftAddress
	c.Listener, c.ServerTLS, c.ClientTLS = n.cfg.Listeners.Raft, n.cfg.PeerServerTLS, n.cfg.PeerClientTLS
	c.Spec, c.Logger, c.Failed = n.cfg.Spec, n.log, n.limits.raft.Failed
	c.Members = n.members.Members
	cuts := &cutter{etcd: n.cfg.Etcd, clock: n.clock, spec: n.cfg.Spec, now: func() *shard.Map { return n.placement.Map() }}
	c.FoundingFacts, c.Cuts, c.Forward = cuts.foundingFacts, cuts.cuts, n.forward
	c.Voting = n.members.SetVoter
	c.Reports = func(ctx context.Context, nodes []shard.NodeID) []planner.Report {
		return n.operator.Reports(ctx, nodes)
	}
	c.Halve = func(ctx context.Context, r kv.Range) (string, error) { return n.operator.Halve(ctx, r) }
	c.Balance, c.MaxFills, c.MaxNodeFills = n.cfg.Balance, n.cfg.MaxMoves, n.cfg.MaxNodeMoves
	c.ReplaceVoterAfter = n.cfg.ReplaceVoterAfter
	if s := n.cfg.Simulation; s != nil {
		c.Network, c.Disk = s.Network, s.Disk
	}
	if n.cfg.TunePlacement != nil {
		n.cfg.TunePlacement(&c)
	}
	var err error
	n.placement, err = placement.New(c)
	return err
}

// buildLineage builds the parts that decide which history of etcd is served, and
// which reads of etcd are permitted.
func buildLineage(n *Node) error {
	n.permits = newPermits(n)
	n.history = newHistorian(n)
	if e, ok := n.cfg.Etcd.(interface{ SetPermits(p etcd.Permits) }); ok {
		e.SetPermits(n.permits)
	}
	lc := lineage.Config{
		Self: n.self, Etcd: n.cfg.Etcd, Placement: n.placement, Members: n.members.Members, StatusOf: n.StatusOf, Forget: n.clock.forget,
		Testify: func(ctx context.Context, now kv.Revision) (int, bool) { return n.suspects.testify(ctx, now) }, Logger: n.log,
	}
	if n.cfg.Simulation == nil {
		lc.File = filepath.Join(n.cfg.DataDir, "etcdmark")
	}
	n.lineage = lineage.New(lc)
	if m := n.placement.Map(); m != nil {
		n.lineage.Enter(m) // before the first read of etcd
	}
	return nil
}

// buildDataPath builds the caches of the node's shards, their verifier, and the router,
// which reads and watches through the caches.
func buildDataPath(n *Node) (err error) {
	cfg := &n.cfg
	n.trace, n.budget = new(revtrace.Trace), budget.New(cfg.MaxClientBytes)
	n.budget.BoundWatches(cfg.MaxWatchBytes)
	if n.delivery, err = delivery.New(delivery.Config{
		Self: n.self, Trace: n.trace, Cluster: n.placement.ClusterID, Leaving: n.roster.Leaving, Spans: cfg.Spans, Meter: cfg.Meter, Logger: n.log,
	}); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	n.copies = copies.New(copies.Config{
		Self: n.self, Cache: cfg.Cache, RelayIdle: cfg.RelayIdle, HandOver: cfg.HandOver, Join: len(cfg.Join) > 0, Etcd: cfg.Etcd, Placement: n.placement,
		Lineage: n.lineage, Clock: n.clock, History: n.history, Accompanied: n.roster.Accompanied, Changed: n.changed.Wait, Link: n.peers.Link,
		Known: func(node shard.NodeID) bool { _, known := n.roster.Member(node); return known }, Trace: n.trace, Noticed: n.delivery.Noticed,
		Contradicted: func(c *copies.Copy, found *kv.ContradictionError) { n.suspects.report(c, found) },
		Kick:         func() { n.router.Kick() }, Logger: n.log,
	})
	n.verifier = verify.New(verify.Config{
		Self: n.self, Etcd: cfg.Etcd, Interval: cfg.VerifyInterval, EtcdInterval: cfg.VerifyEtcdInterval,
		Map: n.placement.Map, Members: n.members.Members, Serving: n.lineage.Serving, Replica: n.copies.Replica,
		Renew: n.copies.Renew, Renewing: n.copies.Renewing, Conn: n.peers.Client, Logger: n.log,
	})
	n.suspects = newSuspects(n)
	n.router = router.New(router.Config{
		Shards: shards{n.copies, n}, Clock: cfg.Etcd, Self: n.self, MaxStaleness: cfg.MaxStaleness, Budget: n.budget, Logger: n.log,
	})
	return nil
}

// buildAPIs builds etcd's API and the shard map changes of operators.
func buildAPIs(n *Node) (err error) {
	n.operator = operator.New(operator.Config{
		Self: n.self, Placement: n.placement, Members: n.members, Read: n.router.Read,
		Ending: func(served []kv.Range) mapchange.Ending { return n.server.Ending(served) },
		Status: n.Status, StatusOf: n.StatusOf, Conn: n.peers.Client, FetchMap: n.mapFollower.Fetch,
	})
	n.openQueue = etcdwatch.NewOpenQueue()
	ac := n.cfg.EtcdAPI
	ac.Router, ac.Etcd, ac.Self, ac.Members, ac.Logger = n.router, n.cfg.Etcd, n.self, n.etcdMembers, n.log
	ac.Access, ac.Audit, ac.Budget, ac.OpenQueue, ac.Turns = n.authorizer, n.audit, n.budget, n.openQueue, n.turns
	ac.MaxStaleness, ac.Guard, ac.Learn = n.cfg.MaxStaleness, n.etcdAuth, n.etcdAuth.Learn
	n.etcdAPI, err = etcdapi.New(ac)
	return err
}

// buildServer builds the ports of clients and nodes, and the drainer.
func buildServer(n *Node) (err error) {
	sc := n.cfg.Server
	sc.Node, sc.Router, sc.Etcd, sc.Guard, sc.Self, sc.Logger = serverView{n, n.copies, n.clock}, n.router, n.etcdAPI, n.etcdAuth, n.self, n.log
	sc.Permits, sc.Lineage, sc.Operator, sc.Trace, sc.Verifier = n.permits, n.lineage, n.operator, n.trace, n.verifier
	sc.Happened = n.delivery.Happened()
	sc.Access, sc.Audit, sc.Budget, sc.OpenQueue, sc.Turns = n.authorizer, n.audit, n.budget, n.openQueue, n.turns
	sc.ClientTLS, sc.PeerTLS, sc.PeerSpeaks = n.cfg.ClientTLS, n.cfg.PeerServerTLS, n.cfg.PeerSpeaks
	sc.ClientFailed, sc.PeerFailed = n.limits.clients.Failed, n.limits.peers.Failed
	if n.server, err = server.New(sc); err != nil {
		return err
	}
	n.drainer = drain.New(drain.Config{
		Self: n.self, Timeout: n.cfg.DrainTimeout, Placement: n.placement, Members: n.members, Roster: n.roster, Server: n.server,
		Changed: n.changed.Wait, Leaving: n.leaves, Left: n.drained.Load, Save: n.history.last, Released: n.copies.Left, Logger: n.log,
	})
	return nil
}
