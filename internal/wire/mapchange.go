package wire

import (
	"slices"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Order decodes an operator's change of the shard map. It fails with a *kv.InvalidError if the
// request names no change.
func Order(m *shardwatchv1.ChangePlacementRequest) (mapchange.Order, error) {
	out := mapchange.Order{
		ID: m.GetRequestId(), Repeated: m.GetRepeated(), IfVersion: m.GetIfVersion(), DryRun: m.GetDryRun(), Force: m.GetForce(),
	}
	switch c := m.GetChange().(type) {
	case *shardwatchv1.ChangePlacementRequest_Split:
		split := mapchange.Split{Shard: shard.ID(c.Split.GetShard())}
		for _, key := range c.Split.GetAt() {
			split.At = append(split.At, string(key))
		}
		out.Request = split
	case *shardwatchv1.ChangePlacementRequest_Merge:
		out.Request = mapchange.Merge{Shard: shard.ID(c.Merge.GetShard()), With: shard.ID(c.Merge.GetWith())}
	case *shardwatchv1.ChangePlacementRequest_Move:
		out.Request = mapchange.Move{Shard: shard.ID(c.Move.GetShard()), To: nodes(c.Move.GetTo()), Owner: shard.NodeID(c.Move.GetOwner())}
	case *shardwatchv1.ChangePlacementRequest_Drain:
		out.Request = mapchange.Drain{Nodes: nodes(c.Drain.GetNodes())}
	case *shardwatchv1.ChangePlacementRequest_Undrain:
		out.Request = mapchange.Undrain{Nodes: nodes(c.Undrain.GetNodes())}
	case *shardwatchv1.ChangePlacementRequest_Rebalance:
		out.Request = mapchange.Rebalance{}
	case *shardwatchv1.ChangePlacementRequest_Finalize:
		out.Request = mapchange.Finalize{Level: int(c.Finalize.GetLevel())}
	case *shardwatchv1.ChangePlacementRequest_Settings:
		settings := mapchange.Settings{Replicas: int(c.Settings.GetReplicas())}
		for _, r := range c.Settings.GetServed() {
			one, err := kv.RangeFromEtcd(r.GetKey(), r.GetRangeEnd())
			if err != nil {
				return out, &kv.InvalidError{Field: "served", Reason: err.Error()}
			}
			settings.Ranges = append(settings.Ranges, one)
		}
		out.Request = settings
	default:
		return out, &kv.InvalidError{Field: "change", Reason: "name the change: split, merge, move, drain, undrain, rebalance, finalize or settings"}
	}
	return out, nil
}

// SettingsMessage returns the current settings.
func SettingsMessage(m *shard.Map) *shardwatchv1.ClusterSettings {
	out := &shardwatchv1.ClusterSettings{Replicas: int32(m.Spec.Replicas)} //nolint:gosec // few
	for _, r := range m.Spec.Ranges {
		key, end := r.Etcd()
		out.Served = append(out.Served, &shardwatchv1.KeyRange{Key: key, RangeEnd: end})
	}
	return out
}

func nodes(names []string) []shard.NodeID {
	var out []shard.NodeID
	for _, n := range names {
		out = append(out, shard.NodeID(n))
	}
	return out
}

// planPart is the number of steps in a message.
const planPart = 1000

// PlanMessages returns a plan in parts; there is always one.
func PlanMessages(p *mapchange.Plan) []*shardwatchv1.PlacementPlan {
	out := []*shardwatchv1.PlacementPlan{{MapVersion: p.Version, Warnings: p.Warnings}}
	for steps := range slices.Chunk(p.Steps, planPart) {
		last := out[len(out)-1]
		if len(last.GetSteps()) > 0 {
			last = &shardwatchv1.PlacementPlan{MapVersion: p.Version}
			out = append(out, last)
		}
		for i := range steps {
			last.Steps = append(last.Steps, stepMessage(&steps[i]))
		}
	}
	return out
}

func stepMessage(s *mapchange.Step) *shardwatchv1.PlacementStep {
	out := &shardwatchv1.PlacementStep{Filling: names(s.Filling), BytesToCopy: s.Bytes, BytesToFree: s.Freed}
	for i := range s.From {
		out.From = append(out.From, shardMessage(&s.From[i]))
	}
	for i := range s.To {
		out.To = append(out.To, shardMessage(&s.To[i]))
	}
	return out
}

// maxFilling bounds the number of reported loading replicas.
const maxFilling = 100

// ProgressMessage returns the progress of a plan.
func ProgressMessage(p *mapchange.Progress) *shardwatchv1.PlacementProgress {
	out := &shardwatchv1.PlacementProgress{MapVersion: p.Version, ShardsLeft: int32(p.Left), Done: p.Done} //nolint:gosec // few
	for _, f := range p.Filling[:min(len(p.Filling), maxFilling)] {
		out.Filling = append(out.Filling, &shardwatchv1.ReplicaFilling{
			Shard: uint64(f.Shard), Node: string(f.Node), Bytes: f.Bytes, OfBytes: f.OfBytes,
		})
	}
	return out
}
