package authz

import (
	"net"
	"net/http"
	"net/netip"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Web fails unless the caller of an HTTP request has operator:read, which metrics, the status page and profiles
// require. As at the client port, a verified certificate or a bearer token identifies the caller. a is not nil.
func (a *Authorizer) Web(r *http.Request) error {
	ctx := metadata.NewIncomingContext(r.Context(), metadata.MD{tokenKeys()[0]: r.Header.Values("Authorization")})
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: net.TCPAddrFromAddrPort(from)})
	}
	var shown policy.Names
	if r.TLS != nil {
		shown = verifiedNames(r.TLS)
	}
	s, tokens := a.state.Load(), [2]string{}
	if s.keys != nil {
		tokens = tokensOf(ctx)
	}
	names, _, err := s.identify(shown, tokens)
	if err != nil {
		a.count.unknown.Add(1)
		a.cfg.Audit.refused(ctx, shown.First(), err)
		return err
	}
	return (&Caller{a: a, names: names}).May(ctx, policy.OperatorRead, kv.Range{})
}
