package admin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// RevisionTrace has the times of a revision at a node, as far as the node has kept them.
// Received is the time of the node's own clock; durations count from it, and are exact.
type RevisionTrace struct {
	Node string
	// Oldest and Newest bound the revisions that the node has kept; 0: none. Between
	// them it has only the revisions that changed its shards.
	Oldest, Newest int64
	// Received is when the node received the revision; zero: it has not kept it.
	Received time.Time
	Hops     []RevisionHop
	// Nodes and Watches are when it was sent to other nodes and to watches of clients.
	Nodes, Watches RevisionSent
}

// RevisionHop has the times of a revision in a node's copy of one shard.
type RevisionHop struct {
	Shard uint64
	// Relay: the copy is a window without state, kept for clients of the node.
	Relay  bool
	Source ReplicaSource
	// SourceNode is the node that sent the revision, with SourcePeer.
	SourceNode string
	// Received is when it had arrived completely, Applied when reads could see it.
	Received, Applied time.Duration
}

// RevisionSent has how many times a revision was forwarded, and when for the first and,
// so far, the last time.
type RevisionSent struct {
	Times       int64
	First, Last time.Duration
}

// TraceRevision requests the trace of a revision from the node at an address.
func (c *Client) TraceRevision(ctx context.Context, address string, revision int64) (RevisionTrace, error) {
	var r *pb.TraceRevisionResponse
	err := c.c.CallNode(ctx, address, 0, func(ctx context.Context, node grpc.ClientConnInterface) (err error) {
		r, err = pb.NewAdminServiceClient(node).TraceRevision(ctx, &pb.TraceRevisionRequest{Revision: revision})
		return err //nolint:wrapcheck // judged by CallNode, wrapped below
	})
	if err != nil {
		return RevisionTrace{}, fmt.Errorf("trace of revision %d at %s: %w", revision, address, err)
	}
	out := RevisionTrace{
		Node: r.GetNode(), Oldest: r.GetOldest(), Newest: r.GetNewest(),
		Nodes: revisionSentFrom(r.GetNodes()), Watches: revisionSentFrom(r.GetWatches()),
	}
	if r.GetReceived() != nil {
		out.Received = r.GetReceived().AsTime()
	}
	for _, h := range r.GetHops() {
		out.Hops = append(out.Hops, RevisionHop{
			Shard: h.GetShardId(), Relay: h.GetRelay(), Source: ReplicaSource(h.GetSource()), SourceNode: h.GetSourceNode(),
			Received: h.GetReceived().AsDuration(), Applied: h.GetApplied().AsDuration(),
		})
	}
	return out, nil
}

func revisionSentFrom(s *pb.RevisionSent) RevisionSent {
	return RevisionSent{Times: s.GetTimes(), First: s.GetFirst().AsDuration(), Last: s.GetLast().AsDuration()}
}
