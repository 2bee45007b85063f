package shard_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

// A new lineage only changes the map's data about etcd. A second request is
// refused, with another version of the map or with the same lineage.
func TestRenew(t *testing.T) {
	m := maptest.Found(t, maptest.Spec(2, 2), "m")
	origin := shard.Origin{
		Cause: kv.CauseRevision, Reason: "it is at revision 3, and was at 7", Node: "n1", At: time.Unix(1_700_000_000, 0).UTC(),
		Was: kv.Mark{Cluster: 1, Term: 5, Index: 12, Revision: 7}, Is: kv.Mark{Cluster: 1, Term: 2, Index: 4, Revision: 3},
	}
	renew := shard.Renew{Lineage: m.Lineage, EtcdClusterID: 1, Origin: origin}
	command := shard.Command{RequestID: "r", IfVersion: m.Version, Change: renew}
	encoded, err := shard.EncodeCommand(command)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := shard.DecodeCommand(encoded)
	if err != nil || !reflect.DeepEqual(decoded, command) {
		t.Fatalf("%+v came back as %+v, %v", command, decoded, err)
	}
	next, err := shard.Apply(m, decoded)
	if err != nil {
		t.Fatal(err)
	}
	want := m.Clone()
	want.Lineage, want.Version, want.EtcdClusterID, want.Origin = m.Lineage+1, m.Version+1, 1, &origin
	if !reflect.DeepEqual(next, want) {
		t.Errorf("%+v, want %+v", next, want)
	}
	b, err := shard.EncodeMap(next)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := shard.DecodeMap(b); err != nil || !reflect.DeepEqual(back, next) {
		t.Errorf("%+v came back as %+v, %v", next, back, err)
	}

	var ended *shard.LineageError
	_, err = shard.Apply(next, shard.Command{IfVersion: next.Version, Change: renew})
	if !errors.As(err, &ended) || *ended != (shard.LineageError{Ended: 1, Current: 2}) || !errors.Is(err, shard.ErrRefused) {
		t.Errorf("a lineage ended twice: %v", err)
	}
	for name, bad := range map[string]shard.Renew{
		"no etcd":  {Lineage: 2, Origin: origin},
		"no cause": {Lineage: 2, EtcdClusterID: 1},
	} {
		if _, err := shard.Apply(next, shard.Command{IfVersion: next.Version, Change: bad}); !errors.Is(err, shard.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Commands and maps have the lowest level that contains their features, so that older versions
// understand them.
func TestCommandsHaveTheLowestSufficientLevel(t *testing.T) {
	m := maptest.Found(t, maptest.Spec(2, 2), "m")
	level := func(b []byte, err error) byte {
		if err != nil {
			t.Fatal(err)
		}
		return b[0]
	}
	renewed := m.Clone()
	renewed.Origin = &shard.Origin{Cause: kv.CauseOperator}
	drained, homed := renewed.Clone(), m.Clone()
	drained.Drained = []shard.NodeID{"n1"}
	homed.Shards[0].Home.Pins = []shard.NodeID{"n1"}
	for _, c := range []struct {
		name string
		got  byte
		want byte
	}{
		{"drained map", level(shard.EncodeMap(drained)), 3},
		{"map with a home", level(shard.EncodeMap(homed)), 3},
		{"merge", level(shard.EncodeCommand(shard.Command{Change: shard.Merge{}})), 3},
		{"rehome", level(shard.EncodeCommand(shard.Command{Change: shard.Rehome{}})), 3},
		{"drain", level(shard.EncodeCommand(shard.Command{Change: shard.Drain{}})), 3},
		{"split that stays", level(shard.EncodeCommand(shard.Command{Change: shard.Split{Shard: 1, At: []string{"a"}, Stay: true}})), 3},
		{"map", level(shard.EncodeMap(m)), 1},
		{"map with an origin", level(shard.EncodeMap(renewed)), 2},
		{"split", level(shard.EncodeCommand(shard.Command{Change: shard.Split{Shard: 1, At: []string{"a"}}})), 1},
		{"renew", level(shard.EncodeCommand(shard.Command{Change: shard.Renew{Lineage: 1}})), 2},
	} {
		if c.got != c.want {
			t.Errorf("%s: level %d, want %d", c.name, c.got, c.want)
		}
	}
}
