package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// permits are the cluster's permits for large reads of etcd, MaxEtcdLists of
// them. The live member whose name comes first grants them: a rule that every
// node can follow, whether it votes or not and whether raft has a leader or
// not. While the members' views differ, two nodes may grant, and at most twice
// as many permits are out, which does no harm.
//
// A node that cannot reach the granting node continues under its own limit,
// which is the same number: a shard that is not loaded is worse than an etcd
// that is slow for a while.
type permits struct {
	n      *Node
	own    etcd.LocalPermits // acquired before the cluster's permit; also bounds this node if there is none
	grants *grants           // the permits that this node grants

	waiting     atomic.Int64
	granted     atomic.Int64
	unavailable atomic.Int64 // times that no granting node could be reached
	waited      atomic.Int64 // nanoseconds
}

func newPermits(n *Node) *permits {
	most := n.cfg.MaxEtcdLists
	return &permits{n: n, own: etcd.NewLocalPermits(most), grants: newGrants(most)}
}

var (
	errNoGrantor = errors.New("the node that grants permits does not answer")
	errMoved     = errors.New("another node grants permits now")
)

// Acquire implements etcd.Permits.
func (p *permits) Acquire(ctx context.Context, purpose string) (release func(), err error) {
	p.waiting.Add(1)
	began := time.Now()
	defer func() {
		p.waiting.Add(-1)
		p.waited.Add(int64(time.Since(began)))
	}()
	back, err := p.own.Acquire(ctx, purpose)
	if err != nil {
		return nil, err
	}
	for {
		giveBack, err := p.fromGrantor(ctx, purpose)
		switch {
		case ctx.Err() != nil:
			back()
			return nil, context.Cause(ctx)
		case errors.Is(err, errMoved):
			continue
		case err != nil:
			p.unavailable.Add(1)
			p.n.log.Info("large read of etcd begun without a permit of the cluster", "purpose", purpose, "error", err)
			return back, nil
		}
		p.granted.Add(1)
		return func() { giveBack(); back() }, nil
	}
}

// fromGrantor asks the granting node for a permit. It fails with errMoved when
// another node becomes the granting node.
func (p *permits) fromGrantor(ctx context.Context, purpose string) (release func(), err error) {
	grantor := p.grantor()
	asking, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop(nil)
	watching.Go(func() { p.watch(asking, grantor, stop) })
	if grantor == p.n.self {
		release, err = p.grants.acquire(asking, grantor)
	} else {
		release, err = p.ask(asking, grantor, purpose)
	}
	if cause := context.Cause(asking); err != nil && cause != nil {
		err = cause
	}
	return release, err
}

// watch ends the request when another node becomes the granting node.
func (p *permits) watch(ctx context.Context, grantor shard.NodeID, leave context.CancelCauseFunc) {
	for {
		changed := p.n.changed.Wait()
		if p.grantor() != grantor {
			leave(errMoved)
			return
		}
		if !wait.For(ctx, changed) {
			return
		}
	}
}

// grantor returns the granting node.
func (p *permits) grantor() shard.NodeID {
	first := p.n.self
	for _, m := range p.n.members.Members() {
		if m.State == shard.Alive && !m.Draining && m.Name < first {
			first = m.Name
		}
	}
	return first
}

// ask asks another node. The call stays open until release.
func (p *permits) ask(ctx context.Context, grantor shard.NodeID, purpose string) (release func(), err error) {
	conn, err := p.n.peers.Conn(grantor)
	if err != nil {
		return nil, err
	}
	call, end := context.WithCancelCause(context.WithoutCancel(ctx))
	giveUp := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	failed := func(err error) (func(), error) {
		if cause := context.Cause(call); cause != nil {
			err = cause
		}
		giveUp()
		end(nil)
		return nil, err
	}
	silence := time.AfterFunc(p.n.cfg.PermitTimeout, func() { end(errNoGrantor) })
	defer silence.Stop()
	stream, err := peerv1.NewPeerServiceClient(conn).Permit(call, &peerv1.PermitRequest{Node: string(p.n.self), Purpose: purpose})
	if err != nil {
		return failed(wire.Error(err))
	}
	if _, err := stream.Header(); err != nil {
		return failed(wire.Error(err))
	}
	silence.Stop()
	if _, err := stream.Recv(); err != nil {
		return failed(wire.Error(err))
	}
	if !giveUp() { // ctx ended before
		return failed(context.Cause(ctx))
	}
	return func() { end(nil) }, nil
}

