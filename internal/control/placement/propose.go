package placement

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Pauses between two attempts of a proposal.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = time.Second
)

// Propose makes a change of the map through any leader, and returns the version
// of the map it made. It tries until ctx ends (ProposeTimeout when ctx has no
// deadline), with one request ID, so that the change is made at most once. If
// the last attempt returned ErrUnknownOutcome or timed out, the change may have
// been made. An error that wraps [shard.ErrRefused] is final.
func (p *Placement) Propose(ctx context.Context, c shard.Command) (uint64, error) {
	if c.RequestID == "" {
		c.RequestID = uuid.NewString()
	}
	b, err := shard.EncodeCommand(c)
	if err != nil {
		return 0, fmt.Errorf("propose: %w", err)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.cfg.ProposeTimeout)
		defer cancel()
	}
	for wait := firstPause; ; wait = min(2*wait, maxPause) {
		v, err := p.proposeOnce(ctx, b)
		if err == nil || errors.Is(err, shard.ErrRefused) || errors.Is(err, shard.ErrNewer) {
			return v, err
		}
		if !pause(ctx, wait, true) {
			return 0, fmt.Errorf("propose: %w: %w", ctx.Err(), err)
		}
	}
}

func (p *Placement) proposeOnce(ctx context.Context, b []byte) (uint64, error) {
	v, err := p.ApplyEncoded(ctx, b)
	var elsewhere *NotLeaderError
	if !errors.As(err, &elsewhere) {
		return v, err
	}
	if p.cfg.Forward == nil {
		return 0, err
	}
	ask := []shard.NodeID{elsewhere.Leader}
	if elsewhere.Leader == "" {
		ask = planner.KnowsLeader(p.ourMembers(), p.cfg.Name)
	}
	for _, to := range ask {
		v, err = p.cfg.Forward(ctx, to, b)
		if errors.As(err, &elsewhere) && elsewhere.Leader != "" && elsewhere.Leader != to {
			v, err = p.cfg.Forward(ctx, elsewhere.Leader, b)
		}
		if err == nil || errors.Is(err, shard.ErrRefused) || ctx.Err() != nil {
			return v, err
		}
	}
	return 0, err
}

// ApplyEncoded makes a change that another node forwarded, if this node leads.
// Otherwise it fails with a NotLeaderError. The same command may be repeated.
func (p *Placement) ApplyEncoded(ctx context.Context, command []byte) (uint64, error) {
	c, err := shard.DecodeCommand(command)
	if err != nil {
		return 0, err // an invalid command must never reach the log
	}
	r := p.current()
	if r == nil || r.State() != raft.Leader {
		leader, _ := p.Leader()
		return 0, &NotLeaderError{Leader: leader}
	}
	return p.commit(ctx, r, c.Change, command)
}

// commit applies an encoded command through raft, once.
func (p *Placement) commit(ctx context.Context, r *raft.Raft, change shard.Change, b []byte) (uint64, error) {
	err := shard.Allows(p.Map(), change, shard.CommandLevel(b), p.ourMembers())
	if err != nil {
		return 0, err
	}
	f := r.Apply(b, p.cfg.BarrierTimeout)
	err = p.await(ctx, f)
	switch {
	case err == nil:
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrRaftShutdown):
		leader, _ := p.Leader()
		if leader == p.cfg.Name {
			leader = ""
		}
		return 0, &NotLeaderError{Leader: leader}
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return 0, fmt.Errorf("%w (the leader is busy)", ErrNoLeader)
	default:
		return 0, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	// Voters learn the commit index with the next entry. Without an entry, raft
	// would send a message every CommitTimeout, forever.
	_ = r.Barrier(p.cfg.BarrierTimeout)
	out, ok := f.Response().(outcome)
	if !ok {
		return 0, fmt.Errorf("%w: raft returned %T", ErrUnknownOutcome, f.Response())
	}
	return out.version, out.err
}

// later is a future that begins when it is awaited: raft may have ended.
type later func() raft.Future

// Error implements raft.Future.
func (f later) Error() error { return f().Error() }

// await waits for the future, or for ctx.
func (p *Placement) await(ctx context.Context, f raft.Future) error {
	p.mu.Lock()
	futures := p.futures
	if futures == nil {
		p.mu.Unlock()
		return raft.ErrRaftShutdown
	}
	futures.Add(1)
	p.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		defer futures.Done()
		done <- f.Error()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refuseFutures prevents further callers from waiting for raft, and returns the waiting ones.
func (p *Placement) refuseFutures() *sync.WaitGroup {
	p.mu.Lock()
	defer p.mu.Unlock()
	futures := p.futures
	p.futures = nil
	return futures
}
