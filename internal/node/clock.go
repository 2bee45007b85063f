package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/data/copies"
	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/ops/telemetry"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// clock compares every cache twice a second with etcd's revision, so that each
// cache has the age of its data. A node that is cut off from etcd looks healthy
// to gossip; the clock detects it. The revision is read from etcd, or comes from
// a recent read of another node: see borrowed.
type clock struct {
	n         *Node
	isolation isolation
	ok        atomic.Bool // etcd was checked and may be served
	kick      wait.Bell   // the next look is due now

	mu       sync.Mutex
	revision kv.Revision  // guarded by mu; etcd's, as of the last comparison
	at       time.Time    // guarded by mu; time before the read of revision
	first    time.Time    // guarded by mu; when the caches were first compared; zero: never
	own      time.Time    // guarded by mu; before this node's last read of etcd
	told     time.Time    // guarded by mu; when another node last received the newest look
	other    replica.Look // guarded by mu; the newest look received from another node
	id       uint64       // guarded by mu; ID of etcd's cluster
	forgot   int          // guarded by mu; how often forget was called
	newest   replica.Look // guarded by mu; of any node; zero: no look in this lineage
	err      error        // guarded by mu; why the last attempt failed
}

func newClock(n *Node) *clock {
	return &clock{n: n, isolation: isolation{n: n}, kick: wait.NewBell()}
}

// clockTimeout is how long a read of etcd's revision may take.
const clockTimeout = 1500 * time.Millisecond

// run reads until ctx ends. It fails when etcd is one that must not be served.
func (c *clock) run(ctx context.Context) error {
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		if !c.ok.Load() {
			if err := c.check(ctx); err != nil {
				return err
			}
		}
		if err := c.n.lineage.WrongCluster(); err != nil {
			return err
		}
		if look, ok := c.borrowed(time.Now()); ok && c.ok.Load() {
			c.compare(ctx, look, nil)
		} else if c.ok.Load() {
			c.look(ctx)
		}
		tick.Reset(beat.Until(copies.LookEvery))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-c.kick:
		}
	}
}

// Checked reports whether etcd may be read from.
func (c *clock) Checked() bool { return c.ok.Load() && c.n.lineage.Refusal() == nil }

// check reads etcd's version and identity. It returns only permanent errors.
func (c *clock) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := c.n.cfg.Etcd.Check(ctx)
	var version *etcdconn.VersionError
	var mixed *etcdconn.ClusterError
	if errors.As(err, &version) || errors.As(err, &mixed) {
		return err
	}
	var id uint64
	if err == nil {
		id, err = c.n.cfg.Etcd.ClusterID(ctx)
	}
	if c.note(err) {
		return nil
	}
	c.mu.Lock()
	c.id = id
	c.mu.Unlock()
	c.ok.Store(true)
	return nil
}

// note records the outcome of an attempt, which etcd's client logs. It reports
// whether the attempt failed.
func (c *clock) note(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	return err != nil
}

// look reads etcd's revision and compares the caches with it.
func (c *clock) look(ctx context.Context) {
	looking, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	reached := make(map[*copies.Copy]kv.Revision)
	for _, h := range c.n.copies.All() {
		reached[h] = h.Cache.Progress()
	}
	c.mu.Lock()
	forgot := c.forgot
	c.mu.Unlock()
	before, _ := c.n.cfg.Etcd.Known()
	at := time.Now()
	c.mu.Lock()
	c.own = at
	c.mu.Unlock()
	now, err := c.n.cfg.Etcd.Look(looking)
	if err != nil && ctx.Err() != nil {
		return // the node stops
	}
	if errors.Is(err, kv.ErrOtherHistory) {
		_, _, _ = c.n.lineage.Refresh() // without delay
	}
	failed := c.note(err)
	lineage, _ := c.n.cfg.Etcd.Known()
	c.mu.Lock()
	moved := forgot != c.forgot || lineage != before
	if !moved && now.Cluster != 0 { // even if it belongs to another history
		c.revision, c.at, c.id = now.Revision, at, now.Cluster
	}
	c.mu.Unlock()
	if failed {
		for _, h := range c.n.copies.All() {
			h.Source.Scout() // another node that reads etcd is a better source now
		}
		if !errors.Is(err, kv.ErrOtherHistory) {
			c.isolation.stalled(ctx, []kv.Range{{}})
		}
		return
	}
	if moved {
		c.isolation.updated(ctx)
		return
	}
	c.n.lineage.Read()
	look := replica.Look{Lineage: lineage, Revision: now.Revision, At: at}
	c.keep(look)
	c.compare(ctx, look, reached)
}

const (
	// ownEvery is the greatest interval between a node's own reads of etcd: two seconds, aligned with
	// beats. The reads detect that etcd does not answer this node, and help to detect that etcd was
	// restored.
	ownEvery = 2*time.Second - beat.Every/2
	// borrowedFor is the greatest age of a usable look of another node. A look is up to a
	// heartbeat old when it arrives, and so is the next one, which begins LookEvery later.
	borrowedFor = copies.LookEvery + 2*replica.Heartbeat
	// toldFor is how long a node that received a look relies on receiving the next.
	toldFor = time.Second
)

// borrowed returns the look of another node if it can replace one of our own: it is
// recent, and proves that all etcd watches of this node are complete. Among nodes that
// exchange looks, the node with the newest look reads etcd.
func (c *clock) borrowed(now time.Time) (replica.Look, bool) {
	lineage, _ := c.n.cfg.Etcd.Known()
	c.mu.Lock()
	look, known := c.lendsLocked(now)
	c.mu.Unlock()
	if !known || look.Lineage != lineage {
		return replica.Look{}, false
	}
	for _, h := range c.n.copies.All() {
		if _, direct := h.Source.Current(); direct && h.Cache.Progress() < look.Revision {
			return replica.Look{}, false
		}
	}
	return look, true
}

