package peerapi

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Nodes of different clusters never exchange data: shard IDs, epochs, lineages and
// revisions are local to a cluster. A node of another cluster may call when this node
// was rebuilt at an address that the caller remembers.

// Options returns the interceptors of all calls at the peer port.
func (s *Service) Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
			err := s.sameCluster(ctx, info.FullMethod)
			if err == nil {
				err = s.speaks(ctx, request)
			}
			if err != nil {
				return nil, wire.Status(err)
			}
			return serve(ctx, request)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
			if err := s.sameCluster(stream.Context(), info.FullMethod); err != nil {
				return wire.Status(err)
			}
			if s.cfg.Speaks == nil {
				return serve(srv, stream)
			}
			return serve(srv, &claims{stream, s})
		}),
	}
}

// claims is a stream of a peer, whose requests may name their sender.
type claims struct {
	grpc.ServerStream
	srv *Service
}

// RecvMsg implements grpc.ServerStream.
func (c *claims) RecvMsg(m any) error {
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return wire.Status(c.srv.speaks(c.Context(), m))
}

// speaks fails when a request names another node than the caller's certificate.
func (s *Service) speaks(ctx context.Context, request any) error {
	r, ok := request.(interface{ GetNode() string })
	if s.cfg.Speaks == nil || !ok || r.GetNode() == "" {
		return nil
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			if err := s.cfg.Speaks(&info.State, r.GetNode()); err != nil {
				return &kv.DeniedError{Detail: fmt.Sprintf("the caller claims to be node %s: %v", r.GetNode(), err)}
			}
		}
	}
	return nil
}

// sameCluster fails when the caller has named another cluster. Maps are exempt: they
// name their cluster, so a node that has joined the wrong cluster detects it.
func (s *Service) sameCluster(ctx context.Context, method string) error {
	m := s.cfg.Node.Map()
	theirs := wire.NamedCluster(ctx)
	if m == nil || theirs == "" || theirs == m.ClusterID || method == peerv1.PeerService_FollowMap_FullMethodName {
		return nil
	}
	return &kv.UnavailableError{
		Why: kv.NotReady, RetryAfter: kv.RetrySoon,
		Detail: fmt.Sprintf("node %s belongs to cluster %s and the caller to cluster %s: ask another node", s.cfg.Self, m.ClusterID, theirs),
	}
}
