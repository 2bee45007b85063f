package placement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// retryPause is how long the leader waits after something failed.
const retryPause = time.Second

// lead does what only the leader does, until ctx ends. An error means that
// this node must not lead, and cannot stop by itself.
func (p *Placement) lead(ctx context.Context, r *raft.Raft, log *timedLog) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.guard(ctx, r, log) })
	g.Go(func() error {
		// Everything that earlier leaders committed must be applied before
		// anything is decided.
		for p.await(ctx, r.Barrier(0)) != nil {
			if !pause(ctx, p.cfg.Heartbeat, true) {
				return nil // no longer the leader
			}
		}
		p.log.Info("leads the voters")
		g.Go(func() error { p.keepVoters(ctx, r); return nil })
		g.Go(func() error { p.splitShards(ctx, r); return nil })
		g.Go(func() error { p.askReports(ctx, r); return nil })
		g.Go(func() error { p.balance(ctx, r); return nil })
		p.placeShards(ctx, r)
		return nil
	})
	return g.Wait()
}

// guard commits a barrier now and then. A leader whose disk hangs sends
// heartbeats and commits nothing: raft itself never ends that, so the node
// does. A barrier that is late while the disk is well lacks a majority, which
// may answer heartbeats and yet append nothing: to end this node would only
// take one more from it.
func (p *Placement) guard(ctx context.Context, r *raft.Raft, log *timedLog) error {
	told := false
	for pause(ctx, p.cfg.BarrierEvery, true) {
		bounded, cancel := context.WithTimeout(ctx, p.cfg.BarrierTimeout)
		err := p.await(bounded, r.Barrier(p.cfg.BarrierTimeout))
		late := bounded.Err() != nil || errors.Is(err, raft.ErrEnqueueTimeout)
		cancel()
		if err == nil {
			told = false
		}
		if err == nil || !late || ctx.Err() != nil || r.State() != raft.Leader {
			continue
		}
		if p.hangs(ctx, log) {
			return fmt.Errorf("a write of the raft log takes more than %s: %w", p.cfg.BarrierTimeout, ErrStuck)
		}
		if !told {
			told = true
			p.log.Warn("no majority of the voters confirms this leader's writes: check their disks and the network between them", "for", p.cfg.BarrierTimeout)
		}
	}
	return nil
}

// hangs reports whether a write of the raft log takes BarrierTimeout or more.
// It waits until that is certain of the one that is under way.
func (p *Placement) hangs(ctx context.Context, log *timedLog) bool {
	began, writes := log.writing()
	if !writes || !pause(ctx, time.Until(began.Add(p.cfg.BarrierTimeout)), true) {
		return false
	}
	since, writes := log.writing()
	return writes && since.Equal(began)
}

