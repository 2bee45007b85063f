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
// knows how old its data may be. A node that is cut from etcd looks healthy to
// gossip; the clock detects it. The revision is read at etcd, or is the one that
// another node has just read: see borrowed.
type clock struct {
	n         *Node
	isolation isolation
	ok        atomic.Bool // etcd was checked and is one we serve
	kick      wait.Bell   // the next look is due now

	mu       sync.Mutex
	revision kv.Revision  // guarded by mu; etcd's, as compared last
	at       time.Time    // guarded by mu; before that was read
	first    time.Time    // guarded by mu; when the caches were first compared; zero: never
	own      time.Time    // guarded by mu; before this node's last read of etcd
	told     time.Time    // guarded by mu; when another node was last told the newest look
	other    replica.Look // guarded by mu; the last one that another node told
	id       uint64       // guarded by mu; etcd's cluster
	forgot   int          // guarded by mu; how often forget was called
	newest   replica.Look // guarded by mu; of any node; zero: none in this lineage
	err      error        // guarded by mu; why the last try failed
}

func newClock(n *Node) *clock {
	return &clock{n: n, isolation: isolation{n: n}, kick: wait.NewBell()}
}

// clockTimeout is how long etcd may take to tell its revision; then it is in trouble.
const clockTimeout = 1500 * time.Millisecond

// run asks until ctx ends. It fails when etcd is one that must not be served.
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

// check looks at etcd's version and identity. It returns only errors that do
// not go away.
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

// note keeps the outcome of a try; etcd's door logs it. It reports whether the
// try failed.
func (c *clock) note(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	return err != nil
}

// look reads etcd's revision and tells the caches.
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
		return // we are stopping
	}
	if errors.Is(err, kv.ErrOtherHistory) {
		_, _, _ = c.n.lineage.Refresh() // at once
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
			h.Source.Scout() // a node that reads etcd is a better source now
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
	// ownEvery is how often a node reads etcd itself at the least, two seconds, with the beat that is
	// next to it: it finds out that etcd does not answer here, and takes part in finding that etcd was
	// restored.
	ownEvery = 2*time.Second - beat.Every/2
	// borrowedFor is how old a look of another node may be. It is up to a heartbeat old
	// when it arrives, and so is the next one, which begins LookEvery later.
	borrowedFor = copies.LookEvery + 2*replica.Heartbeat
	// toldFor is for how long a node that was told of looks counts on being told again.
	toldFor = time.Second
)

// borrowed returns the look of another node that does in place of one of our own: it is
// recent, and proves that all etcd watches of this node are complete. Among nodes that
// exchange looks, the one with the newest look reads etcd.
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

// lendsLocked is borrowed without regard to the caches.
func (c *clock) lendsLocked(now time.Time) (replica.Look, bool) {
	look := c.other
	if now.Sub(c.told) < toldFor { // others count on this node
		switch {
		case !c.newest.At.Equal(c.own):
			look = c.newest
		case c.own.Sub(c.other.At) >= beat.Every/2, rand.N(4) > 0:
			return look, false
		}
		// Otherwise another node has read etcd with the same beat. Each of the two takes its own
		// read for the newest, so one of them must happen to leave the next to the other.
	}
	return look, c.err == nil && now.Sub(c.own) < ownEvery && now.Sub(look.At) < borrowedFor
}

// compare compares the caches with the result of a look. reached is their progress before it, as
// far as known.
func (c *clock) compare(ctx context.Context, look replica.Look, reached map[*copies.Copy]kv.Revision) {
	lineage, revision, at := look.Lineage, look.Revision, look.At
	c.mu.Lock()
	c.revision, c.at = revision, at
	if c.first.IsZero() {
		c.first = time.Now()
	}
	c.mu.Unlock()
	var stuck []kv.Range // ranges of relays here that receive no data
	for _, h := range c.n.copies.All() {
		if at := reached[h]; at > revision && h.Cache.Lineage() == lineage {
			c.n.suspects.report(h, &kv.ContradictionError{Detail: fmt.Sprintf("it has reached revision %d, etcd is at %d", at, revision), Ahead: true})
			continue
		}
		behind := h.Cache.Observe(at, revision)
		_, direct := h.Source.Current()
		still := h.Still(revision)
		// A copy that follows another node does not ask: that node looks at etcd as well, and its
		// progress arrives here too.
		if behind && (direct || still > 0) {
			h.Cache.Demand(revision)
		}
		if still > copies.StuckAfter && h.Ready() && !direct {
			h.Source.Change(replica.ErrStale) // etcd's own watches notice by themselves
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

// heard takes a look of another node, which is as good as one of our own: while
// etcd does not answer here, only it gives the age of the data that others send.
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
	lags := false // a watch of this node at etcd
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

// idleFor reports whether this node has not read etcd for so long.
func (c *clock) idleFor(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.own) >= d
}

// LookNow implements copies.Clock: it has etcd read at once.
func (c *clock) LookNow() { c.kick.Wake() }

// keep keeps the newest look, for followers, and reports whether this
// is it.
func (c *clock) keep(look replica.Look) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	newer := look.Lineage > c.newest.Lineage || look.Lineage == c.newest.Lineage && look.At.After(c.newest.At)
	if newer {
		c.newest = look
	}
	return newer
}

// Looked implements peerapi.Node: another node is told the newest look.
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

// forget drops the revision of another lineage, and has etcd read again: until then the age of the
// data is unknown.
func (c *clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision, c.at, c.newest, c.other = 0, time.Time{}, replica.Look{}, replica.Look{}
	c.forgot++
	c.LookNow()
}

// Last returns etcd's revision, when it was read, and etcd's cluster.
func (c *clock) Last() (kv.Revision, time.Time, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision, c.at, c.id
}

// First returns when etcd's revision was first known here; zero: never so far.
func (c *clock) First() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first
}

// register registers the metrics of how old etcd's revision is here.
func (c *clock) register(m metric.Meter) error {
	in := telemetry.NewInstruments(m)
	age := in.Seconds("shardwatch.etcd.age", "Age of the newest read of etcd's revision, by this node or by another one that tells it. Absent before the first read.")
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
