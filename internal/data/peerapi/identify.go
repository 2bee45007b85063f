package peerapi

import (
	"context"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
)

// ShareToken implements peerv1.PeerServiceServer.
func (s *Service) ShareToken(_ context.Context, r *peerv1.ShareTokenRequest) (*peerv1.ShareTokenResponse, error) {
	if g := s.cfg.Guard; g != nil {
		g.Share(r.GetTokenSha256(), r.GetUser())
	}
	return &peerv1.ShareTokenResponse{}, nil
}

// IdentifyToken implements peerv1.PeerServiceServer.
func (s *Service) IdentifyToken(_ context.Context, r *peerv1.IdentifyTokenRequest) (*peerv1.IdentifyTokenResponse, error) {
	out := &peerv1.IdentifyTokenResponse{}
	if g := s.cfg.Guard; g != nil {
		out.User = g.Identify(r.GetTokenSha256())
	}
	return out, nil
}

// ReadRights implements peerv1.PeerServiceServer.
func (s *Service) ReadRights(context.Context, *peerv1.ReadRightsRequest) (*peerv1.ReadRightsResponse, error) {
	if g := s.cfg.Guard; g != nil {
		return g.Rights(), nil
	}
	return &peerv1.ReadRightsResponse{}, nil
}

// RereadRights implements peerv1.PeerServiceServer.
func (s *Service) RereadRights(ctx context.Context, _ *peerv1.RereadRightsRequest) (*peerv1.RereadRightsResponse, error) {
	if g := s.cfg.Guard; g != nil {
		g.Reread(context.WithoutCancel(ctx)) // the other node waits only for a while
	}
	return &peerv1.RereadRightsResponse{}, nil
}
