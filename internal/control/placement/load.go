package placement

import (
	"context"
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// askReports keeps the reports of the nodes current until ctx ends.
func (l *leader) askReports(ctx context.Context) {
	if l.cfg.Reports == nil {
		return
	}
	var all time.Time // when all nodes were last asked
	for {
		l.reportMu.Lock()
		filling, known := l.filling, l.reports
		l.reportMu.Unlock()
		due := time.Since(all) >= planner.ReportInterval
		if due {
			all = time.Now()
		}
		asked := known.ToAsk(l.ourMembers(), filling, due)
		if len(asked) > 0 {
			index := l.r.AppliedIndex()
			reports := l.askNodes(ctx, asked)
			l.reportMu.Lock()
			l.reports = l.reports.Add(time.Now(), index, reports)
			l.surveyed = true // the first round asks all nodes, however few answer
			l.reportMu.Unlock()
			l.members.Notify()
		}
		if !pause(ctx, beat.Until(planner.FillInterval), true) {
			return
		}
	}
}

func (l *leader) reported() *planner.Reports {
	l.reportMu.Lock()
	defer l.reportMu.Unlock()
	return l.reports
}

// knowsCopies reports whether it is safe to move copies: this leader has asked all nodes for reports (if
// Reports is set), or no member with copies drains. Without reports, loading copies look complete, and nodes
// that were not asked look silent: a draining node could give up the last complete copy of a shard. After the
// death of a node nothing waits for reports.
func (l *leader) knowsCopies(m *shard.Map, members []shard.Member) bool {
	l.reportMu.Lock()
	defer l.reportMu.Unlock()
	drains := func(n shard.Member) bool { return n.Draining || m.IsDrained(n.Name) && m.Holds(n.Name) }
	return l.surveyed || l.cfg.Reports == nil || !slices.ContainsFunc(members, drains)
}

// awaitFills sets the nodes that load shards, which are asked for reports often.
func (l *leader) awaitFills(nodes []shard.NodeID) {
	l.reportMu.Lock()
	defer l.reportMu.Unlock()
	l.filling = nodes
}

// balance splits shards that have too much load, begins to merge shards that
// have too little, and changes numbers of replicas, until ctx ends.
func (l *leader) balance(ctx context.Context) {
	if l.cfg.Reports == nil || l.cfg.Balance == (planner.Balance{}) {
		return
	}
	defer l.stats.setWaiting(planner.Waiting{})
	var t planner.Trend
	for pause(ctx, planner.ReportInterval, true) {
		m := l.Map()
		if m == nil || shard.Allows(m, nil, shard.LevelWatches, l.ourMembers()) != nil {
			continue
		}
		var a planner.Action
		a, t = l.cfg.Balance.Decide(m, l.reported().Loads(), t, time.Now())
		l.stats.setWaiting(t.Waiting(m))
		var err error
		if t, err = l.rebalance(ctx, m, a, t); err != nil && !isStale(err) && ctx.Err() == nil {
			l.log.Warn("could not change shards for their load, retrying", "error", err)
		}
	}
}

func (l *leader) rebalance(ctx context.Context, m *shard.Map, a planner.Action, t planner.Trend) (planner.Trend, error) {
	version := m.Version
	lay := func(c shard.Change) error {
		err := l.lay(ctx, version, c)
		version++
		return err
	}
	if a.Owners != nil {
		if err := lay(shard.Configure{Replicas: m.Spec.Replicas, Owners: *a.Owners, Ranges: m.Spec.Ranges}); err != nil {
			return t, err
		}
		l.log.Info("number of owners changed", "owners", *a.Owners, "before", m.Spec.Owners)
	}
	if len(a.Homes) > 0 {
		if err := lay(shard.Rehome{Homes: a.Homes}); err != nil {
			return t, err
		}
		for _, h := range a.Homes {
			if op := planner.OperationOf(m, h); op != "" {
				l.stats.addShards(op, 1)
			}
			l.log.Info("load changes the placement of a shard", "shard", h.Shard, "beside", h.Home.Seat, "replicas", h.Home.Replicas)
		}
	}
	for _, c := range a.Splits {
		id := c.Shard
		i := slices.IndexFunc(m.Shards, func(s shard.Shard) bool { return s.ID == id })
		at, err := l.cfg.Halve(ctx, m.Shards[i].Range)
		if err != nil {
			return t, err
		}
		if at == "" {
			t = t.Uncuttable(id, time.Now())
			l.stats.addShards(planner.LoadUncuttable, 1)
			l.log.Info("a shard has too much load and too few keys to be split", "shard", id, "range", m.Shards[i].Range)
			continue
		}
		if err := lay(shard.Split{Shard: id, At: []string{at}, Stay: true, Watches: c.Watches}); err != nil {
			return t, err
		}
		l.stats.addShards(planner.LoadSplit, 1)
		l.log.Info("shard split for its load", "shard", id, "at", at)
	}
	return t, nil
}
