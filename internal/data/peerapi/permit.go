package peerapi

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Permit implements peerv1.PeerServiceServer. The header is sent at once: it
// shows waiting callers that the granting node is alive.
func (s *Service) Permit(r *peerv1.PermitRequest, out grpc.ServerStreamingServer[peerv1.PermitResponse]) error {
	p := s.cfg.Permits
	if p == nil {
		return wire.Status(&kv.UnavailableError{Why: kv.NotReady, Detail: "this node grants no permits"})
	}
	if err := out.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	release, err := p.Grant(out.Context(), shard.NodeID(r.GetNode()), r.GetPurpose())
	if err != nil {
		return err
	}
	defer release()
	if err := out.Send(&peerv1.PermitResponse{}); err != nil {
		return err
	}
	<-out.Context().Done() // the caller releases the permit
	return nil
}
