package server_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// A node that was rebuilt at the address of an old one does not serve nodes of the old cluster:
// their shards, lineages and revisions have the same numbers.
func TestNodesOfAnotherClusterAreNotServed(t *testing.T) {
	h := cachetest.New()
	write(h, testseed.Rand(t), 20)
	r := start(t, h, options{server: brief})
	r.serving()
	conn := dial(t, r.peers)
	peer, cache := peerv1.NewPeerServiceClient(conn), pb.NewCacheServiceClient(conn)
	calls := map[string]func(cluster string) error{
		"follow": func(cluster string) error {
			key, end := r.node.Map().Shards[0].Range.Etcd()
			s, err := peer.Follow(wire.NameCluster(t.Context(), cluster),
				&peerv1.FollowRequest{ShardId: 1, Key: key, RangeEnd: end, FromRevision: int64(h.Now()), Lineage: 1, Node: "old"})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"beat": func(cluster string) error {
			s, err := peer.Beat(wire.NameCluster(t.Context(), cluster))
			if err == nil {
				_ = s.Send(&peerv1.BeatRequest{PingNanos: 1}) // Recv returns the error
				_, err = s.Recv()
			}
			return err
		},
		"a list": func(cluster string) error {
			key, end := kv.Range{}.Etcd()
			s, err := cache.List(wire.NameCluster(t.Context(), cluster), &pb.ListRequest{Key: key, RangeEnd: end, Revision: int64(h.Now())})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"a token": func(cluster string) error {
			_, err := peer.ShareToken(wire.NameCluster(t.Context(), cluster), &peerv1.ShareTokenRequest{})
			return err
		},
	}
	for name, call := range calls {
		var unavailable *kv.UnavailableError
		if err := wire.Error(call("rebuilt")); !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "belongs to cluster test and the caller to cluster rebuilt") {
			t.Errorf("%s: %v", name, err)
		}
		for _, cluster := range []string{"test", ""} {
			if err := call(cluster); err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("%s of cluster %q: %v", name, cluster, err)
			}
		}
	}
	// The map names its cluster. A node that joined the wrong cluster may read it, and so detects the
	// mistake.
	maps, err := peer.FollowMap(wire.NameCluster(t.Context(), "rebuilt"), &peerv1.FollowMapRequest{})
	if err == nil {
		_, err = maps.Recv()
	}
	if err != nil {
		t.Errorf("the map: %v", err)
	}
}
