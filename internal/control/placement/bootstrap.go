package placement

import (
	"strings"

	"github.com/google/uuid"

	"github.com/shardwatch/shardwatch/internal/control/planner"
	"github.com/shardwatch/shardwatch/internal/shard"
)

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
