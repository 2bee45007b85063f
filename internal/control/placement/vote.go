package placement

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// vote runs raft until ctx ends, and starts it again when the map has a newer generation.
func (p *Placement) vote(ctx context.Context) (err error) {
	var raftPort *port
	if p.cfg.Network == nil {
		raftPort = openPort(p.cfg.Listener)
		defer func() { err = errors.Join(err, raftPort.close()) }()
	}
	var failed time.Time // when the disk last failed
	for {
		err := p.voteOnce(ctx, raftPort)
		switch {
		case errors.Is(err, ErrStuck):
			return err
		case errors.Is(err, errOutdated):
			p.log.Warn("the voters were recovered: this node sets its raft log aside and follows the new voters", "generation", p.Map().Generation)
		case errors.Is(err, errUnwritten), !failed.IsZero() && errors.As(err, new(syscall.Errno)):
			if time.Since(failed) > time.Minute {
				p.log.Error("this node does not vote until the disk of its data directory takes writes; it keeps serving", "error", err)
			}
			if failed = time.Now(); !pause(ctx, retryPause, true) {
				return nil
			}
		default:
			return err
		}
	}
}

// errOutdated ends raft: the map has a newer generation than its log.
var errOutdated = errors.New("the shard map has a newer generation than the raft log")

// raftRun is one run of raft, in one generation of the log.
type raftRun struct {
	*Placement
	r          *raft.Raft
	disk       *storage
	trans      transport
	generation uint64
}

// voteOnce runs raft until ctx ends, its log is outdated, or its disk fails.
func (p *Placement) voteOnce(ctx context.Context, raftPort *port) (err error) {
	log := newRaftLogger(p.log)
	disk, generation, err := p.open(log)
	if err != nil {
		return err
	}
	trans := openTransport(&p.cfg, raftPort, generation, p.configured, log)
	f := newFSM(p.maps.show, p.votes.Notify)
	stable := &fatalStore{StableStore: disk.stable, failed: make(chan error, 1)}
	r, err := raft.NewRaft(p.raftConfig(log), f, disk.logs, stable, disk.snaps, trans.Transport)
	if err != nil {
		err = errors.Join(f.failed, err) // raft only reports that it failed
		return errors.Join(fmt.Errorf("start raft: %w", err), trans.close(), disk.close())
	}
	run := &raftRun{Placement: p, r: r, disk: disk, trans: trans, generation: generation}
	p.setCurrent(r, generation)
	defer func() {
		p.setCurrent(nil, generation)
		stuck := errors.Is(err, ErrStuck)
		if !stuck && !errors.Is(err, errOutdated) {
			run.handOn()
		}
		err = errors.Join(err, run.stop(stuck))
	}()

	ctx, cancel := context.WithCancelCause(ctx)
	var voting sync.WaitGroup
	defer voting.Wait()
	defer cancel(nil)
	voting.Go(func() { cancel(run.endOf(ctx, f, stable)) })

	if err = run.bootstrap(ctx); err == nil {
		err = run.followLeadership(ctx)
	}
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		err = cause
	}
	return err
}

