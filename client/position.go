package client

import (
	"fmt"
	"strconv"

	"google.golang.org/grpc/metadata"
)

// Position is a revision with the history it belongs to. Revisions of different
// histories cannot be compared: after a restore etcd goes back to an earlier revision,
// and a rebuilt etcd starts again, at the same addresses.
type Position struct {
	// Cluster is the ID of the cluster of nodes (admin.ShardMap.ClusterID), which is
	// random. Each cluster counts its lineages from 1. If both are zero, the history is
	// not known and not compared.
	Cluster string
	Lineage uint64
	// Revision is etcd's revision.
	Revision int64
}

// String returns the position as readable text.
func (p Position) String() string {
	if p.history() == (history{}) {
		return fmt.Sprintf("revision %d", p.Revision)
	}
	return fmt.Sprintf("revision %d of lineage %d in cluster %s", p.Revision, p.Lineage, p.Cluster)
}

func (p Position) history() history { return history{p.Cluster, p.Lineage} }

// history is the cluster and lineage that a revision belongs to.
type history struct {
	cluster string
	lineage uint64
}

// fits reports whether h, parts of which may be unknown, can be o.
func (h history) fits(o history) bool {
	return (h.cluster == "" || h.cluster == o.cluster) && (h.lineage == 0 || h.lineage == o.lineage)
}

// wrong returns the error for a position of history h if the actual history is o.
func (h history) wrong(o history) error {
	if h.cluster != "" && h.cluster != o.cluster {
		return ErrCluster
	}
	return ErrLineage
}

// The headers of answers to writes, which pass through to etcd: its API has no fields
// for a history.
const (
	clusterHeader = "shardwatch-cluster"
	lineageHeader = "shardwatch-lineage"
)

// positionFrom returns the position of a write from its answer.
func positionFrom(header metadata.MD, revision int64) Position {
	p := Position{Revision: revision}
	if ids := header.Get(clusterHeader); len(ids) == 1 {
		p.Cluster = ids[0]
	}
	if lineages := header.Get(lineageHeader); len(lineages) == 1 {
		p.Lineage, _ = strconv.ParseUint(lineages[0], 10, 64)
	}
	return p
}
