// Package drain takes a node out of service: when it shuts down, and while an operator
// keeps it drained.
//
// Read [Drainer] first. Run and Drain may be called from any goroutine.
package drain

import (
	"context"
	"log/slog"
	"sync"
	"time"

	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/control/roster"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// Config configures a Drainer. Its functions may be called from any goroutine.
type Config struct {
	Self      shard.NodeID
	Timeout   time.Duration // bounds Drain
	Placement *placement.Placement
	Members   *membership.Membership
	Roster    *roster.Roster
	Server    *server.Server
	// Changed returns a channel that is closed when the map or the members change.
	Changed func() <-chan struct{}
	// Leaving records that the node shuts down, Left reports it.
	Leaving func()
	Left    func() bool
	// Save writes the history of the caches to the disk.
	Save func(context.Context)
	// Released waits until this node has released the copies that a map of this version gives to others.
	Released func(ctx context.Context, version uint64)
	Logger   *slog.Logger
}

// Drainer takes a node out of service.
type Drainer struct{ cfg Config }

// New returns a Drainer.
func New(cfg Config) *Drainer { return &Drainer{cfg: cfg} }

// Drain takes the node out of service: it hands over its vote and its shards, sends
// its watches to other nodes with their positions, and leaves the gossip. It takes
// Timeout at most.
func (d *Drainer) Drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	began := time.Now()
	d.cfg.Logger.Info("draining", "within", d.cfg.Timeout)
	d.cfg.Leaving()
	d.cfg.Members.SetDraining(true)
	d.cfg.Save(ctx)
	// Other nodes must own the shards before the clients move to them. This may take
	// half of the time: a node that returned a moment ago loads a few shards at a
	// time, and this node may have the only complete copy. (A shard with its only
	// copy here needs just PromoteDelay, so that its next owner has loaded it.)
	handOver, stop := context.WithTimeout(ctx, d.cfg.Timeout/2)
	var vote sync.WaitGroup
	vote.Go(func() { d.handOverVote(handOver) })
	d.handOver(handOver)
	vote.Wait()
	stop()
	watches, stop := context.WithDeadline(ctx, began.Add(5*d.cfg.Timeout/6))
	d.cfg.Server.Drain(watches)
	stop()
	d.cfg.Server.Finish(ctx)
	d.cfg.Save(ctx)
	if err := d.cfg.Members.Leave(ctx); err != nil {
		d.cfg.Logger.Warn("leaving the cluster not confirmed by all nodes: they will detect it", "error", err)
	}
	d.cfg.Logger.Info("drained", "took", time.Since(began))
}

// handOverVote waits until another node votes in place of this one: a node that is
// removed with its vote reduces the majority. If two of three voters leave at the same
// time and end before others have both votes, no majority is left.
func (d *Drainer) handOverVote(ctx context.Context) {
	if !d.cfg.Placement.HandOverVote(ctx) {
		d.cfg.Logger.Info("the node keeps its vote while it is away", "voters", d.cfg.Placement.Voters())
	}
}

// handOver waits until no shard of the map names this node, and others read etcd in
// its place. It returns at once if no other node can take over.
func (d *Drainer) handOver(ctx context.Context) {
	for {
		others := d.cfg.Changed() // before the members are read, so that no change is missed
		m, changed := d.cfg.Placement.Watch()
		if m == nil || !d.cfg.Roster.Accompanied() {
			return
		}
		if !d.named(m) {
			d.cfg.Released(ctx, m.Version)
			return
		}
		select {
		case <-changed:
		case <-others:
		case <-ctx.Done():
			d.cfg.Logger.Warn("drain timeout: some shards were not handed over, their replicas take over")
			return
		}
	}
}

func (d *Drainer) named(m *shard.Map) bool {
	for i := range m.Shards {
		for _, r := range m.Shards[i].Replicas {
			if r == d.cfg.Self {
				return true
			}
		}
	}
	return false
}

// While an operator keeps this node drained and it runs, it sends its clients to
// other nodes once those have its shards. It accepts new and returning clients,
// because they may reach no other node, and sends them on again, at growing
// intervals.
const (
	// sendOnLook is the interval at which the node checks whether others have
	// the shards and serve.
	sendOnLook = time.Second
	// sendOnPause is the shortest pause before clients are sent on again, and
	// sendOnLongest the longest.
	sendOnPause   = 2 * time.Second
	sendOnLongest = 10 * time.Minute
)

// Run sends the clients to other nodes while the map marks this node as drained.
func (d *Drainer) Run(ctx context.Context) error {
	for d.marked(ctx, true) {
		drained, undrain := context.WithCancel(ctx)
		var sending sync.WaitGroup
		sending.Go(func() { d.sendOn(drained) })
		d.marked(ctx, false)
		undrain()
		sending.Wait()
	}
	return nil
}

// marked waits until the map marks this node as drained, or no longer does. It
// returns false when ctx ends before.
func (d *Drainer) marked(ctx context.Context, want bool) bool {
	for ctx.Err() == nil {
		m, changed := d.cfg.Placement.Watch()
		if want == (m != nil && m.IsDrained(d.cfg.Self)) {
			return true
		}
		wait.For(ctx, changed)
	}
	return false
}

func (d *Drainer) sendOn(ctx context.Context) {
	for pause := time.Duration(0); ; {
		next := sendOnLook
		if d.replaced(ctx) {
			if watches := d.cfg.Server.SendOn(ctx); watches > 0 {
				d.cfg.Logger.Info("drained by an operator: watches sent to other nodes", "watches", watches)
			}
			pause = min(max(2*pause, sendOnPause), sendOnLongest)
			next = pause
		}
		if !wait.Sleep(ctx, next) {
			return
		}
	}
}

// replaced reports whether other nodes have the shards of this one, and one of
// them serves.
func (d *Drainer) replaced(ctx context.Context) bool {
	m := d.cfg.Placement.Map()
	return m != nil && !d.named(m) && !d.cfg.Left() && d.cfg.Roster.AnyAnswers(ctx, d.cfg.Roster.Heirs(), func(s healthgrpc.HealthCheckResponse_ServingStatus) bool {
		return s == healthgrpc.HealthCheckResponse_SERVING
	})
}