// endOf waits for a reason to end raft: the log holds a command that this version cannot apply,
// the map has a newer generation, or the disk fails. It returns nil when ctx has ended.
func (v *raftRun) endOf(ctx context.Context, f *fsm, stable *fatalStore) error {
	for {
		m, changed := v.maps.watch()
		if m != nil && m.Generation > v.generation {
			return errOutdated
		}
		select {
		case err := <-f.broken:
			return err
		case err := <-stable.failed:
			return err
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// configured returns the address of a voter in raft's configuration, or "".
func (p *Placement) configured(id raft.ServerID) raft.ServerAddress {
	r := p.current()
	if r == nil {
		return ""
	}
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.ID == id {
			return s.Address
		}
	}
	return ""
}

// open opens the log of the newest generation that this node knows, from its map or
// from its logs.
func (p *Placement) open(log raftLogger) (disk *storage, generation uint64, err error) {
	if generation, err = p.logs.newest(); err != nil {
		return nil, 0, err
	}
	if m := p.Map(); m != nil {
		generation = max(generation, m.Generation)
	}
	if disk, err = p.logs.open(generation, log); err != nil {
		return nil, 0, err
	}
	id, err := disk.clusterID()
	if err == nil && generation == 0 {
		var founded bool
		if founded, err = raft.HasExistingState(disk.logs, disk.stable, disk.snaps); !founded {
			id = "" // an earlier run ended after writing the ID and before writing the log: the cluster is not founded
		}
	}
	if err != nil {
		return nil, 0, errors.Join(err, disk.close())
	}
	if m := p.Map(); m != nil && id != "" && m.ClusterID != id {
		return nil, 0, errors.Join(fmt.Errorf("the map file belongs to cluster %s, the raft log beside it to cluster %s: remove the one that is wrong: %w", m.ClusterID, id, ErrForeign), disk.close())
	}
	p.setCluster(id)
	return disk, generation, nil
}

func (p *Placement) raftConfig(log raftLogger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = p.self
	c.HeartbeatTimeout, c.ElectionTimeout = p.cfg.Heartbeat, p.cfg.Election
	// The leader steps down before any voter becomes a candidate, and after two consecutive heartbeats are
	// not answered: they are sent at beats, up to 0.6 s apart.
	c.LeaderLeaseTimeout = p.cfg.Heartbeat * 3 / 4
	c.CommitTimeout = p.cfg.Heartbeat // a commit does not wait for it
	c.SnapshotThreshold = 1024        // a map is small, and so is its log
	c.TrailingLogs = 1024
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true
	c.Logger = log
	return c
}

// bootstrap waits until the node is part of a cluster: by its log, by
// bootstrapping with the others, or because a cluster exists.
func (v *raftRun) bootstrap(ctx context.Context) error {
	has, err := raft.HasExistingState(v.disk.logs, v.disk.stable, v.disk.snaps)
	if err != nil {
		return fmt.Errorf("inspect the raft log: %w", err)
	}
	if has || v.generation > 0 {
		return nil // later generations begin with Recover: the leader adds the other voters
	}
	if id := v.ClusterID(); id != "" {
		v.log.Info("the raft log is empty, the map file is not: waiting to be added again", "cluster", id)
		return nil
	}
	said := ""
	for {
		changed := v.members.Wait()
		if v.r.LastIndex() > 0 || v.ClusterID() != "" {
			return nil // others bootstrapped first, and have added us
		}
		b := planner.Bootstrap{
			Self: planner.VoterID(v.self), Expect: v.cfg.BootstrapExpect, Join: v.cfg.Join, Settle: v.cfg.Settle, Members: v.cfg.Members(),
		}
		d := b.Decide(time.Now())
		if d.Servers != nil {
			return v.bootstrapWith(ctx, d.Servers)
		}
		if d.Wait != said {
			v.log.Info("not bootstrapping", "why", d.Wait)
			said = d.Wait
		}
		wait := membersPoll
		if !d.Again.IsZero() {
			wait = min(wait, time.Until(d.Again))
		}
		if !pause(ctx, wait, true, changed) {
			return nil
		}
	}
}

func (v *raftRun) bootstrapWith(ctx context.Context, founders []planner.Server) error {
	id := clusterIDOf(founders)
	if err := v.disk.setClusterID(id); err != nil {
		return err
	}
	servers := make([]raft.Server, len(founders))
	for i, f := range founders {
		servers[i] = raft.Server{ID: raft.ServerID(f.ID), Address: raft.ServerAddress(f.Address)}
	}
	err := v.await(ctx, later(func() raft.Future { return v.r.BootstrapCluster(raft.Configuration{Servers: servers}) }))
	switch {
	case err == nil:
		v.log.Info("bootstrapped", "cluster", id, "voters", len(servers))
		v.setCluster(id)
		v.votes.Notify()
		return nil
	case errors.Is(err, raft.ErrCantBootstrap):
		// Others bootstrapped first, and we have received their log. The
		// cluster's ID comes with the map: they may have begun with other voters.
		return v.disk.setClusterID("")
	case ctx.Err() != nil:
		return nil //nolint:nilerr // stopped; the next start sees whether there is a log
	default:
		return fmt.Errorf("bootstrap raft: %w", err)
	}
}

// followLeadership leads whenever raft elects this node.
func (v *raftRun) followLeadership(ctx context.Context) error {
	ended := make(chan error, 1)
	stop := func() error { return nil } // ends the leadership and waits for its end
	for {
		select {
		case <-ctx.Done():
			return stop()
		case err := <-ended:
			return err // lead ends before its context only with an error
		case leads := <-v.r.LeaderCh():
			if err := stop(); err != nil {
				return err
			}
			stop = func() error { return nil }
			if leads {
				stop = v.startLeading(ctx, ended)
			}
		}
	}
}

func (v *raftRun) startLeading(ctx context.Context, ended chan error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		ended <- (&leader{raftRun: v}).lead(ctx)
	}()
	return func() error {
		cancel()
		return <-ended
	}
}

// handOn transfers the leadership to another voter, if this node leads.
func (v *raftRun) handOn() {
	if v.r.State() != raft.Leader || len(v.r.GetConfiguration().Configuration().Servers) == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(stopTimeout, 2*v.cfg.Election))
	defer cancel()
	if err := v.await(ctx, v.r.LeadershipTransfer()); err != nil {
		v.log.Info("could not transfer leadership; the other voters will elect a leader", "error", err)
	}
}

// stop ends raft, each step bounded. The node stays in raft's configuration. A draining node has handed over its vote
// before (see HandOverVote). A stuck node first closes its connections, because its heartbeats keep others from
// leading.
func (v *raftRun) stop(stuck bool) error {
	var errs []error
	if stuck {
		errs = append(errs, v.trans.close())
	}
	futures := v.refuseFutures()
	if !stuck {
		bounded(futures.Wait) // before the shutdown, which leaves some of them unanswered
	}
	ended := bounded(func() { _ = v.r.Shutdown().Error() })
	if !stuck {
		errs = append(errs, v.trans.close())
	}
	if !ended {
		return errors.Join(append(errs, fmt.Errorf("stop raft: %w", ErrStuck))...)
	}
	return errors.Join(append(errs, v.disk.close())...)
}

// bounded runs f and reports whether it ended in time.
func bounded(f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-time.After(stopTimeout):
		return false
	}
}

// clusterSpace is the UUID namespace of cluster IDs.
const clusterSpace = "6f1d3c4e-6a0e-5d52-9f3b-0a4a4de1c0b7"

// clusterIDOf returns the ID of the cluster that begins with these voters. It
// follows from their identities, so each voter knows it from the start and
// announces it: from then on no other node bootstraps.
func clusterIDOf(servers []planner.Server) string {
	var b strings.Builder
	for _, s := range servers {
		b.WriteString(string(s.ID) + "\n")
	}
	return uuid.NewSHA1(uuid.MustParse(clusterSpace), []byte(b.String())).String()
}

// toldCluster returns the cluster of a voter that received its log from others, before there
// is a map: the cluster that its members announce, or the one that follows from its voters.
func toldCluster(members []shard.Member, servers []planner.Server) string {
	for _, m := range members {
		if m.ClusterID != "" {
			return m.ClusterID
		}
	}
	return clusterIDOf(servers)
}
