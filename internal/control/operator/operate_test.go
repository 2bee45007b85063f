package operator_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/control/operator"
	"github.com/shardwatch/shardwatch/internal/control/placement"
	"github.com/shardwatch/shardwatch/internal/membership"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

// The voters have carried out an order, but the changed map has not reached the node that receives the
// repeated order. All shards of the order have settled there: the order is done only when the map arrives.
func TestARepeatedChangeIsNotDoneBeforeItsMapArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const self, id = "here", "order"
		split := mapchange.Split{Shard: 1, At: []string{"c"}}
		m := maptest.Pair(t, self)
		next, err := shard.Apply(m, shard.Command{IfVersion: m.Version, Change: shard.Split{Shard: split.Shard, At: split.At, Stay: true}})
		if err != nil {
			t.Fatal(err)
		}
		pc := placement.Defaults()
		pc.Name, pc.UUID, pc.Disk = self, "u", placement.NewMemDisk()
		pc.Members = func() []shard.Member {
			return []shard.Member{{Name: self, State: shard.Alive}, {Name: "voter", State: shard.Alive, BootstrapExpect: 1}}
		}
		pc.Forward = func(_ context.Context, _ shard.NodeID, command []byte) (uint64, error) {
			c, err := shard.DecodeCommand(command)
			if err == nil && c.RequestID != id {
				err = shard.ErrRefused
			}
			return next.Version, err
		}
		p, err := placement.New(pc)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Observe(m); err != nil {
			t.Fatal(err)
		}
		mc := membership.Defaults()
		mc.Self = shard.Member{Name: self, UUID: "u"}
		members, err := membership.New(mc)
		if err != nil {
			t.Fatal(err)
		}
		o := operator.New(operator.Config{
			Self: self, Placement: p, Members: members,
			Status: func() *shardwatchv1.StatusResponse { // every copy is loaded
				s := new(shardwatchv1.StatusResponse)
				for of := range uint64(next.NextID) {
					s.Replicas = append(s.Replicas, &shardwatchv1.ReplicaStatus{ShardId: of, Ready: true})
				}
				return s
			},
		})

		var told []mapchange.Progress
		done := make(chan error, 1)
		go func() {
			done <- o.ChangeMap(t.Context(), mapchange.Order{ID: id, Repeated: true, Request: split},
				func(plan *mapchange.Plan) error {
					if plan.Version != next.Version {
						t.Errorf("the plan is for version %d, want %d", plan.Version, next.Version)
					}
					return nil
				},
				func(now *mapchange.Progress) error {
					told = append(told, *now)
					return nil
				})
		}()
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Fatalf("the order is done before the map has arrived: %+v, %v", told, err)
		default:
		}
		if err := p.Observe(next); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || len(told) == 0 || !told[len(told)-1].Done || told[0].Version != next.Version {
			t.Errorf("progress %+v, %v", told, err)
		}
	})
}
