package placement

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// retryPause is the pause of the leader after a failure.
const retryPause = time.Second

// leader is the state of one term in which this node leads.
type leader struct {
	*raftRun

	reportMu sync.Mutex
	reports  *planner.Reports // guarded by reportMu
	surveyed bool             // guarded by reportMu; all nodes were asked for reports
	filling  []shard.NodeID   // guarded by reportMu; the nodes to ask for reports at each FillInterval
}

// lead carries out the leader's tasks until ctx ends. It returns an error if
// this node must not lead and raft does not end its leadership.
func (l *leader) lead(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.guard(ctx) })
	g.Go(func() error {
		// Everything that earlier leaders committed must be applied before the
		// first decision.
		for l.await(ctx, l.r.Barrier(l.cfg.BarrierTimeout)) != nil {
			if !pause(ctx, l.cfg.Heartbeat, true) {
				return nil // no longer the leader
			}
		}
		l.log.Info("leads the voters")
		g.Go(func() error { l.keepVoters(ctx); return nil })
		g.Go(func() error { l.splitShards(ctx); return nil })
		g.Go(func() error { l.askReports(ctx); return nil })
		g.Go(func() error { l.balance(ctx); return nil })
		l.placeShards(ctx)
		return nil
	})
	return g.Wait()
}

// guard commits a barrier at intervals. A leader whose disk hangs sends
// heartbeats but commits nothing. Raft itself never ends this state, so guard
// ends the node. If a barrier is late although the disk works, a majority is
// missing, or answers heartbeats without appending: in this case the end of
// this node would only remove another one.
func (l *leader) guard(ctx context.Context) error {
	told := false
	for pause(ctx, l.cfg.BarrierEvery, true) {
		bounded, cancel := context.WithTimeout(ctx, l.cfg.BarrierTimeout)
		err := l.await(bounded, l.r.Barrier(l.cfg.BarrierTimeout))
		late := bounded.Err() != nil || errors.Is(err, raft.ErrEnqueueTimeout)
		cancel()
		if err == nil {
			told = false
		}
		if err == nil || !late || ctx.Err() != nil || l.r.State() != raft.Leader {
			continue
		}
		if l.hangs(ctx) {
			return fmt.Errorf("a write of the raft log takes more than %s: %w", l.cfg.BarrierTimeout, ErrStuck)
		}
		if !told {
			told = true
			l.log.Warn("no majority of the voters confirms this leader's writes: check their disks and the network between them", "for", l.cfg.BarrierTimeout)
		}
	}
	return nil
}

// hangs reports whether a write of the raft log takes BarrierTimeout or more.
// It waits until this is certain for the write in progress.
func (l *leader) hangs(ctx context.Context) bool {
	began := l.disk.logs.since.Load()
	return began != nil && pause(ctx, time.Until(began.Add(l.cfg.BarrierTimeout)), true) && l.disk.logs.since.Load() == began
}

// placeShards founds the cluster if there is none, then maintains the placement of
// its shards.
func (l *leader) placeShards(ctx context.Context) {
	rules := l.cfg.Rules
	rules.Planner = new(planner.Planner)
	var h planner.Observations
	told := "" // the last logged reason not to found
	for {
		membersChanged := l.members.Wait()
		m, mapChanged := l.maps.watch()
		var again time.Time
		var err error
		if m == nil {
			again, err = l.found(ctx)
			if err != nil && ctx.Err() == nil && err.Error() != told {
				l.log.Warn("cannot found the cluster yet, retrying", "error", err)
				told = err.Error()
			}
		} else if members, now := l.ourMembers(), time.Now(); l.knowsCopies(m, members) { // otherwise askReports notifies members
			h = h.Observe(m, members, l.reported(), now)
			d := rules.Decide(m, members, h, now)
			again = d.Again
			l.awaitFills(rules.Filling(h, now))
			if len(d.Moves) > 0 {
				if err = l.lay(ctx, m.Version, shard.Assign{Moves: d.Moves}); err == nil {
					h = h.Record(m, d, members, time.Now())
					l.stats.addShards(planner.Moved, len(d.Moves))
					l.log.Info("shards moved", "moves", len(d.Moves), "first", d.Moves[0].Shard, "to", d.Moves[0].Replicas)
					continue
				}
				if ctx.Err() == nil {
					l.log.Warn("could not move shards, retrying", "error", err)
				}
			} else if merges, next := rules.Merges(m, h, now); len(merges) > 0 {
				if err = l.lay(ctx, m.Version, merges[0]); err == nil {
					l.stats.addShards(planner.Merged, len(merges[0].Shards)-1)
					l.log.Info("shards merged", "shards", merges[0].Shards, "into", m.NextID)
					continue
				}
				if ctx.Err() == nil {
					l.log.Warn("could not merge shards, retrying", "error", err)
				}
			} else if !next.IsZero() && (again.IsZero() || next.Before(again)) {
				again = next
			}
		}
		wait := time.Until(again)
		if err != nil {
			wait = retryPause
		}
		if !pause(ctx, wait, err != nil || !again.IsZero(), membersChanged, mapChanged) {
			return
		}
	}
}

