package clienttest

import (
	"context"
	"slices"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// votersLocked returns the voters, and those of them that run. All nodes vote until the
// voters are recovered.
func (c *Cluster) votersLocked() (voters, run []string) {
	for _, n := range c.nodes {
		if c.recovered != "" && n.Name != c.recovered {
			continue
		}
		voters = append(voters, n.Name)
		n.mu.Lock()
		if n.server != nil {
			run = append(run, n.Name)
		}
		n.mu.Unlock()
	}
	return voters, run
}

// leaderLocked returns the first running voter if a majority of the voters runs, else "".
func (c *Cluster) leaderLocked() string {
	if voters, run := c.votersLocked(); 2*len(run) > len(voters) {
		return run[0]
	}
	return ""
}

// recoveredStep is the increase of the map version when the voters are recovered.
const recoveredStep = 1 << 32

// RecoverVoters makes the first running node the only voter if no majority of voters runs.
func (s *adminServer) RecoverVoters(_ context.Context, r *pb.RecoverVotersRequest) (*pb.RecoverVotersResponse, error) {
	c := s.n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if leader := c.leaderLocked(); leader != "" {
		return nil, refusal("voters", false, "%s reports that %s leads the voters: there is nothing to recover", leader, leader)
	}
	voters, run := c.votersLocked()
	version := c.shardMap.GetVersion()
	out := &pb.RecoverVotersResponse{Node: s.n.Name, MapVersion: version, AnnouncedVersion: version, Voters: voters, Reachable: run}
	if len(run) > 0 {
		out.Node = run[0]
	}
	switch {
	case r.GetDryRun():
		return out, nil
	case r.GetNode() != out.GetNode() || r.GetMapVersion() != version:
		return nil, refusal("node", false, "review the plan again")
	}
	c.recovered = out.GetNode()
	m := c.cloneMapLocked()
	m.Version += recoveredStep
	m.Generation = m.GetVersion()
	c.shardMap, out.NewVersion = m, m.GetVersion()
	c.broadcastLocked()
	return out, nil
}

// votesLocked reports whether a node votes.
func (c *Cluster) votesLocked(node string) bool {
	voters, _ := c.votersLocked()
	return slices.Contains(voters, node)
}
