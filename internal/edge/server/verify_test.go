package server_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// inspector reports two keys as different, in any shard, when may is closed.
type inspector struct{ may <-chan struct{} } // nil: at once

func (inspector) Digest(context.Context, *peerv1.DigestRequest) (*peerv1.DigestResponse, error) {
	return nil, &kv.NotHereError{}
}

func (inspector) Recheck(shard.ID, shard.NodeID, bool) {}

func (i inspector) Verify(ctx context.Context, ids []shard.ID, _ bool, tell func(*pb.VerifyResponse) error) error {
	if i.may != nil {
		if err := tell(&pb.VerifyResponse{}); err != nil { // the comparison has begun
			return err
		}
		select {
		case <-i.may:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return tell(&pb.VerifyResponse{Checked: 1, Total: 1, ShardId: uint64(ids[0]), Differences: []*pb.KeyDifference{
		{Key: []byte("a1"), Node: "n2"}, {Key: []byte("b1"), Node: "n2"},
	}})
}

// Callers that may not read a key are told that more keys differ, but not which.
func TestVerifyNamesKeysOnlyToPermittedReaders(t *testing.T) {
	g := newWarden()
	r := start(t, cachetest.New(), options{server: func(c *server.Config) { c.Guard, c.Verifier = g, inspector{} }})
	client := pb.NewAdminServiceClient(r.conn)
	verify := func(token string) (string, bool, error) {
		s, err := client.Verify(as(t, token), &pb.VerifyRequest{ShardIds: []uint64{7}})
		if err != nil {
			return "", false, err
		}
		m, err := s.Recv()
		var keys []string
		for _, d := range m.GetDifferences() {
			keys = append(keys, string(d.GetKey()))
		}
		return strings.Join(keys, " "), m.GetMore(), err
	}
	if keys, more, err := verify(""); keys != "a1 b1" || more || err != nil {
		t.Errorf("authentication is off: %q, more %v, %v", keys, more, err)
	}
	g.grant(map[string]string{"ann": "a", "bob": "x"})
	if keys, more, err := verify("ann"); keys != "a1" || !more || err != nil {
		t.Errorf("ann: %q, more %v, %v", keys, more, err)
	}
	if keys, more, err := verify("bob"); keys != "" || !more || err != nil {
		t.Errorf("bob: %q, more %v, %v", keys, more, err)
	}
	if _, _, err := verify(""); status.Code(err) != codes.Unauthenticated {
		t.Errorf("nobody: %v", err)
	}
}

// Comparing with all of etcd requires the right to read everything, if etcd has authentication on.
// The number of concurrent comparisons is bounded.
func TestVerifyIsBounded(t *testing.T) {
	g, may := newWarden(), make(chan struct{})
	r := start(t, cachetest.New(), options{server: func(c *server.Config) { c.Guard, c.Verifier = g, inspector{may} }})
	client := pb.NewAdminServiceClient(r.conn)
	begin := func(token string, etcd bool) (grpc.ServerStreamingClient[pb.VerifyResponse], error) {
		t.Helper()
		s, err := client.Verify(as(t, token), &pb.VerifyRequest{ShardIds: []uint64{7}, Etcd: etcd})
		if err == nil {
			_, err = s.Recv()
		}
		return s, err
	}
	var going []grpc.ServerStreamingClient[pb.VerifyResponse]
	for range 4 {
		s, err := begin("", true)
		if err != nil {
			t.Fatal(err)
		}
		going = append(going, s)
	}
	if _, err := begin("", false); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "use another node") {
		t.Errorf("a comparison beyond the limit: %v", err)
	}
	close(may)
	for _, s := range going {
		for {
			if _, err := s.Recv(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := begin("", false); err != nil {
		t.Errorf("a comparison after the others have ended: %v", err)
	}
	g.grant(map[string]string{"ann": "a"})
	if _, err := begin("ann", false); err != nil {
		t.Errorf("ann compares replicas: %v", err)
	}
	if _, err := begin("ann", true); status.Code(err) != codes.PermissionDenied {
		t.Errorf("ann compares with all of etcd: %v", err)
	}
}