// found founds the cluster with the live members. It returns a time if it is
// too early.
func (l *leader) found(ctx context.Context) (again time.Time, err error) {
	members := l.ourMembers()
	here, again := planner.Founders(members, l.cfg.Settle, time.Now())
	if !again.IsZero() {
		return again, nil
	}
	if len(here) == 0 {
		return time.Time{}, errors.New("gossip shows no member that is alive")
	}
	etcd, cuts, err := l.cfg.FoundingFacts(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask etcd: %w", err)
	}
	id := l.ClusterID()
	if id == "" {
		id = toldCluster(members, serversOf(l.r))
	}
	f := shard.Found{ClusterID: id, EtcdClusterID: etcd, Spec: l.cfg.Spec, Cuts: cuts}
	if level := shard.Common(members); level >= shard.LevelSettings {
		f.Finalized = level
	} else {
		f.Spec.Owners = 0
	}
	f, err = planner.Place(f, here)
	if err != nil {
		return time.Time{}, err
	}
	if err := l.lay(ctx, 0, f); err != nil {
		return time.Time{}, err
	}
	l.log.Info("cluster founded", "cluster", f.ClusterID, "etcd", fmt.Sprintf("%x", etcd), "shards", len(f.Replicas), "members", len(here))
	return time.Time{}, nil
}

// splitShards cuts shards while there are fewer than wanted.
func (l *leader) splitShards(ctx context.Context) {
	if l.cfg.Cuts == nil {
		return
	}
	told := false
	for pause(ctx, l.cfg.SplitCheck, true) {
		m := l.Map()
		if m == nil || !planner.LacksShards(m) {
			continue
		}
		cuts, err := l.cfg.Cuts(ctx)
		if err == nil {
			err = l.split(ctx, m, planner.Splits(m, cuts))
		}
		if err != nil && ctx.Err() == nil && !told {
			l.log.Warn("cannot split shards yet, retrying", "error", err)
		}
		told = err != nil
	}
}

func (l *leader) split(ctx context.Context, m *shard.Map, splits []shard.Split) error {
	version := m.Version
	for _, s := range splits {
		if err := l.lay(ctx, version, s); err != nil {
			if isStale(err) {
				return nil
			}
			return fmt.Errorf("split shard %d: %w", s.Shard, err)
		}
		l.stats.addShards(planner.Divided, 1)
		l.log.Info("shard split", "shard", s.Shard, "parts", len(s.At)+1)
		version++
	}
	return nil
}

// isStale reports whether the map has changed since a change was decided. The change is
// then decided again on the new map.
func isStale(err error) bool { return errors.As(err, new(*shard.StaleError)) }

// lay proposes a change as the leader, once.
func (l *leader) lay(ctx context.Context, ifVersion uint64, c shard.Change) error {
	b, err := shard.EncodeCommand(shard.Command{RequestID: uuid.NewString(), IfVersion: ifVersion, Change: c})
	if err != nil {
		return err
	}
	_, err = l.commit(ctx, l.r, c, b)
	return err
}

// pause waits for d if timed, or for a signal (at most two; nil never fires),
// and reports false when ctx has ended.
func pause(ctx context.Context, d time.Duration, timed bool, signals ...<-chan struct{}) bool {
	var tick <-chan time.Time
	if timed {
		tick = time.After(d)
	}
	var either [2]<-chan struct{}
	copy(either[:], signals)
	select {
	case <-ctx.Done():
		return false
	case <-tick:
	case <-either[0]:
	case <-either[1]:
	}
	return ctx.Err() == nil
}
