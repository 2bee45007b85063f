package node

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// namer tells which cluster its callers have named.
type namer struct {
	peerv1.UnimplementedPeerServiceServer
	named chan string
}

func (n *namer) ShareToken(ctx context.Context, _ *peerv1.ShareTokenRequest) (*peerv1.ShareTokenResponse, error) {
	n.named <- wire.NamedCluster(ctx)
	return &peerv1.ShareTokenResponse{}, nil
}

func (n *namer) Follow(_ *peerv1.FollowRequest, s grpc.ServerStreamingServer[peerv1.FollowResponse]) error {
	n.named <- wire.NamedCluster(s.Context())
	return nil
}

// A node names its cluster whenever it calls another node, so that one of another
// cluster at the same address refuses the call.
func TestCallsToNodesNameTheCluster(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &namer{named: make(chan string, 1)}
	s := grpc.NewServer()
	peerv1.RegisterPeerServiceServer(s, n)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	defer func() { s.Stop(); <-ended }()

	cluster := ""
	p := newPeers(func(shard.NodeID) (shard.Member, bool) {
		return shard.Member{Name: "other", PeerAddress: l.Addr().String(), State: shard.Alive}, true
	}, func() string { return cluster }, nil, nil, nil)
	defer p.close()
	conn, err := p.conn("other")
	if err != nil {
		t.Fatal(err)
	}
	peer := peerv1.NewPeerServiceClient(conn)
	for _, cluster = range []string{"", "ours"} {
		if _, err := peer.ShareToken(t.Context(), &peerv1.ShareTokenRequest{}); err != nil {
			t.Fatal(err)
		}
		if got := <-n.named; got != cluster {
			t.Errorf("a call names cluster %q, want %q", got, cluster)
		}
		if _, err := peer.Follow(t.Context(), &peerv1.FollowRequest{}); err != nil {
			t.Fatal(err)
		}
		if got := <-n.named; got != cluster {
			t.Errorf("a stream names cluster %q, want %q", got, cluster)
		}
	}
}
