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
	// Node is the node, and MapVersion the version of the shard map that it has. Later
	// changes of the map are lost.
	Node       string
	MapVersion uint64
	// AnnouncedVersion is the newest version that any node has announced.
	AnnouncedVersion uint64
	// Voters are the voters as far as they are known, Reachable those that vote yet.
	Voters, Reachable []string
	// NewVersion is the version of the map that the new voter began with; 0 in a plan.
	NewVersion uint64
}

// recoveryTime is what a recovery takes at most, beyond an attempt: nodes that hang are
// asked twice, and the new voter elects itself.
const recoveryTime = 15 * time.Second

// PlanVoterRecovery returns what [Client.RecoverVoters] would do. It fails with a
// [RefusedError] while the voters can elect a leader by themselves.
func (c *Client) PlanVoterRecovery(ctx context.Context) (VoterRecovery, error) {
	return c.recoverVoters(ctx, &pb.RecoverVotersRequest{DryRun: true})
}

// RecoverVoters carries out a plan of [Client.PlanVoterRecovery]. It fails with a
// [RefusedError] when the plan has changed since. Watches, positions and the lineage
// stay.
func (c *Client) RecoverVoters(ctx context.Context, plan VoterRecovery) (VoterRecovery, error) {
	return c.recoverVoters(ctx, &pb.RecoverVotersRequest{Node: plan.Node, MapVersion: plan.MapVersion})
}

func (c *Client) recoverVoters(ctx context.Context, request *pb.RecoverVotersRequest) (VoterRecovery, error) {
	var out VoterRecovery
	// Repeated after it was carried out, it is refused: there is a leader then.
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
