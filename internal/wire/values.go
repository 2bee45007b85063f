package wire

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// KeyValue returns the value of the message.
func KeyValue(m *shardwatchv1.KeyValue) *kv.KeyValue {
	return kv.NewKeyValue(kv.Fields{
		Key: m.GetKey(), Value: m.GetValue(),
		CreateRevision: kv.Revision(m.GetCreateRevision()), ModRevision: kv.Revision(m.GetModRevision()),
		Version: m.GetVersion(), Lease: m.GetLease(),
	})
}

// KeyValueMessage returns the message for the value. It shares its bytes.
func KeyValueMessage(v *kv.KeyValue) *shardwatchv1.KeyValue {
	return &shardwatchv1.KeyValue{
		Key: v.Key(), Value: v.Value(),
		CreateRevision: int64(v.CreateRevision()), ModRevision: int64(v.ModRevision()),
		Version: v.Version(), Lease: v.Lease(),
	}
}

// MapMessage returns the map as clients see it.
func MapMessage(m *shard.Map) *shardwatchv1.ShardMap {
	return MapPart(m, func(int) bool { return true })
}

// MapPart returns the map with only the shards for whose index ok returns true.
func MapPart(m *shard.Map, ok func(i int) bool) *shardwatchv1.ShardMap {
	out := MapHeader(m)
	for i := range m.Shards {
		if ok(i) {
			one := shardMessage(&m.Shards[i])
			one.Joins = m.Joins(i)
			out.Shards = append(out.Shards, one)
		}
	}
	return out
}

// MapHeader returns the map without its shards.
func MapHeader(m *shard.Map) *shardwatchv1.ShardMap {
	out := &shardwatchv1.ShardMap{
		Lineage: m.Lineage, Version: m.Version, ClusterId: m.ClusterID, Generation: m.Generation,
		Drained: names(m.Drained), Replicas: int32(m.Spec.Replicas), //nolint:gosec // few
		FeatureLevel: int32(m.FinalLevel()), //nolint:gosec // few
	}
	if o := m.Origin; o != nil {
		out.Origin = &shardwatchv1.LineageOrigin{
			Cause: string(o.Cause), Reason: o.Reason, Node: string(o.Node), At: timestamppb.New(o.At),
			RevisionBefore: int64(o.Was.Revision), Revision: int64(o.Is.Revision),
		}
	}
	return out
}

func shardMessage(s *shard.Shard) *shardwatchv1.Shard {
	key, end := s.Range.Etcd()
	return &shardwatchv1.Shard{
		Id: uint64(s.ID), Key: key, RangeEnd: end, Epoch: s.Epoch, Replicas: names(s.Replicas),
		Pins: names(s.Home.Pins), WantedReplicas: int32(s.Home.Replicas), //nolint:gosec // few
	}
}

func names(nodes []shard.NodeID) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, string(n))
	}
	return out
}

// MemberMessage returns the member as clients see it.
func MemberMessage(m *shard.Member, voter, leader bool) *shardwatchv1.Member {
	state := map[shard.State]shardwatchv1.MemberState{
		shard.Alive:   shardwatchv1.MemberState_MEMBER_STATE_ALIVE,
		shard.Suspect: shardwatchv1.MemberState_MEMBER_STATE_SUSPECT,
		shard.Dead:    shardwatchv1.MemberState_MEMBER_STATE_DEAD,
		shard.Left:    shardwatchv1.MemberState_MEMBER_STATE_LEFT,
	}[m.State]
	return &shardwatchv1.Member{
		Name: string(m.Name), Uuid: m.UUID,
		ClientAddress: m.ClientAddress, PeerAddress: m.PeerAddress, HttpAddress: m.HTTPAddress,
		State: state, Voter: voter, Leader: leader, Draining: m.Draining, Zone: m.Zone, Version: m.Version,
		FeatureLevel: int32(m.Level), Weight: int32(max(m.Weight, 1)), //nolint:gosec // bounded by gossip
	}
}