// Grant implements server.Permits.
func (p *permits) Grant(ctx context.Context, node shard.NodeID, purpose string) (release func(), err error) {
	p.n.log.Log(ctx, slog.LevelDebug, "a node requests a permit for a large read of etcd", "peer", string(node), "purpose", purpose)
	return p.grants.acquire(ctx, node)
}

// grants are the permits given to nodes. The node with the fewest permits is
// next, and among equals the first request.
type grants struct {
	most int

	mu      sync.Mutex
	out     map[shard.NodeID]int // guarded by mu
	total   int                  // guarded by mu
	waiting []*asker             // guarded by mu
}

// asker is the request of a node for a permit.
type asker struct {
	node    shard.NodeID
	granted chan struct{} // closed when the permit is granted
}

func newGrants(most int) *grants { return &grants{most: most, out: make(map[shard.NodeID]int)} }

// acquire waits for a permit. It fails only when ctx ends.
func (g *grants) acquire(ctx context.Context, node shard.NodeID) (release func(), err error) {
	a := &asker{node: node, granted: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, a)
	g.grantLocked()
	g.mu.Unlock()
	select {
	case <-a.granted:
		return sync.OnceFunc(func() { g.giveBack(a) }), nil
	case <-ctx.Done():
		g.giveBack(a)
		return nil, context.Cause(ctx)
	}
}

// giveBack removes a, whether it waits or has its permit.
func (g *grants) giveBack(a *asker) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, a); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		return
	}
	g.total--
	if g.out[a.node]--; g.out[a.node] == 0 {
		delete(g.out, a.node)
	}
	g.grantLocked()
}

func (g *grants) grantLocked() {
	for g.total < g.most && len(g.waiting) > 0 {
		next := 0
		for i, a := range g.waiting {
			if g.out[a.node] < g.out[g.waiting[next].node] {
				next = i
			}
		}
		a := g.waiting[next]
		g.waiting = slices.Delete(g.waiting, next, next+1)
		g.total++
		g.out[a.node]++
		close(a.granted)
	}
}

// count returns the numbers of granted permits and of waiting requests.
func (g *grants) count() (out, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total, len(g.waiting)
}

// register registers the metrics of permits.
func (p *permits) register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	gauge, counter, total := in.Gauge, in.Counter, in.TotalSeconds
	var (
		permits      = gauge("shardwatch.etcd.permits", "{permit}", "Permits for lists and long catch-ups at etcd that this node has granted. One node of the cluster grants them.")
		permitsAsked = gauge("shardwatch.etcd.permits_asked", "{permit}", "Requests for permits waiting at this node.")
		permitWaits  = gauge("shardwatch.etcd.permit_waits", "{permit}", "Lists, leaps and long catch-ups of this node that wait for a permit.")
		permitWait   = total("shardwatch.etcd.permit_wait", "Total time that lists, leaps and long catch-ups of this node have waited for a permit.")
		granted      = counter("shardwatch.etcd.permits_granted", "{permit}", "Permits granted to this node.")
		unavailable  = counter("shardwatch.etcd.permits_missed", "{permit}", "Times that this node continued without a permit of the cluster because it reached no node that grants them.")
	)
	return in.Observe(func(o metric.Observer) {
		out, asked := p.grants.count()
		o.ObserveInt64(permits, int64(out))
		o.ObserveInt64(permitsAsked, int64(asked))
		o.ObserveInt64(permitWaits, p.waiting.Load())
		o.ObserveFloat64(permitWait, time.Duration(p.waited.Load()).Seconds())
		o.ObserveInt64(granted, p.granted.Load())
		o.ObserveInt64(unavailable, p.unavailable.Load())
	})
}
