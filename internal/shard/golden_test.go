package shard_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// Raft logs and files of earlier versions are read with their original meaning, and
// are still written in the same way. A golden file is never changed: another
// encoding needs another feature level. UPDATE=1 writes missing files.
func TestGoldenEncodings(t *testing.T) {
	origin := shard.Origin{
		Cause: kv.CauseOperator, Reason: "restored", Node: "a", At: time.Unix(1_700_000_000, 0).UTC(),
		Was: kv.Mark{Revision: 9}, Is: kv.Mark{Revision: 7},
	}
	base := shard.Map{
		ClusterID: "c", EtcdClusterID: 1, Lineage: 1, Version: 3, NextID: 3,
		Spec: shard.Spec{Ranges: []kv.Range{{Start: "/\xff"}}, Shards: 2, Replicas: 2},
		Shards: []shard.Shard{
			{ID: 1, Range: kv.Range{Start: "/\xff", End: "m"}, Epoch: 2, Replicas: []shard.NodeID{"a", "b"}},
			{ID: 2, Range: kv.Range{Start: "m"}, Epoch: 1},
		},
	}
	edit := func(f func(*shard.Map)) *shard.Map {
		m := base.Clone()
		f(m)
		return m
	}
	for name, m := range map[string]*shard.Map{
		"level1-map":         edit(func(*shard.Map) {}),
		"level2-map-origin":  edit(func(m *shard.Map) { m.Lineage, m.Origin = 2, &origin }),
		"level3-map-drained": edit(func(m *shard.Map) { m.Drained = []shard.NodeID{"b"} }),
		"level3-map-homes": edit(func(m *shard.Map) {
			m.Shards[1].Home = shard.Home{Seat: 1, Pins: []shard.NodeID{"b"}, Replicas: 3}
		}),
		"level4-map-parting":    edit(func(m *shard.Map) { m.Shards[0].Home.Parting, m.Shards[1].Home.Whole = 5, 6 }),
		"level5-map-generation": edit(func(m *shard.Map) { m.Generation, m.Version = 9, 10 }),
		"level5-map-final":      edit(func(m *shard.Map) { m.Finalized = 5 }),
		"level5-map-owners":     edit(func(m *shard.Map) { m.Spec.Owners = 2 }),
	} {
		b, err := shard.EncodeMap(m)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, b)
		if back, err := shard.DecodeMap(b); err != nil || !reflect.DeepEqual(back, m) {
			t.Errorf("%s is read as %+v, %v", name, back, err)
		}
	}
	for name, c := range map[string]shard.Change{
		"level1-found":         shard.Found{ClusterID: "c", EtcdClusterID: 1, Spec: base.Spec, Cuts: []string{"m\xfe"}, Replicas: [][]shard.NodeID{{"a"}, {"b"}}},
		"level1-assign":        shard.Assign{Moves: []shard.Move{{Shard: 1, Replicas: []shard.NodeID{"b", "a"}}}},
		"level1-split":         shard.Split{Shard: 1, At: []string{"/\xff\x01"}},
		"level2-renew":         shard.Renew{Lineage: 1, EtcdClusterID: 2, Origin: origin},
		"level3-split-stay":    shard.Split{Shard: 1, At: []string{"k"}, Stay: true},
		"level3-merge":         shard.Merge{Shards: []shard.ID{1, 2}, Replicas: []shard.NodeID{"a"}},
		"level3-rehome":        shard.Rehome{Homes: []shard.ShardHome{{Shard: 1, Home: shard.Home{Seat: 2, Pins: []shard.NodeID{"a"}, Replicas: 1}}}},
		"level3-drain":         shard.Drain{Nodes: []shard.NodeID{"a"}},
		"level3-undrain":       shard.Drain{Nodes: []shard.NodeID{"a"}, Undo: true},
		"level4-split-watches": shard.Split{Shard: 1, At: []string{"k"}, Stay: true, Watches: 9},
		"level4-rehome":        shard.Rehome{Homes: []shard.ShardHome{{Shard: 1, Home: shard.Home{Whole: 9}}}},
		"level5-configure":     shard.Configure{Replicas: 3, Ranges: []kv.Range{{Start: "/\xff", End: "m"}, {Start: "n"}}},
		"level5-found": shard.Found{
			ClusterID: "c", EtcdClusterID: 1, Spec: base.Spec, Cuts: []string{"m\xfe"}, Replicas: [][]shard.NodeID{{"a"}, {"b"}}, Finalized: 5,
		},
		"level5-finalize": shard.Finalize{Level: 5},
	} {
		command := shard.Command{RequestID: "request", IfVersion: 3, Change: c}
		b, err := shard.EncodeCommand(command)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, b)
		if back, err := shard.DecodeCommand(b); err != nil || !reflect.DeepEqual(back, command) {
			t.Errorf("%s is read as %+v, %v", name, back, err)
		}
	}
}

// golden compares an encoding with its file, whose name begins with its level.
func golden(t *testing.T, name string, b []byte) {
	t.Helper()
	if want := fmt.Sprintf("level%d-", b[0]); !bytes.HasPrefix([]byte(name), []byte(want)) {
		t.Errorf("%s is written with level %d", name, b[0])
	}
	path := filepath.Join("testdata", "golden", name+".json")
	want, err := os.ReadFile(path)
	if os.IsNotExist(err) && os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, append(b[1:len(b):len(b)], '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := b[1:]; !bytes.Equal(got, bytes.TrimSuffix(want, []byte("\n"))) {
		t.Errorf("%s is written as\n%s\nnot as\n%s", name, got, want)
	}
}
