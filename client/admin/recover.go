package admin

import (
	"context"
	"fmt"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// VoterRecovery is the plan of a recovery of the voters: after a majority of them was
// lost permanently, one node becomes the only voter, and adds others.
type VoterRecovery struct {
	// Node is the future voter, and MapVersion the version of its shard map. Later
	// changes of the map are lost.
	Node       string
	MapVersion uint64
	// AnnouncedVersion is the newest version that any node has announced.
	AnnouncedVersion uint64
	// Voters has the known voters, Reachable those of them that still vote.
	Voters, Reachable []string
	// NewVersion is the version of the map that the new voter started with; 0 in a plan.
	NewVersion uint64
}

// recoveryTime bounds a recovery, beyond an attempt: nodes that hang are asked twice,
// and the new voter elects itself.
const recoveryTime = 15 * time.Second

// PlanVoterRecovery returns the plan for [Client.RecoverVoters]. It fails with a
// [RefusedError] while the voters can elect a leader themselves.
func (c *Client) PlanVoterRecovery(ctx context.Context) (VoterRecovery, error) {
	return c.recoverVoters(ctx, &pb.RecoverVotersRequest{DryRun: true})
}

// RecoverVoters executes a plan of [Client.PlanVoterRecovery]. It fails with a [RefusedError]
// if the plan has changed since. Watches, positions and the lineage are not affected.
func (c *Client) RecoverVoters(ctx context.Context, plan VoterRecovery) (VoterRecovery, error) {
	return c.recoverVoters(ctx, &pb.RecoverVotersRequest{Node: plan.Node, MapVersion: plan.MapVersion})
}

func (c *Client) recoverVoters(ctx context.Context, request *pb.RecoverVotersRequest) (VoterRecovery, error) {
	var out VoterRecovery
	// A repetition after success is rejected: there is a leader then.
	err := c.anyNode(ctx, recoveryTime, func(ctx context.Context, node pb.AdminServiceClient) error {
		r, err := node.RecoverVoters(ctx, request)
		out = VoterRecovery{
			Node: r.GetNode(), MapVersion: r.GetMapVersion(), AnnouncedVersion: r.GetAnnouncedVersion(),
			Voters: r.GetVoters(), Reachable: r.GetReachable(), NewVersion: r.GetNewVersion(),
		}
		return err //nolint:wrapcheck // judged by Call, wrapped below
	})
	if err != nil {
		return VoterRecovery{}, fmt.Errorf("recover the voters: %w", err)
	}
	return out, nil
}
