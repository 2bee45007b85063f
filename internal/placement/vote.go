package placement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// vote runs raft until ctx ends.
func (p *Placement) vote(ctx context.Context) (err error) {
	log := newRaftLogger(p.log)
	disk, err := p.open(log)
	if err != nil {
		if p.cfg.Listener != nil {
			err = errors.Join(err, p.cfg.Listener.Close())
		}
		return err
	}
	trans := openTransport(&p.cfg, p.configured, log)
	f := newFSM(p.board.show, p.votes.ring)
	r, err := raft.NewRaft(p.raftConfig(log), f, disk.logs, disk.stable, disk.snaps, trans.Transport)
	if err != nil {
		select {
		case why := <-f.broken: // raft tells only that it failed
			err = errors.Join(why, err)
		default:
		}
		return errors.Join(fmt.Errorf("start raft: %w", err), trans.close(), disk.close())
	}
	p.setCurrent(r)
	defer func() {
		p.setCurrent(nil)
		err = errors.Join(err, p.stop(r, trans, disk, errors.Is(err, ErrStuck)))
	}()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	voting := make(chan struct{})
	go func() { // the log may hold what this version cannot follow
		defer close(voting)
		select {
		case err := <-f.broken:
			cancel(err)
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel(nil)
		<-voting
	}()

	if err := p.bootstrap(ctx, r, disk); err != nil {
		return err
	}
	if err := p.followLeadership(ctx, r, disk.logs); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// configured returns where raft's configuration has a voter, or "".
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

func (p *Placement) open(log raftLogger) (*storage, error) {
	var disk *storage
	if p.cfg.Disk != nil {
		disk = p.cfg.Disk.storage()
	} else {
		var err error
		if disk, err = openStorage(p.cfg.DataDir, log); err != nil {
			return nil, err
		}
	}
	id, err := disk.clusterID()
	if err != nil {
		return nil, errors.Join(err, disk.close())
	}
	if m := p.Map(); m != nil && id != "" && m.ClusterID != id {
		return nil, errors.Join(fmt.Errorf("the map file belongs to cluster %s, the raft log beside it to cluster %s: remove the one that is wrong: %w", m.ClusterID, id, ErrForeign), disk.close())
	}
	p.setCluster(id)
	return disk, nil
}

func (p *Placement) raftConfig(log raftLogger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = p.self
	c.HeartbeatTimeout, c.ElectionTimeout = p.cfg.Heartbeat, p.cfg.Election
	c.LeaderLeaseTimeout = p.cfg.Heartbeat / 2
	c.CommitTimeout = p.cfg.Heartbeat // commit does not wait for it
	c.SnapshotThreshold = 1024        // a map is small, and so is its log
	c.TrailingLogs = 1024
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true
	c.Logger = log
	return c
}

// bootstrap waits until the node has a part in a cluster: by its log, by
// bootstrapping with the others, or by being told that there is one.
func (p *Placement) bootstrap(ctx context.Context, r *raft.Raft, disk *storage) error {
	has, err := raft.HasExistingState(disk.logs, disk.stable, disk.snaps)
	if err != nil {
		return fmt.Errorf("look at the raft log: %w", err)
	}
	if has {
		return nil
	}
	p.setCluster("") // it may have been written, and the log not
	if id := p.ClusterID(); id != "" {
		p.log.Info("the raft log is empty, the map file is not: waiting to be added again", "cluster", id)
		return nil
	}
	said := ""
	for {
		changed := p.members.wait()
		if r.LastIndex() > 0 || p.ClusterID() != "" {
			return nil // others were faster, and have added us
		}
		d := decideStart(founding{
			self: p.self, expect: p.cfg.BootstrapExpect, join: p.cfg.Join, settle: p.cfg.Settle, members: p.cfg.Members(),
		}, time.Now())
		if d.servers != nil {
			return p.bootstrapWith(ctx, r, disk, d.servers)
		}
		if d.wait != said {
			p.log.Info("not bootstrapping", "why", d.wait)
			said = d.wait
		}
		wait := membersPoll
		if !d.again.IsZero() {
			wait = min(wait, time.Until(d.again))
		}
		if !pause(ctx, wait, true, changed) {
			return nil
		}
	}
}

func (p *Placement) bootstrapWith(ctx context.Context, r *raft.Raft, disk *storage, servers []raft.Server) error {
	id := clusterIDOf(servers)
	if err := disk.setClusterID(id); err != nil {
		return err
	}
	err := p.await(ctx, r.BootstrapCluster(raft.Configuration{Servers: servers}))
	switch {
	case err == nil:
		p.log.Info("bootstrapped", "cluster", id, "voters", len(servers))
		p.setCluster(id)
		p.votes.ring()
		return nil
	case errors.Is(err, raft.ErrCantBootstrap):
		// Others were faster, and we have their log by now. The cluster's ID
		// comes with the map: they may have begun with other voters.
		return disk.setClusterID("")
	case ctx.Err() != nil:
		return nil //nolint:nilerr // stopped; the next start sees whether there is a log
	default:
		return fmt.Errorf("bootstrap raft: %w", err)
	}
}

// followLeadership leads while raft says so.
func (p *Placement) followLeadership(ctx context.Context, r *raft.Raft, log *timedLog) error {
	ended := make(chan error, 1)
	stop := func() error { return nil } // leading, and waits until that has ended
	for {
		select {
		case <-ctx.Done():
			return stop()
		case err := <-ended:
			return err // it does not end by itself but for a reason
		case leads := <-r.LeaderCh():
			if err := stop(); err != nil {
				return err
			}
			stop = func() error { return nil }
			if leads {
				stop = p.startLeading(ctx, r, log, ended)
			}
		}
	}
}

func (p *Placement) startLeading(ctx context.Context, r *raft.Raft, log *timedLog, ended chan error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		ended <- p.lead(ctx, r, log)
	}()
	return func() error {
		cancel()
		return <-ended
	}
}

// stop hands leadership on and ends raft, each step bounded. The node stays in
// raft's configuration; a node that drains has handed its vote over before (see
// HandOverVote). A node that is stuck cuts itself off first: its heartbeats keep
// others from leading.
func (p *Placement) stop(r *raft.Raft, trans transport, disk *storage, stuck bool) error {
	var errs []error
	if stuck {
		errs = append(errs, trans.close())
	} else if r.State() == raft.Leader && len(r.GetConfiguration().Configuration().Servers) > 1 {
		ctx, cancel := context.WithTimeout(context.Background(), min(stopTimeout, 2*p.cfg.Election))
		if err := p.await(ctx, r.LeadershipTransfer()); err != nil {
			p.log.Info("could not hand leadership on; the others will elect", "err", err)
		}
		cancel()
	}
	p.refuseFutures()
	if !stuck {
		bounded(p.futures.Wait) // before the shutdown, which does not answer all of them
	}
	ended := bounded(func() { _ = r.Shutdown().Error() })
	if !stuck {
		errs = append(errs, trans.close())
	}
	if !ended {
		return errors.Join(append(errs, fmt.Errorf("stop raft: %w", ErrStuck))...)
	}
	return errors.Join(append(errs, disk.close())...)
}

// bounded runs f and reports whether it ended in time.
func bounded(f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	t := time.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
