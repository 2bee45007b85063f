package sim

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// truth is etcd's history in the words of the checkers.
type truth struct {
	mu      sync.Mutex // serialises its updates
	history *check.History
	at      []time.Time // of each revision, from 2 on; guarded by mu
}

// History returns etcd's history so far. It may be called from any goroutine.
func (c *Cluster) History() *check.History {
	c.truth.mu.Lock()
	defer c.truth.mu.Unlock()
	c.learnLocked()
	return c.truth.history
}

func (c *Cluster) learnLocked() {
	for _, b := range c.Etcd.HistoryAfter(kv.Revision(1 + len(c.truth.at))) {
		out := check.Batch{Revision: b.Revision}
		for _, e := range b.Events {
			out.Events = append(out.Events, check.EventOf(e))
		}
		if err := c.truth.history.Append(out); err != nil {
			c.t.Errorf("etcd's own history: %v", err)
			return
		}
		c.truth.at = append(c.truth.at, b.Received)
	}
}

// RevisionAt returns the revision etcd had at a time. It may be called from any
// goroutine.
func (c *Cluster) RevisionAt(when time.Time) kv.Revision {
	c.truth.mu.Lock()
	defer c.truth.mu.Unlock()
	c.learnLocked()
	return kv.Revision(1 + sort.Search(len(c.truth.at), func(i int) bool { return c.truth.at[i].After(when) }))
}

// Ended returns the first watch that has ended, and why; "" when none has ended.
func (c *Cluster) Ended() string {
	for _, w := range c.watchers {
		if err := w.Err(); err != nil {
			return fmt.Sprintf("%s ended: %v", w.watch.Name, err)
		}
	}
	return ""
}

// Behind returns the first watcher that lacks an event and its position; ""
// when all have every event.
func (c *Cluster) Behind() string {
	h := c.History()
	head := c.Etcd.Revision()
	for _, w := range c.watchers {
		if at := max(w.Reached(), w.watch.Start-1); at < head && (at <= 0 || len(h.Touching(w.watch.Range, at, head)) > 0) {
			return fmt.Sprintf("%s is at revision %d of %d", w.watch.Name, at, head)
		}
	}
	return ""
}

// Settle waits, for at most d, until every watcher has everything.
func (c *Cluster) Settle(d time.Duration) {
	c.t.Helper()
	var why string
	for deadline := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
		if why = c.Ended(); why != "" {
			c.t.Error(why)
			return
		}
		if why = c.Behind(); why == "" {
			return
		}
		if time.Now().After(deadline) {
			c.t.Errorf("not settled within %v: %s", d, why)
			return
		}
	}
}

// Check waits until all watchers have everything, and judges every watcher by
// every promise, and the state that each running node serves.
func (c *Cluster) Check() {
	c.t.Helper()
	c.Settle(30 * time.Second)
	c.CheckWatchers()
	c.CheckStates()
}

// CheckWatchers judges every watcher by every promise, as far as it has come.
func (c *Cluster) CheckWatchers() {
	c.t.Helper()
	h := c.History()
	for _, w := range c.watchers {
		seen := w.Seen()
		if w.Err() == nil {
			seen.Until = w.Reached()
		}
		const most = 5
		for i, v := range check.Watches(h, seen) {
			if i == most {
				c.t.Errorf("… and more of %s", w.watch.Name)
				break
			}
			c.t.Error(v)
		}
	}
}

// CheckStates compares the state at each running node, read linearizably and from memory only,
// with etcd.
func (c *Cluster) CheckStates() {
	c.t.Helper()
	h := c.History()
	head := c.Etcd.Revision()
	for _, name := range c.Running() {
		for _, ask := range []Ask{{Linearizable: true}, {MaxStaleness: 5 * time.Second}} {
			r, err := c.listSoon(name, ask)
			if err != nil {
				c.t.Errorf("list everything at %s (%+v): %v", name, ask, err)
				continue
			}
			if ask.Linearizable {
				r.NotBefore = head
			}
			for _, v := range r.Check(h) {
				c.t.Error(v)
			}
		}
	}
}

// listSoon lists everything at a node. It retries, because a node that was cut off
// from the others may be unavailable for a while.
func (c *Cluster) listSoon(name string, ask Ask) (r check.Read, err error) {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		r, err = c.List(context.Background(), name, kv.Range{}, ask)
		if !wire.IsUnavailable(err) || time.Now().After(deadline) {
			return r, err
		}
	}
}

// CheckRead reads a range at a node and judges the answer. It returns the
// error when the node refuses, which is no violation. It may be called from any
// goroutine.
func (c *Cluster) CheckRead(node string, r kv.Range, ask Ask) error {
	c.t.Helper()
	read, err := c.List(context.Background(), node, r, ask)
	if err != nil {
		return err
	}
	for _, v := range read.Check(c.History()) {
		c.t.Error(v)
	}
	return nil
}
