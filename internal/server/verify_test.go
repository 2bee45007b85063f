package server_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cachetest"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/server"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// inspector finds two keys to differ, of whatever shard.
type inspector struct{}

func (inspector) Digest(context.Context, *peerv1.DigestRequest) (*peerv1.DigestResponse, error) {
	return nil, &kv.NotHereError{}
}

func (inspector) Recheck(shard.ID, shard.NodeID, bool) {}

func (inspector) Verify(_ context.Context, ids []shard.ID, _ bool, tell func(*pb.VerifyResponse) error) error {
	return tell(&pb.VerifyResponse{Checked: 1, Total: 1, ShardId: uint64(ids[0]), Differences: []*pb.KeyDifference{
		{Key: []byte("a1"), Node: "n2"}, {Key: []byte("b1"), Node: "n2"},
	}})
}

// Who may not read a key is told that more differ, and not which.
func TestVerifyNamesKeysToThoseWhoMayReadThem(t *testing.T) {
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
