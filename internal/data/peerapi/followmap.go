package peerapi

import (
	"sync"

	"google.golang.org/grpc"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// encodedMap is the newest requested map, encoded once for all nodes.
type encodedMap struct {
	mu    sync.Mutex
	of    *shard.Map // guarded by mu
	bytes []byte     // guarded by mu; never changed
}

func (e *encodedMap) get(m *shard.Map) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == m {
		return e.bytes, nil
	}
	b, err := shard.EncodeMap(m)
	if err == nil {
		e.of, e.bytes = m, b
	}
	return b, err
}

// FollowMap implements peerv1.PeerServiceServer. Changes during a send are merged into
// one.
func (s *Service) FollowMap(r *peerv1.FollowMapRequest, out grpc.ServerStreamingServer[peerv1.FollowMapResponse]) error {
	cluster, sent := r.GetClusterId(), r.GetKnownVersion()
	for {
		changed := s.cfg.Node.Changes()
		if m, delta := s.cfg.Node.MapSince(cluster, sent); m != nil && (m.Version > sent || m.ClusterID != cluster) {
			next := new(peerv1.FollowMapResponse)
			var err error
			if delta != nil {
				next.Delta, err = delta.Encode()
			} else {
				next.Map, err = s.encodedMap.get(m)
			}
			if err != nil {
				return wire.Status(err)
			}
			if err := out.Send(next); err != nil {
				return err
			}
			cluster, sent = m.ClusterID, m.Version
		}
		if r.GetOnce() {
			return nil
		}
		select {
		case <-changed:
		case <-s.cfg.Stopping:
			return wire.Status(kv.ShuttingDown())
		case <-out.Context().Done():
			return out.Context().Err()
		}
	}
}
