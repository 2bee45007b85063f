package planner

import (
	"maps"
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

// The leader asks all nodes for a report once per ReportInterval. Once per FillInterval
// it asks the nodes that load shards, and nodes without a report, which get no shards
// until they report.
const (
	ReportInterval = 10 * time.Second
	FillInterval   = time.Second
)

// Report is a node's report of its replicas and relays.
type Report struct {
	Node   shard.NodeID
	Shards []ShardReport
	// RaftIndex is the newest entry of the node's raft log; 0: it has no log.
	RaftIndex uint64
	// MapVersion is the version of the node's map. If it is below the leader's
	// generation, the raft log is of an older generation.
	MapVersion uint64
	// NoEtcd: the node has not reached etcd. Only its raft log counts: it gets no shards.
	NoEtcd bool
}

// ShardReport reports one copy of a shard.
type ShardReport struct {
	Shard shard.ID
	// Ready: it has loaded, and is not a relay.
	Ready bool
	// Bytes is the memory of its keys and values.
	Bytes int64
	// Events is how many events the node has applied since it has the copy.
	Events int64
	// Watches is how many watches of clients it serves.
	Watches int
}

// Load is the load of one shard.
type Load struct {
	// Bytes is the memory of one replica.
	Bytes int64
	// Events is the rate of events from etcd, per second.
	Events float64
	// Watches is the number of watches of clients on all nodes.
	Watches int
}

// Reports are the newest reports of all nodes. It is a value: Add returns a new
// one, and nil means no reports.
type Reports struct {
	by   map[shard.NodeID]nodeReport
	logs map[shard.NodeID]logReport // also of nodes that have not reached etcd
}

type nodeReport struct {
	at     time.Time
	shards map[shard.ID]copyReport
}

// logReport is the state of a node's raft log.
type logReport struct {
	at           time.Time
	any, current bool // the node has a log; its log is as new as the leader's
}

type copyReport struct {
	ShardReport
	rate  float64   // events per second, by the latest count; 0: not counted yet
	from  int64     // value of Events at the start of the count
	since time.Time // time of the report of from
}

// reportLife is how long a report counts. Without a newer one the node counts
// as silent.
const reportLife = time.Minute

// rateOver is the least time over which events are counted. Nodes that load shards are
// asked more often, and shorter counts would only measure the peaks of bursts.
const rateOver = ReportInterval - FillInterval

// caughtUpWithin is how many entries a raft log may lack and still count as
// caught up: a barrier is written every second, and a report takes a moment.
const caughtUpWithin = 8

// Add returns the reports with the new ones, and without expired ones. The new
// ones were made at now, when the leader had applied the raft log up to index.
func (r *Reports) Add(now time.Time, index uint64, reports []Report) *Reports {
	next := &Reports{by: make(map[shard.NodeID]nodeReport), logs: make(map[shard.NodeID]logReport)}
	if r != nil {
		maps.Copy(next.by, r.by)
		maps.Copy(next.logs, r.logs)
		maps.DeleteFunc(next.by, func(_ shard.NodeID, n nodeReport) bool { return now.Sub(n.at) > reportLife })
		maps.DeleteFunc(next.logs, func(_ shard.NodeID, l logReport) bool { return now.Sub(l.at) > reportLife })
	}
	for _, report := range reports {
		next.logs[report.Node] = logReport{at: now, any: report.RaftIndex > 0, current: report.RaftIndex > 0 && report.RaftIndex+caughtUpWithin >= index}
		if report.NoEtcd {
			continue
		}
		before := next.by[report.Node]
		node := nodeReport{at: now, shards: make(map[shard.ID]copyReport, len(report.Shards))}
		for _, s := range report.Shards {
			c := node.shards[s.Shard] // a node may have a relay beside the replica
			c.Shard, c.Ready = s.Shard, c.Ready || s.Ready
			c.Bytes, c.Events, c.Watches = max(c.Bytes, s.Bytes), max(c.Events, s.Events), c.Watches+s.Watches
			node.shards[s.Shard] = c
		}
		for id, c := range node.shards {
			c.from, c.since = c.Events, now
			if old, ok := before.shards[id]; ok && c.Events >= old.Events { // a new copy counts from 0 again
				c.rate, c.from, c.since = old.rate, old.from, old.since
				if d := now.Sub(old.since); d >= rateOver {
					c.rate, c.from, c.since = float64(c.Events-old.from)/d.Seconds(), c.Events, now
				}
			}
			node.shards[id] = c
		}
		next.by[report.Node] = node
	}
	return next
}

// heard reports whether the node has reported lately. A node that gossips but does not
// answer the leader may serve no client. Before the first reports all nodes count as heard.
func (r *Reports) heard(n shard.NodeID) bool {
	if r == nil {
		return true
	}
	_, ok := r.by[n]
	return ok
}

// ToAsk returns the live members to ask for a report: all of them, or only those that
// are filling and those without a report.
func (r *Reports) ToAsk(members []shard.Member, filling []shard.NodeID, all bool) (ask []shard.NodeID) {
	for _, m := range members {
		if m.State == shard.Alive && (all || !r.heard(m.Name) || slices.Contains(filling, m.Name)) {
			ask = append(ask, m.Name)
		}
	}
	return ask
}

// loading reports whether one of the nodes has reported that it has not loaded
// the shard, or does not have it yet.
func (r *Reports) loading(id shard.ID, nodes []shard.NodeID) bool {
	return r != nil && slices.ContainsFunc(nodes, func(n shard.NodeID) bool {
		report, ok := r.by[n]
		return ok && !report.shards[id].Ready
	})
}

// loaded reports whether each of the nodes has reported after since that it has
// loaded the shard.
func (r *Reports) loaded(id shard.ID, nodes []shard.NodeID, since time.Time) bool {
	return r != nil && !slices.ContainsFunc(nodes, func(n shard.NodeID) bool {
		report := r.by[n]
		return !report.at.After(since) || !report.shards[id].Ready
	})
}

// hasLog reports whether the node has reported a raft log, caughtUp whether that log was as new
// as the leader's, and told whether the node has reported at all.
func (r *Reports) hasLog(n shard.NodeID) bool   { return r != nil && r.logs[n].any }
func (r *Reports) caughtUp(n shard.NodeID) bool { return r != nil && r.logs[n].current }
func (r *Reports) told(n shard.NodeID) bool     { return r != nil && !r.logs[n].at.IsZero() }

// Loads returns the known loads of shards.
func (r *Reports) Loads() map[shard.ID]Load {
	out := make(map[shard.ID]Load)
	if r == nil {
		return out
	}
	for _, node := range r.by {
		for id, c := range node.shards {
			l := out[id]
			l.Bytes, l.Events = max(l.Bytes, c.Bytes), max(l.Events, c.rate)
			l.Watches += c.Watches
			out[id] = l
		}
	}
	return out
}
