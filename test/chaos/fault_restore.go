package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// restores are faults in which etcd returns with another history.
func restores() []Fault {
	restore := func(name, about string, r etcdtest.Restore, overtake bool) Fault {
		return Fault{
			Name: name, About: about, Needs: Needs{Members: 1, Network: overtake}, NoWrites: true, Lists: true, Relists: true,
			Inject: func(ctx context.Context, s *Scene) (heal, error) { return s.restore(ctx, r, overtake) },
		}
	}
	const bump = 100_000
	return []Fault{
		restore("restore-older", "etcd is restored from a snapshot as another cluster, at an older revision", etcdtest.Restore{Token: "restored"}, false),
		restore("restore-same-id", "the same, with its old cluster ID and member ID", etcdtest.Restore{}, false),
		restore("restore-bumped", "the same, with its revision bumped and all before it compacted", etcdtest.Restore{BumpRevision: bump}, false),
		restore("restore-overtaken", "the same, and while no node sees it, writes bring it past its old revision", etcdtest.Restore{}, true),
	}
}

// restore takes a snapshot, lets etcd continue for a while, and restores the snapshot. Nothing
// writes until every node has noticed: events sent before that are wrong.
func (s *Scene) restore(ctx context.Context, r etcdtest.Restore, overtake bool) (heal, error) {
	s.last = nil
	m := s.etcd.members[0]
	r.Snapshot = filepath.Join(m.data+"-snapshots", fmt.Sprintf("%d.db", time.Now().UnixNano()))
	if err := makeDir(filepath.Dir(r.Snapshot)); err != nil {
		return nil, err
	}
	if err := etcdtest.SaveSnapshot(ctx, m.addr, r.Snapshot); err != nil {
		return nil, err
	}
	status, err := snapshot.NewV3(zap.NewNop()).Status(r.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("read the snapshot: %w", err)
	}
	if err := pause(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	if err := s.stop(ctx); err != nil {
		return s.goOn, err
	}
	was := kv.Revision(status.Revision)
	is := was + kv.Revision(r.BumpRevision)
	head := s.truth.history().Head()
	mend, err := s.takeBack(ctx, m, r, overtake)
	if err != nil {
		return together(mend, s.goOn), err
	}
	s.truth.restart(was, is)
	s.load.acked.reset()
	s.truth.compacted.Store(min(s.truth.compacted.Load(), int64(was)))
	if r.BumpRevision > 0 {
		s.truth.compacted.Store(int64(is))
	}
	if err := m.proc.start(); err != nil {
		return together(mend, s.goOn), err
	}
	if err := m.wait(ctx); err != nil {
		return together(mend, s.goOn), err
	}
	began := time.Now()
	s.Say("etcd is back at revision %d, it was at %d", is, head)
	if overtake {
		if err := s.overtake(ctx, m, head); err != nil {
			return together(mend, s.goOn), err
		}
		if err := mend(ctx); err != nil {
			return s.goOn, err
		}
		began = time.Now()
	}
	if err := s.crowd.reach(ctx, int64(s.truth.history().Head()), 30*time.Second); err != nil {
		return s.goOn, fmt.Errorf("after a restore: %w", err)
	}
	s.Say("all watches noticed it within %v", time.Since(began).Round(10*time.Millisecond))
	return s.goOn, nil
}

// stop stops the writes and judges all updates so far.
func (s *Scene) stop(ctx context.Context) error {
	s.answers.mute(true)
	s.crowd.still.Store(true)
	s.settle(ctx)
	if err := s.load.hold(ctx); err != nil {
		return err
	}
	rev, err := s.etcd.revision(ctx)
	if err != nil {
		return err
	}
	if err := s.crowd.reach(ctx, rev, patience); err != nil {
		return err
	}
	s.judge(ctx, rev)
	return nil
}

// goOn undoes stop.
func (s *Scene) goOn(context.Context) error {
	s.answers.mute(false)
	s.crowd.still.Store(false)
	s.load.gate.open()
	return nil
}

// takeBack ends etcd and replaces its data with a snapshot. With unseen no node can reach it until
// the returned heal has run.
func (s *Scene) takeBack(ctx context.Context, m *member, r etcdtest.Restore, unseen bool) (heal, error) {
	var heals []heal
	if unseen {
		for _, n := range s.Cluster.Nodes {
			h, err := n.host.apply(ctx, both(dropped, s.etcdIPs()...)...)
			if err != nil {
				return together(heals...), err
			}
			heals = append(heals, h)
		}
	}
	if err := m.proc.kill(); err != nil {
		return together(heals...), err
	}
	return together(heals...), etcdtest.RestoreInto(r, m.data, m.name, m.peer)
}

// overtake writes until etcd is past a revision.
func (s *Scene) overtake(ctx context.Context, m *member, head kv.Revision) error {
	g, writing := errgroup.WithContext(ctx)
	for i := range uint64(writers) {
		rng := rand.New(rand.NewPCG(s.Seed, 1<<34|i))
		g.Go(func() error {
			for rev := kv.Revision(0); rev <= head+10; {
				r, err := m.client.Put(writing, s.keys.any(rng), value(rng))
				if err != nil {
					return fmt.Errorf("write to the new etcd: %w", err)
				}
				rev = kv.Revision(r.Header.Revision)
				s.load.acked.add(r.Header.Revision)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return s.truth.reach(ctx, int64(head), patience)
}
