package placement

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// askReports keeps the reports of the nodes, until ctx ends.
func (p *Placement) askReports(ctx context.Context, r *raft.Raft) {
	p.mu.Lock()
	p.reports, p.filling = nil, nil // of an earlier time as leader
	p.mu.Unlock()
	if p.cfg.Reports == nil {
		return
	}
	var all time.Time // when all were asked
	for {
		p.mu.Lock()
		filling, known := p.filling, p.reports
		p.mu.Unlock()
		due := time.Since(all) >= planner.ReportInterval
		if due {
			all = time.Now()
		}
		asked := known.ToAsk(p.ourMembers(), filling, due)
		if len(asked) > 0 {
			index := r.AppliedIndex()
			reports := p.askNodes(ctx, asked)
			p.mu.Lock()
			p.reports = p.reports.Add(time.Now(), index, reports)
			p.mu.Unlock()
			p.members.ring()
		}
		if !pause(ctx, planner.FillInterval, true) {
			return
		}
	}
}

func (p *Placement) reported() *planner.Reports {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reports
}

// awaitFills has those asked often that were given shards lately.
func (p *Placement) awaitFills(nodes []shard.NodeID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.filling = nodes
}

// balance splits shards that have too much load, begins to merge those that have
// too little, and changes numbers of replicas, until ctx ends.
func (p *Placement) balance(ctx context.Context, r *raft.Raft) {
	if p.cfg.Reports == nil || p.cfg.Balance == (planner.Balance{}) {
		return
	}
	defer p.stats.setWaiting(planner.Waiting{})
	var t planner.Trend
	for pause(ctx, planner.ReportInterval, true) {
		m := p.Map()
		if m == nil || shard.Allows(m, nil, shard.LevelWatches, p.ourMembers()) != nil {
			continue
		}
		var a planner.Action
		a, t = p.cfg.Balance.Decide(m, p.reported().Loads(), t, time.Now())
		p.stats.setWaiting(t.Waiting(m))
		var err error
		if t, err = p.rebalance(ctx, r, m, a, t); err != nil && ctx.Err() == nil {
			p.log.Warn("could not change shards for their load, retrying", "err", err)
		}
	}
}

func (p *Placement) rebalance(ctx context.Context, r *raft.Raft, m *shard.Map, a planner.Action, t planner.Trend) (planner.Trend, error) {
	version := m.Version
	lay := func(c shard.Change) error {
		err := p.lay(ctx, r, version, c)
		version++
		return err
	}
	if len(a.Homes) > 0 {
		if err := lay(shard.Rehome{Homes: a.Homes}); isStale(err) {
			return t, nil
		} else if err != nil {
			return t, err
		}
		for _, h := range a.Homes {
			if op := planner.OperationOf(m, h); op != "" {
				p.stats.addShards(op, 1)
			}
			p.log.Info("load changes the placement of a shard", "shard", h.Shard, "beside", h.Home.Seat, "replicas", h.Home.Replicas)
		}
	}
	for _, c := range a.Splits {
		id := c.Shard
		i := slices.IndexFunc(m.Shards, func(s shard.Shard) bool { return s.ID == id })
		at, err := p.cfg.Halve(ctx, m.Shards[i].Range)
		if err != nil {
			return t, err
		}
		if at == "" {
			t = t.Uncuttable(id, time.Now())
			p.stats.addShards(planner.LoadUncuttable, 1)
			p.log.Info("a shard has too much load and too few keys to be split", "shard", id, "range", m.Shards[i].Range)
			continue
		}
		if err := lay(shard.Split{Shard: id, At: []string{at}, Stay: true, Watches: c.Watches}); isStale(err) {
			return t, nil
		} else if err != nil {
			return t, err
		}
		p.stats.addShards(planner.LoadSplit, 1)
		p.log.Info("shard split for its load", "shard", id, "at", at)
	}
	return t, nil
}
