package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// newerVoter serves a machine's map as software of the next feature level would, until
// the test has it serve the map unchanged.
type newerVoter struct {
	peerv1.UnimplementedPeerServiceServer
	of    *machine
	plain atomic.Bool
	calls atomic.Int32
}

func (v *newerVoter) FollowMap(_ *peerv1.FollowMapRequest, out grpc.ServerStreamingServer[peerv1.FollowMapResponse]) error {
	v.calls.Add(1)
	b, err := shard.EncodeMap(v.of.node.Map())
	if err != nil {
		return err
	}
	if b = bytes.Clone(b); !v.plain.Load() {
		b[0] = shard.Level + 1
	}
	return out.Send(&peerv1.FollowMapResponse{Map: b})
}

// besideNewer starts a voter that gossips a feature level and serves its map as
// newerVoter does, and then a node with an empty data directory that does not vote.
func besideNewer(t *testing.T, level int) (*machine, *newerVoter) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := startCluster(t, 1, 1, func(cfg *node.Config) {
		if cfg.Self.Name == "node-1" {
			cfg.Self.Level, cfg.Self.PeerAddress = level, l.Addr().String()
		}
	})
	v := &newerVoter{of: c.nodes[0]}
	s := grpc.NewServer()
	peerv1.RegisterPeerServiceServer(s, v)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-ended })
	c.ready()
	m := c.add("node-2")
	m.start()
	return m, v
}

// A node of older software joins a cluster whose upgrade was finalized: it ends, and
// its error names the levels and the remedy.
func TestAnOlderNodeThatDoesNotVoteRefusesToJoin(t *testing.T) {
	t.Parallel()
	m, _ := besideNewer(t, shard.Level+1)
	err := m.wait()
	if !errors.Is(err, shard.ErrNewer) {
		t.Fatalf("ended with %v", err)
	}
	for _, part := range []string{"the upgrade of the cluster was finalized", "start it with the version of node-1", fmt.Sprintf("feature level %d, this version knows %d", shard.Level+1, shard.Level)} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %q", err, part)
		}
	}
}

// A map with a level that its sender's software does not support is damaged: the node
// asks again, and does not end.
func TestANodeOutlivesAMapWithADamagedLevel(t *testing.T) {
	t.Parallel()
	m, v := besideNewer(t, shard.Level)
	testkit.Succeeds(t, "the map was requested again", func() error {
		if v.calls.Load() < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	v.plain.Store(true)
	testkit.Succeeds(t, "the node has the map", func() error {
		if m.node.Map() == nil {
			return errors.New("not yet")
		}
		return nil
	})
}
