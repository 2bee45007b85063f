package peers

import (
	"context"
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// namer is a node that records the cluster ID that its callers name.
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

// A node names its cluster in all calls to other nodes. A node of another cluster at the same address refuses the
// call.
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
	p := New(Config{Member: func(shard.NodeID) (shard.Member, bool) {
		return shard.Member{Name: "other", PeerAddress: l.Addr().String(), State: shard.Alive}, true
	}, Cluster: func() string { return cluster }})
	defer p.Close()
	conn, err := p.Conn("other")
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

// A connection uses the node's address in gossip. A node that is dead or has left has no connection.
func TestConnectionsFollowGossip(t *testing.T) {
	m := shard.Member{Name: "other", PeerAddress: "127.0.0.1:1", State: shard.Alive}
	known := true
	p := New(Config{Member: func(shard.NodeID) (shard.Member, bool) { return m, known }, Cluster: func() string { return "" }})
	defer p.Close()
	first, err := p.Conn("other")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.Conn("other"); err != nil || again != first {
		t.Errorf("a second call returned another connection, or failed: %v", err)
	}
	p.Prune()
	if again, _ := p.Conn("other"); again != first {
		t.Error("the connection to a live node was closed")
	}
	m.PeerAddress = "127.0.0.1:2"
	moved, err := p.Conn("other")
	if err != nil || moved == first || moved.address != m.PeerAddress {
		t.Errorf("the connection still uses the node's old address, or failed: %v", err)
	}
	gone := func(what string, err error) {
		t.Helper()
		var u *kv.UnavailableError
		if !errors.As(err, &u) || u.RetryAfter <= 0 {
			t.Errorf("%s: got %v, want UnavailableError with a retry delay", what, err)
		}
	}
	for _, state := range []shard.State{shard.Dead, shard.Left} {
		m.State = state
		_, err := p.Conn("other")
		gone("a node that is gone", err)
		if again, err := p.Reach("other"); err != nil || again != moved {
			t.Errorf("no connection for a sign of life of a node that may be gone: %v", err)
		}
	}
	for _, state := range []shard.State{shard.Dead, shard.Left} {
		m.State = state
		if p.Prune(); len(p.conns) != 0 {
			t.Error("the connection to a node that is dead or has left was kept")
		}
		if _, err := p.Reach("other"); err != nil {
			t.Fatal(err)
		}
	}
	known = false
	_, err = p.Conn("other")
	gone("an unknown node", err)
	if p.Prune(); len(p.conns) != 0 {
		t.Error("the connection to an unknown node was kept")
	}
	known, m.State = true, shard.Alive
	p.Close()
	_, err = p.Conn("other")
	gone("of a node that stops", err)
}