// lendsLocked is borrowed without the check of the caches.
func (c *clock) lendsLocked(now time.Time) (replica.Look, bool) {
	look := c.other
	if now.Sub(c.told) < toldFor { // other nodes rely on this node
		switch {
		case !c.newest.At.Equal(c.own):
			look = c.newest
		case c.own.Sub(c.other.At) >= beat.Every/2, rand.N(4) > 0:
			return look, false
		}
		// Otherwise another node has read etcd at the same beat. Each of the two considers its own
		// read the newest, so a random choice must make one of them leave the next read to the other.
	}
	return look, c.err == nil && now.Sub(c.own) < ownEvery && now.Sub(look.At) < borrowedFor
}

// compare compares the caches with the result of a look. reached is their progress before the
// look, if known.
func (c *clock) compare(ctx context.Context, look replica.Look, reached map[*copies.Copy]kv.Revision) {
	lineage, revision, at := look.Lineage, look.Revision, look.At
	c.mu.Lock()
	c.revision, c.at = revision, at
	if c.first.IsZero() {
		c.first = time.Now()
	}
	c.mu.Unlock()
	var stuck []kv.Range // ranges of this node's relays that receive no data
	for _, h := range c.n.copies.All() {
		if at := reached[h]; at > revision && h.Cache.Lineage() == lineage {
			c.n.suspects.report(h, &kv.ContradictionError{Detail: fmt.Sprintf("it has reached revision %d, etcd is at %d", at, revision), Ahead: true})
			continue
		}
		behind := h.Cache.Observe(at, revision)
		_, direct := h.Source.Current()
		still := h.Still(revision)
		// A copy that follows another node demands nothing: that node reads etcd as well, and its
		// progress arrives here too.
		if behind && (direct || still > 0) {
			h.Cache.Demand(revision)
		}
		if still > copies.StuckAfter && h.Ready() && !direct {
			h.Source.Change(replica.ErrStale) // watches at etcd detect this themselves
			if c.n.copies.InUse(h) {
				stuck = append(stuck, h.Cache.Range())
			}
		}
	}
	if len(stuck) > 0 {
		c.isolation.stalled(ctx, stuck)
	} else {
		c.isolation.updated(ctx)
	}
}

// heard handles a look of another node, which is equivalent to one of our own: while etcd
// does not answer this node, only such looks give the age of the data that others send.
func (c *clock) heard(look replica.Look) {
	if lineage, _ := c.n.cfg.Etcd.Known(); look.Lineage != lineage {
		return
	}
	c.mu.Lock()
	if look.Lineage != c.other.Lineage || look.At.After(c.other.At) {
		c.other = look
	}
	c.mu.Unlock()
	if !c.keep(look) {
		return
	}
	lags := false // a watch of this node at etcd lags
	for _, h := range c.n.copies.All() {
		if h.Cache.Lineage() != look.Lineage || !h.Cache.Observe(look.At, look.Revision) {
			continue
		}
		if _, direct := h.Source.Current(); direct {
			h.Cache.Demand(look.Revision)
			lags = true
		}
	}
	if lags && c.idleFor(copies.LookEvery) {
		c.LookNow()
	}
}

// idleFor reports whether this node has not read etcd for d.
func (c *clock) idleFor(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.own) >= d
}

// LookNow implements copies.Clock: it triggers a read of etcd.
func (c *clock) LookNow() { c.kick.Wake() }

// keep stores a look for followers if it is the newest, and reports whether it
// is.
func (c *clock) keep(look replica.Look) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	newer := look.Lineage > c.newest.Lineage || look.Lineage == c.newest.Lineage && look.At.After(c.newest.At)
	if newer {
		c.newest = look
	}
	return newer
}

// Looked implements peerapi.Node: it returns the newest look, for another node.
func (c *clock) Looked() (replica.Look, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = time.Now()
	return c.newest, !c.newest.At.IsZero()
}

// Trouble returns why etcd does not answer, or nil.
func (c *clock) Trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// forget drops the revision of another lineage, and triggers a read of etcd: until then the age of
// the data is unknown.
func (c *clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision, c.at, c.newest, c.other = 0, time.Time{}, replica.Look{}, replica.Look{}
	c.forgot++
	c.LookNow()
}

// Last returns etcd's revision, the time of its read, and the ID of etcd's cluster.
func (c *clock) Last() (kv.Revision, time.Time, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision, c.at, c.id
}

// First returns when this node first knew etcd's revision; zero: never so far.
func (c *clock) First() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// register registers the metrics of the age of etcd's revision.
func (c *clock) register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	age := in.Seconds("shardwatch.etcd.age", "Age of the newest read of etcd's revision, by this node or as reported by another. Absent before the first read.")
	revision := in.Gauge("shardwatch.etcd.revision", "{revision}", "etcd's revision at the last read.")
	failing := in.Gauge("shardwatch.etcd.failing", "{bool}", "1 while this node cannot read etcd's revision.")
	return in.Observe(func(o metric.Observer) {
		last, at, _ := c.Last()
		o.ObserveInt64(revision, int64(last))
		if !at.IsZero() {
			o.ObserveFloat64(age, time.Since(at).Seconds())
		}
		o.ObserveInt64(failing, telemetry.Bool(c.Trouble() != nil))
	})
}
