package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cachetest"
	"github.com/shardwatch/shardwatch/internal/operate"
	"github.com/shardwatch/shardwatch/internal/router"
)

// obedient does what it is told.
type obedient struct{}

func (obedient) Operate(_ context.Context, _ operate.Order, planned func(*operate.Plan) error, _ func(*operate.Progress) error) error {
	return planned(&operate.Plan{})
}

// Without a policy the log names an operator as the certificate does.
func TestOrdersNameWhoTheCertificateDoes(t *testing.T) {
	var out bytes.Buffer
	cfg := Defaults()
	h := cachetest.New()
	cfg.Router = router.New(router.Config{Shards: cachetest.NewNode("here", h, nil), Clock: h})
	cfg.Operator, cfg.Logger = obedient{}, slog.New(slog.NewTextHandler(&out, nil))
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	shown := credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "ops"}}}}}}
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}, AuthInfo: shown})
	drain := &shardwatchv1.ChangePlacementRequest{Change: &shardwatchv1.ChangePlacementRequest_Drain{Drain: &shardwatchv1.DrainNodes{Nodes: []string{"node-3"}}}}
	if err := (&adminService{srv: srv}).changePlacement(ctx, drain, func(*shardwatchv1.ChangePlacementResponse) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `change="drain node-3"`) || !strings.Contains(out.String(), " identity=cn:ops ") {
		t.Error(out.String())
	}
}
