package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
)

// clock asks etcd once a second how far it is, and tells every cache: so each
// knows how old its data may be. A node that is cut from etcd looks healthy to
// gossip; this is what tells.
type clock struct {
	n  *Node
	ok atomic.Bool // etcd was checked and is one we serve

	mu       sync.Mutex
	revision kv.Revision // guarded by mu; etcd's, as read last
	at       time.Time   // guarded by mu; before that read
	id       uint64      // guarded by mu; etcd's cluster
	err      error       // guarded by mu; why the last try failed
}

func newClock(n *Node) *clock { return &clock{n: n} }

// Rhythm of the clock.
const (
	clockEvery   = time.Second
	clockTimeout = 2 * time.Second
)

// run asks until ctx ends. It fails when etcd is one that must not be served.
func (c *clock) run(ctx context.Context) error {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		if !c.ok.Load() {
			if err := c.check(ctx); err != nil {
				return err
			}
		}
		if err := c.fits(); err != nil {
			return err
		}
		if c.ok.Load() {
			c.look(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// checked reports whether etcd may be read from.
func (c *clock) checked() bool { return c.ok.Load() && c.fits() == nil }

// fits fails when etcd is not the one that the cluster serves. A node may
// learn what the cluster serves long after it has seen etcd.
func (c *clock) fits() error {
	_, _, id := c.last()
	if m := c.n.placement.Map(); m != nil && id != 0 && m.EtcdClusterID != id {
		return fmt.Errorf("--etcd leads to etcd cluster %x, but this cache cluster serves etcd cluster %x: check --etcd, or use an empty --data-dir and --join for another cluster", id, m.EtcdClusterID)
	}
	return nil
}

// check looks at etcd's version and identity. It returns only errors that do
// not go away.
func (c *clock) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := c.n.cfg.Etcd.Check(ctx)
	var version *etcd.VersionError
	var mixed *etcd.ClusterError
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
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	at := time.Now()
	revision, err := c.n.cfg.Etcd.Revision(ctx)
	if ctx.Err() != nil && err != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return // we are stopping
	}
	if c.note(err) {
		return
	}
	c.mu.Lock()
	c.revision, c.at = revision, at
	c.mu.Unlock()
	for _, h := range c.n.store.all() {
		h.cache.Observe(at, revision)
		if _, direct := h.source.Current(); h.ready() && h.lag.stuck(time.Now(), h.cache.Progress(), revision) && !direct {
			h.source.Change(replica.ErrStale) // etcd's own watches notice by themselves
		}
	}
}

// trouble returns why etcd does not answer, or nil.
func (c *clock) trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// last returns etcd's revision, when it was read, and etcd's cluster.
func (c *clock) last() (kv.Revision, time.Time, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision, c.at, c.id
}
