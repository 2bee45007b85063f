package placement

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Config has the node's identity, its data sources, and the timing of the leader.
// Start from [Defaults].
type Config struct {
	// Name and UUID together are the node's identity in raft. The UUID belongs
	// to the data directory: see [Identity].
	Name shard.NodeID
	UUID string
	// DataDir holds the raft log and the map file.
	DataDir string
	// BootstrapExpect is the number of voters of the cluster: 1, 3 or 5, the same
	// on every node that may vote, of which there may be more. 0: this node never
	// votes.
	BootstrapExpect int
	// Join are the addresses of --join. If there are expect or more, their number
	// is the number of candidates to found a cluster.
	Join []string
	// Address is the raft port as other nodes reach it, host:port.
	Address string
	// Listener is the raft port of a node that may vote. Run closes it.
	Listener net.Listener
	// ServerTLS and ClientTLS protect the raft port; both or neither. ClientTLS
	// is called for each connection; see tlsconf.Peer.
	ServerTLS *tls.Config
	ClientTLS func(raw net.Conn, node string) (net.Conn, *tls.Config)

	// Failed is called with connections to the raft port whose handshake fails; nil:
	// not called.
	Failed func(from net.Addr, err error)

	// Network and Disk replace the network and the data directory in
	// simulations. Listener and DataDir are then unused.
	Network *MemNetwork
	Disk    *MemDisk

	// Spec describes the cluster to found when there is none yet.
	Spec shard.Spec

	// Members returns the members that gossip sees, including this node.
	Members func() []shard.Member
	// MembersChanged receives a value after the members have changed. It may be
	// nil: the members are also checked once a second.
	MembersChanged <-chan struct{}
	// Voting is called repeatedly with whether this node votes. It may be nil.
	Voting func(bool)
	// FoundingFacts returns the ID of the etcd cluster to serve, and the keys at which to cut
	// its key space (see [planner.Cutter]). Only the leader calls it, to found the cluster.
	FoundingFacts func(ctx context.Context) (etcdClusterID uint64, cuts []string, err error)
	// Cuts returns the keys at which to cut the key space now. The leader calls it
	// while there are fewer shards than wanted. It may be nil: no splits.
	Cuts func(ctx context.Context) ([]string, error)
	// Forward sends an encoded command to another node's ApplyEncoded and returns
	// its result. A refusal must come back as an error that wraps
	// [shard.ErrRefused], a [NotLeaderError] as a NotLeaderError; any other error
	// means that the outcome is unknown. It may be nil: no forwarding.
	Forward func(ctx context.Context, leader shard.NodeID, command []byte) (version uint64, err error)

	// Heartbeat and Election are raft's timeouts: how long a follower waits
	// for its leader, and a candidate for votes.
	Heartbeat, Election time.Duration
	// Rules decide when shards move. Settle also delays bootstrapping and founding.
	// Its Planner is not used.
	planner.Rules
	// Reports asks nodes in parallel for their copies, and returns the reports of
	// those that answer in time. The leader asks every few seconds. It may be nil:
	// then all replicas count as warm after PromoteDelay, and load changes nothing.
	Reports func(ctx context.Context, nodes []shard.NodeID) []planner.Report
	// Balance configures how the load of shards changes the map.
	Balance planner.Balance
	// Halve returns a key that cuts a range into two parts with about the same
	// number of keys, "" when there is none. Balance needs it.
	Halve func(ctx context.Context, r kv.Range) (at string, err error)
	// ReplaceVoterAfter is how long a voter may be gone before another node that
	// may vote replaces it; 0: forever. A drained voter hands over its vote at
	// once. Replacement needs Reports.
	ReplaceVoterAfter time.Duration
	// SplitCheck is the interval at which the leader asks for Cuts.
	SplitCheck time.Duration
	// BarrierEvery is the interval at which the leader commits a barrier, and
	// BarrierTimeout how long a write of its log may take before the node gives
	// up: a leader whose disk hangs prevents the election of another leader.
	BarrierEvery, BarrierTimeout time.Duration
	// ProposeTimeout bounds Propose when its context does not.
	ProposeTimeout time.Duration

	Logger *slog.Logger
}

// Defaults returns a Config with the timing for a cluster of machines, and no
// identity.
func Defaults() Config {
	return Config{
		// The leader sends each voter up to ten heartbeats in this time, and each wakes both
		// nodes. Only changes of the map wait for a new leader, and gossip needs 5 s to find
		// that a node is gone.
		Heartbeat: 2 * time.Second, Election: 2 * time.Second,
		Rules: planner.DefaultRules(), Balance: planner.DefaultBalance(),
		ReplaceVoterAfter: 10 * time.Minute,
		SplitCheck:        10 * time.Second,
		// A barrier is an entry in the log, and costs four syncs of each voter's disk.
		BarrierEvery: 5 * time.Second, BarrierTimeout: 5 * time.Second,
		ProposeTimeout: 10 * time.Second,
		Logger:         slog.New(slog.DiscardHandler),
	}
}

// Validate returns every mistake, joined.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("placement: "+format, args...))
		}
	}
	check(c.Name != "", "no node name")
	check(c.UUID != "", "no node UUID")
	check(c.Members != nil, "no source of members")
	check(c.Logger != nil, "no logger")
	switch c.BootstrapExpect {
	case 0, 1, 3, 5:
	default:
		check(false, "--bootstrap-expect is %d; it must be 1, 3 or 5 on voters and 0 on others", c.BootstrapExpect)
	}
	check(c.Disk != nil || c.DataDir != "", "no data directory")
	check((c.ServerTLS == nil) == (c.ClientTLS == nil), "TLS must be set for both directions of the raft port or for neither")
	if c.BootstrapExpect > 0 {
		check(c.Network != nil || c.Listener != nil, "a voter needs a raft listener")
		check(c.Address != "", "a voter needs a raft address")
		check(c.FoundingFacts != nil, "a voter needs a check of etcd")
		if err := c.Spec.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("placement: %w", err))
		}
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"heartbeat", c.Heartbeat},
		{"election", c.Election},
		{"split check", c.SplitCheck},
		{"barrier interval", c.BarrierEvery},
		{"barrier timeout", c.BarrierTimeout},
		{"propose timeout", c.ProposeTimeout},
	} {
		check(d.d >= 5*time.Millisecond, "%s (%s) must be at least 5ms", d.name, d.d)
	}
	check(c.ReplaceVoterAfter >= 0, "the time after which a voter is replaced (%s) must not be negative", c.ReplaceVoterAfter)
	check(c.Reports == nil || c.Halve != nil || !c.Balance.Split, "no way to cut a shard that has too much load")
	errs = append(errs, c.Rules.Validate(), c.Balance.Validate())
	check(c.Election >= c.Heartbeat, "election (%s) must not be shorter than heartbeat (%s)", c.Election, c.Heartbeat)
	check(c.BarrierTimeout >= c.BarrierEvery, "barrier timeout (%s) must not be shorter than barrier interval (%s)", c.BarrierTimeout, c.BarrierEvery)
	return errors.Join(errs...)
}
