package admin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// RevisionTrace is the way of a revision through a node, as far as it remembers.
// Received is the time of the node's own clock; durations count from it, and are
// exact.
type RevisionTrace struct {
	Node string
	// Oldest and Newest are the bounds of what the node remembers; 0: nothing. Of
	// what lies between them, only what has changed its shards.
	Oldest, Newest int64
	// Received is when the node had the revision; zero: it does not remember it.
	Received time.Time
	Hops     []RevisionHop
	// Nodes and Watches are its way on to other nodes and to watches of clients.
	Nodes, Watches RevisionSent
}

// RevisionHop is a revision's way into a node's copy of one shard.
type RevisionHop struct {
	Shard uint64
	// Relay: the copy is a window without state, kept for clients of the node.
	Relay  bool
	Source ReplicaSource
	// SourceNode is the node that it came from, with SourcePeer.
	SourceNode string
	// Received is when it was there in full, Applied when it could be read.
	Received, Applied time.Duration
}

// RevisionSent says when a revision was sent on: so many times, to the first and,
// as yet, to the last.
type RevisionSent struct {
	Times       int64
	First, Last time.Duration
}

// TraceRevision asks the node at an address for the way of a revision.
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
