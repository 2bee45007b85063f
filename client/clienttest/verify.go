package clienttest

import (
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// Corrupt makes the next Verify find a key wrong in the copy of a node.
func (c *Cluster) Corrupt(node, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.corrupt == nil {
		c.corrupt = make(map[string]string)
	}
	c.corrupt[node] = key
}

// Verify reports copies that are equal except for the keys of Corrupt, which it repairs.
func (s *adminServer) Verify(r *pb.VerifyRequest, out pb.AdminService_VerifyServer) error {
	for _, m := range s.verified(r) {
		if m == nil {
			return status.Errorf(codes.InvalidArgument, "shard_ids: there is no shard %d", r.GetShardIds()[0]) //nolint:wrapcheck // gRPC's own
		}
		if err := out.Send(m); err != nil {
			return err //nolint:wrapcheck // gRPC's own
		}
	}
	return nil
}

// verified returns the answers; a nil answer: there is no such shard.
func (s *adminServer) verified(r *pb.VerifyRequest) (out []*pb.VerifyResponse) {
	c := s.n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sh := range c.shardMap.GetShards() {
		if len(r.GetShardIds()) > 0 && !slices.Contains(r.GetShardIds(), sh.GetId()) {
			continue
		}
		start, end, _ := span(sh.GetKey(), sh.GetRangeEnd())
		if start == "\x00" {
			start = ""
		}
		m := &pb.VerifyResponse{ShardId: sh.GetId(), Revision: c.hist.revision(), Etcd: r.GetEtcd()}
		for _, name := range sh.GetReplicas() {
			v := &pb.VerifiedCopy{Node: name, Digest: 0x5eed}
			for _, kv := range c.hist.state(c.hist.revision(), start, end) {
				v.Keys++
				v.Bytes += int64(len(kv.GetKey()) + len(kv.GetValue()))
				if c.corrupt[name] == string(kv.GetKey()) {
					v.Wrong, v.Digest = true, 0xbad
					m.Differences = append(m.Differences, &pb.KeyDifference{Key: kv.GetKey(), Node: name, ModRevision: kv.GetModRevision()})
					delete(c.corrupt, name)
				}
			}
			m.Copies = append(m.Copies, v)
		}
		out = append(out, m)
	}
	for i, m := range out {
		m.Checked, m.Total = int64(i+1), int64(len(out))
	}
	if len(out) == 0 && len(r.GetShardIds()) > 0 {
		return []*pb.VerifyResponse{nil}
	}
	return out
}
