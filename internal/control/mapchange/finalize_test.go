package mapchange_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// A level is finalized when every member that has not left understands it, and only once.
func TestFinalizeWaitsForEveryMember(t *testing.T) {
	older := func(c *mapchange.Cluster) { c.Members[3].Level, c.Members[3].Version = shard.LevelWatches, "v0.9.0" }
	for _, test := range []struct {
		name   string
		level  int
		change func(c *mapchange.Cluster)
		want   string // part of the refusal; "": none
		plan   shard.Change
	}{
		{"all understand it", 0, func(*mapchange.Cluster) {}, "", shard.Finalize{Level: shard.Level}},
		{"by its number", shard.Level, func(*mapchange.Cluster) {}, "", shard.Finalize{Level: shard.Level}},
		{"a member is older", 0, older, "d runs v0.9.0, which understands level 4: upgrade it", nil},
		{"a dead member is older", 0, func(c *mapchange.Cluster) {
			older(c)
			c.Members[3].State = shard.Dead
		}, "d is away and ran v0.9.0, which understands level 4", nil},
		{"an older member has left", 0, func(c *mapchange.Cluster) {
			older(c)
			c.Members[3].State = shard.Left
		}, "", shard.Finalize{Level: shard.Level}},
		{"a voter was not seen", 0, func(c *mapchange.Cluster) { c.Voters = append(c.Voters, "e") }, "voter e was not seen", nil},
		{"the voters are not known", 0, func(c *mapchange.Cluster) { c.Voters = nil }, "no voter answers", nil},
		{"this node does not understand it", shard.Level + 1, func(*mapchange.Cluster) {}, "this node understands feature levels up to", nil},
		{"a newer member, which this node does not understand", 0, func(c *mapchange.Cluster) { c.Members[0].Level++ }, "this node understands feature levels up to", nil},
		{"it is final", 0, func(c *mapchange.Cluster) {
			older(c)
			c.Map.Finalized = shard.Level
		}, "", nil},
		{"all are older", 0, func(c *mapchange.Cluster) {
			for i := range c.Members {
				c.Members[i].Level = shard.LevelWatches
			}
		}, "", nil},
	} {
		c := cluster(t)
		test.change(c)
		for _, force := range []bool{false, true} {
			p, err := mapchange.NewPlan(c, mapchange.Order{Request: mapchange.Finalize{Level: test.level}, Force: force})
			refused := new(mapchange.RefusedError)
			switch {
			case test.want != "":
				if !errors.As(err, &refused) || refused.Force || !strings.Contains(refused.Reason, test.want) {
					t.Errorf("%s: %v, want %q", test.name, err, test.want)
				}
			case err != nil:
				t.Errorf("%s: %v", test.name, err)
			case !reflect.DeepEqual(p.Change, test.plan):
				t.Errorf("%s: %+v", test.name, p.Change)
			}
		}
	}
}
