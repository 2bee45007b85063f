package admin

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
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// obedient accepts all changes.
type obedient struct{}

func (obedient) ChangeMap(_ context.Context, _ mapchange.Order, planned func(*mapchange.Plan) error, _ func(*mapchange.Progress) error) error {
	return planned(&mapchange.Plan{})
}

func (obedient) RecoverVoters(_ context.Context, o mapchange.RecoverOrder) (*mapchange.Recovery, uint64, error) {
	plan := &mapchange.Recovery{Node: "n3", MapVersion: 7, Announced: 9, Voters: []shard.NodeID{"n1", "n3"}, Reachable: []shard.NodeID{"n3"}}
	if o.DryRun {
		return plan, 0, nil
	}
	return plan, 100, plan.Confirms(o)
}

// Without a policy, log records identify an operator by the name in its certificate.
func TestLogsNameTheOperatorOfTheCertificate(t *testing.T) {
	var out bytes.Buffer
	srv := New(Config{Callers: &callers.Checker{}, Operator: obedient{}, Logger: slog.New(slog.NewTextHandler(&out, nil))})
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

// RecoverVoters forwards the request with the reviewed plan; the audit log records only the actual recovery.
func TestRecoverVoters(t *testing.T) {
	var out bytes.Buffer
	srv := New(Config{Callers: &callers.Checker{}, Operator: obedient{}, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	admin := &adminService{srv: srv}
	plan, err := admin.RecoverVoters(t.Context(), &shardwatchv1.RecoverVotersRequest{DryRun: true})
	if err != nil || plan.GetNode() != "n3" || plan.GetMapVersion() != 7 || plan.GetAnnouncedVersion() != 9 || plan.GetNewVersion() != 0 ||
		len(plan.GetVoters()) != 2 || len(plan.GetReachable()) != 1 || out.Len() > 0 {
		t.Errorf("the plan is %v, %v; logged %s", plan, err, &out)
	}
	if _, err := admin.RecoverVoters(t.Context(), &shardwatchv1.RecoverVotersRequest{MapVersion: 7}); err == nil || !strings.Contains(err.Error(), "dry_run") {
		t.Errorf("a request without a node: %v", err)
	}
	if _, err := admin.RecoverVoters(t.Context(), &shardwatchv1.RecoverVotersRequest{Node: "n3", MapVersion: 6}); err == nil || !strings.Contains(out.String(), "recovery of the voters failed") {
		t.Errorf("a request for an outdated plan: %v; logged %s", err, &out)
	}
	done, err := admin.RecoverVoters(t.Context(), &shardwatchv1.RecoverVotersRequest{Node: "n3", MapVersion: 7})
	if err != nil || done.GetNewVersion() != 100 || !strings.Contains(out.String(), "voters recovered by an operator") {
		t.Errorf("the recovery: %v, %v; logged %s", done, err, &out)
	}
}
