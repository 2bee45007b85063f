package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// RecoverVoters implements server.Operator.
func (o *Operator) RecoverVoters(ctx context.Context, order mapchange.RecoverOrder) (plan *mapchange.Recovery, version uint64, err error) {
	if plan, err = o.judgeRecovery(ctx); err != nil {
		return nil, 0, err
	}
	if !order.DryRun {
		if err := plan.Confirms(order); err != nil {
			return nil, 0, err
		}
	}
	if plan.Node == o.cfg.Self {
		version, err = o.BeginVoting(ctx, plan.MapVersion, order.DryRun)
		return plan, version, err
	}
	conn, err := o.cfg.Conn(plan.Node)
	if err != nil {
		return nil, 0, err
	}
	r, err := peerv1.NewPeerServiceClient(conn).RecoverVoters(ctx, &peerv1.RecoverVotersRequest{MapVersion: plan.MapVersion, DryRun: order.DryRun})
	if err != nil {
		return nil, 0, fmt.Errorf("recover the voters at %s: %w", plan.Node, wire.Error(err))
	}
	return plan, r.GetMapVersion(), nil
}

// BeginVoting implements server.Operator. The node decides by its own view: the node
// that received the request may see fewer nodes.
func (o *Operator) BeginVoting(ctx context.Context, mapVersion uint64, dryRun bool) (version uint64, err error) {
	plan, err := o.judgeRecovery(ctx)
	if err != nil {
		return 0, err
	}
	if err := plan.Confirms(mapchange.RecoverOrder{Node: o.cfg.Self, MapVersion: mapVersion}); err != nil || dryRun {
		return 0, err
	}
	if version, err = o.cfg.Placement.Recover(mapVersion); err != nil {
		if !errors.Is(err, shard.ErrRefused) {
			err = &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: err.Error()}
		}
		return 0, err
	}
	return version, o.awaitLead(ctx)
}

// leadPoll is the interval at which awaitLead checks whether the node leads.
const leadPoll = 20 * time.Millisecond

// awaitLead waits until this node leads the voters.
func (o *Operator) awaitLead(ctx context.Context) error {
	tick := time.NewTicker(leadPoll)
	defer tick.Stop()
	for {
		if leader, _ := o.cfg.Placement.Leader(); leader == o.cfg.Self {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return &kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "the voters are recovered, but this node does not lead them yet"}
		}
	}
}

// judgeRecovery asks all nodes that gossip sees, and plans the recovery from the answers.
func (o *Operator) judgeRecovery(ctx context.Context) (*mapchange.Recovery, error) {
	members := o.cfg.Members.Members()
	var ask []shard.NodeID
	witnesses := make([]mapchange.Witness, 0, len(members))
	for _, m := range members {
		witnesses = append(witnesses, mapchange.Witness{Member: m})
		if m.State == shard.Alive || m.State == shard.Suspect {
			ask = append(ask, m.Name)
		}
	}
	var mu sync.Mutex
	o.ask(ctx, ask, func(node shard.NodeID, s *shardwatchv1.StatusResponse) {
		mu.Lock()
		defer mu.Unlock()
		w := &witnesses[slices.IndexFunc(witnesses, func(w mapchange.Witness) bool { return w.Member.Name == node })]
		w.Answered, w.MapVersion, w.RaftIndex, w.Leader = true, s.GetMapVersion(), s.GetRaftIndex(), shard.NodeID(s.GetRaftLeader())
		for _, v := range s.GetVoters() {
			w.Voters = append(w.Voters, shard.NodeID(v))
		}
	})
	news, _ := o.cfg.Members.MapNews()
	return mapchange.NewRecovery(witnesses, news.Version)
}
