package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/shardwatch/shardwatch/internal/check"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// truth is etcd's history in the words of the checkers.
type truth struct {
	*check.History
	at []time.Time // of each revision, from 2 on
}

func newTruth() truth { return truth{History: check.NewHistory(1, nil)} }

// History returns all that has happened in etcd so far.
func (c *Cluster) History() *check.History {
	c.t.Helper()
	for _, b := range c.Etcd.History()[len(c.truth.at):] {
		out := check.Batch{Revision: b.Revision}
		for _, e := range b.Events {
			out.Events = append(out.Events, check.EventOf(e))
		}
		if err := c.truth.Append(out); err != nil {
			c.t.Fatal(err)
		}
		c.truth.at = append(c.truth.at, b.Received)
	}
	return c.truth.History
}

// RevisionAt returns the revision etcd had at a time.
func (c *Cluster) RevisionAt(when time.Time) kv.Revision {
	c.History()
	rev := kv.Revision(1)
	for i, at := range c.truth.at {
		if at.After(when) {
			break
		}
		rev = kv.Revision(i + 2)
	}
	return rev
}

// Behind returns the first watcher that lacks something, or that has ended, and
// how; "" when all have everything.
func (c *Cluster) Behind() string {
	h := c.History()
	head := c.Etcd.Revision()
	for _, w := range c.watchers {
		if err := w.Err(); err != nil {
			return fmt.Sprintf("%s ended: %v", w.watch.Name, err)
		}
		if at := max(w.Reached(), w.watch.Start-1); at < head && (at <= 0 || len(h.Touching(w.watch.Range, at, head)) > 0) {
			return fmt.Sprintf("%s is at revision %d of %d", w.watch.Name, at, head)
		}
	}
	return ""
}

// Settle waits, for at most d, until every watcher has everything.
func (c *Cluster) Settle(d time.Duration) {
	c.t.Helper()
	why := ""
	for deadline := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
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

// CheckStates compares what each running node serves, read linearizably and
// from memory alone, with etcd.
func (c *Cluster) CheckStates() {
	c.t.Helper()
	h := c.History()
	head := c.Etcd.Revision()
	for _, name := range c.Running() {
		for _, ask := range []Ask{{Linearizable: true}, {MaxStaleness: 5 * time.Second}} {
			r, err := c.List(context.Background(), name, kv.Range{}, ask)
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