// placeShards founds the cluster when it is not, then keeps shards where they
// belong.
func (p *Placement) placeShards(ctx context.Context, r *raft.Raft) {
	rules := p.cfg.Rules
	rules.Planner = new(planner.Planner)
	var h planner.History
	told := "" // the reason not to found that was logged last
	for {
		membersChanged := p.members.wait()
		m, mapChanged := p.maps.watch()
		var again time.Time
		var err error
		if m == nil {
			again, err = p.found(ctx, r)
			if err != nil && ctx.Err() == nil && err.Error() != told {
				p.log.Warn("cannot found the cluster yet, retrying", "err", err)
				told = err.Error()
			}
		} else {
			members, now := p.ourMembers(), time.Now()
			h = h.Observe(m, members, p.reported(), now)
			d := rules.Decide(m, members, h, now)
			again = d.Again
			p.awaitFills(rules.Filling(h, now))
			if len(d.Moves) > 0 {
				if err = p.lay(ctx, r, m.Version, shard.Assign{Moves: d.Moves}); err == nil {
					h = h.Record(m, d, members, time.Now())
					p.stats.addShards(planner.Moved, len(d.Moves))
					p.log.Info("shards moved", "moves", len(d.Moves), "first", d.Moves[0].Shard, "to", d.Moves[0].Replicas)
					continue
				}
				if ctx.Err() == nil {
					p.log.Warn("could not move shards, retrying", "err", err)
				}
			} else if merges, next := rules.Merges(m, h, now); len(merges) > 0 {
				if err = p.lay(ctx, r, m.Version, merges[0]); err == nil {
					p.stats.addShards(planner.Merged, len(merges[0].Shards)-1)
					p.log.Info("shards merged", "shards", merges[0].Shards, "into", m.NextID)
					continue
				}
				if ctx.Err() == nil {
					p.log.Warn("could not merge shards, retrying", "err", err)
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

// found founds the cluster with the members that are here. A time says that it
// is too early.
func (p *Placement) found(ctx context.Context, r *raft.Raft) (again time.Time, err error) {
	members := p.ourMembers()
	here, again := planner.Founders(members, p.cfg.Settle, time.Now())
	if !again.IsZero() {
		return again, nil
	}
	if len(here) == 0 {
		return time.Time{}, errors.New("gossip shows no member that is alive")
	}
	etcd, cuts, err := p.cfg.FoundingFacts(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask etcd: %w", err)
	}
	id := p.ClusterID()
	if id == "" {
		id = toldCluster(members, serversOf(r))
	}
	f := shard.Found{ClusterID: id, EtcdClusterID: etcd, Spec: p.cfg.Spec, Cuts: cuts}
	if level := shard.Common(members); level >= shard.LevelSettings {
		f.Finalized = level
	}
	f, err = planner.Place(f, here)
	if err != nil {
		return time.Time{}, err
	}
	if err := p.lay(ctx, r, 0, f); err != nil {
		return time.Time{}, err
	}
	p.log.Info("cluster founded", "cluster", f.ClusterID, "etcd", fmt.Sprintf("%x", etcd), "shards", len(f.Replicas), "members", len(here))
	return time.Time{}, nil
}

// splitShards cuts shards while there are fewer than wanted.
func (p *Placement) splitShards(ctx context.Context, r *raft.Raft) {
	if p.cfg.Cuts == nil {
		return
	}
	told := false
	for pause(ctx, p.cfg.SplitCheck, true) {
		m := p.Map()
		if m == nil || !planner.LacksShards(m) {
			continue
		}
		cuts, err := p.cfg.Cuts(ctx)
		if err == nil {
			err = p.split(ctx, r, m, planner.Splits(m, cuts))
		}
		if err != nil && ctx.Err() == nil && !told {
			p.log.Warn("cannot split shards yet, retrying", "err", err)
		}
		told = err != nil
	}
}

func (p *Placement) split(ctx context.Context, r *raft.Raft, m *shard.Map, splits []shard.Split) error {
	version := m.Version
	for _, s := range splits {
		if err := p.lay(ctx, r, version, s); err != nil {
			if isStale(err) {
				return nil
			}
			return fmt.Errorf("split shard %d: %w", s.Shard, err)
		}
		p.stats.addShards(planner.Divided, 1)
		p.log.Info("shard split", "shard", s.Shard, "parts", len(s.At)+1)
		version++
	}
	return nil
}

// isStale reports whether the map has changed since a change was decided: the next look
// at the map decides anew.
func isStale(err error) bool { return errors.As(err, new(*shard.StaleError)) }

// lay proposes a change as the leader, once.
func (p *Placement) lay(ctx context.Context, r *raft.Raft, ifVersion uint64, c shard.Change) error {
	b, err := shard.EncodeCommand(shard.Command{RequestID: uuid.NewString(), IfVersion: ifVersion, Change: c})
	if err != nil {
		return err
	}
	_, err = p.commit(ctx, r, c, b)
	return err
}

// pause waits for d when timed, or for a signal (two at most; nil is none), and
// reports false when ctx has ended.
func pause(ctx context.Context, d time.Duration, timed bool, signals ...<-chan struct{}) bool {
	var tick <-chan time.Time
	if timed {
		t := time.NewTimer(d)
		defer t.Stop()
		tick = t.C
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
