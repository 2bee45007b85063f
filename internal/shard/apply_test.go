package shard_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/maptest"
)

func TestApplyRefuses(t *testing.T) {
	m := maptest.Found(t, maptest.Spec(2, 2), "m")
	before := m.Clone()
	s := maptest.Spec(2, 1)
	owned := func(m *shard.Map) *shard.Map {
		for i := range m.Shards {
			m.Shards[i].Replicas = []shard.NodeID{"n"}
		}
		return m
	}
	apart := owned(maptest.Found(t, maptest.Spec(2, 1, kv.Prefix("a"), kv.Prefix("c"))))
	touching := owned(maptest.Found(t, maptest.Spec(2, 1, kv.Prefix("a"), kv.Prefix("b"))))
	for _, c := range []struct {
		name   string
		on     *shard.Map
		ifv    uint64
		change shard.Change
		want   error
	}{
		{"nothing", m, 1, nil, shard.ErrInvalid},
		{"founded", m, 1, shard.Found{ClusterID: "x", Spec: s}, shard.ErrFounded},
		{"not founded", nil, 0, shard.Assign{}, shard.ErrNotFounded},
		{"found: cut at start", nil, 0, shard.Found{ClusterID: "x", Spec: maptest.Spec(2, 1, kv.Prefix("a")), Cuts: []string{"a"}}, shard.ErrInvalid},
		{"found: cut outside", nil, 0, shard.Found{ClusterID: "x", Spec: maptest.Spec(2, 1, kv.Prefix("a")), Cuts: []string{"b"}}, shard.ErrInvalid},
		{"found: cuts out of order", nil, 0, shard.Found{ClusterID: "x", Spec: s, Cuts: []string{"b", "a"}}, shard.ErrInvalid},
		{"found: replicas", nil, 0, shard.Found{ClusterID: "x", Spec: s, Cuts: []string{"b"}, Replicas: [][]shard.NodeID{{"n"}}}, shard.ErrInvalid},
		{"found: no name", nil, 0, shard.Found{Spec: s}, shard.ErrInvalid},
		{"assign: nothing", m, 1, shard.Assign{}, shard.ErrInvalid},
		{"assign: unknown", m, 1, shard.Assign{Moves: []shard.Move{{Shard: 9, Replicas: []shard.NodeID{"n"}}}}, shard.ErrUnknownShard},
		{"assign: twice", m, 1, shard.Assign{Moves: []shard.Move{{Shard: 1, Replicas: []shard.NodeID{"n"}}, {Shard: 1, Replicas: []shard.NodeID{"n"}}}}, shard.ErrInvalid},
		{"assign: last replica", m, 1, shard.Assign{Moves: []shard.Move{{Shard: 1}}}, shard.ErrInvalid},
		{"assign: same node twice", m, 1, shard.Assign{Moves: []shard.Move{{Shard: 1, Replicas: []shard.NodeID{"n", "n"}}}}, shard.ErrInvalid},
		{"split: unknown", m, 1, shard.Split{Shard: 9, At: []string{"a"}}, shard.ErrUnknownShard},
		{"split: no cuts", m, 1, shard.Split{Shard: 1}, shard.ErrInvalid},
		{"split: at start", m, 1, shard.Split{Shard: 2, At: []string{"m"}}, shard.ErrInvalid},
		{"split: outside", m, 1, shard.Split{Shard: 1, At: []string{"m"}}, shard.ErrInvalid},
		{"merge: one", m, 1, shard.Merge{Shards: []shard.ID{1}, Replicas: []shard.NodeID{"n"}}, shard.ErrInvalid},
		{"merge: unknown", m, 1, shard.Merge{Shards: []shard.ID{1, 9}, Replicas: []shard.NodeID{"n"}}, shard.ErrUnknownShard},
		{"merge: no replica", m, 1, shard.Merge{Shards: []shard.ID{1, 2}}, shard.ErrInvalid},
		{"merge: a node without a part", m, 1, shard.Merge{Shards: []shard.ID{1, 2}, Replicas: []shard.NodeID{"n"}}, shard.ErrInvalid},
		{"merge: order", m, 1, shard.Merge{Shards: []shard.ID{2, 1}, Replicas: []shard.NodeID{"n"}}, shard.ErrInvalid},
		{"merge: over a hole", apart, 1, shard.Merge{Shards: []shard.ID{1, 2}, Replicas: []shard.NodeID{"n"}}, shard.ErrInvalid},
		{"merge: over served ranges", touching, 1, shard.Merge{Shards: []shard.ID{1, 2}, Replicas: []shard.NodeID{"n"}}, shard.ErrInvalid},
		{"rehome: nothing", m, 1, shard.Rehome{}, shard.ErrInvalid},
		{"rehome: unknown", m, 1, shard.Rehome{Homes: []shard.ShardHome{{Shard: 9}}}, shard.ErrUnknownShard},
		{"rehome: twice", m, 1, shard.Rehome{Homes: []shard.ShardHome{{Shard: 1}, {Shard: 1}}}, shard.ErrRefused},
		{"rehome: seat of no shard", m, 1, shard.Rehome{Homes: []shard.ShardHome{{Shard: 1, Home: shard.Home{Seat: 9}}}}, shard.ErrInvalid},
		{"rehome: pinned twice", m, 1, shard.Rehome{Homes: []shard.ShardHome{{Shard: 1, Home: shard.Home{Pins: []shard.NodeID{"n", "n"}}}}}, shard.ErrInvalid},
		{"rehome: too many replicas", m, 1, shard.Rehome{Homes: []shard.ShardHome{{Shard: 1, Home: shard.Home{Replicas: shard.MaxReplicas + 1}}}}, shard.ErrInvalid},
		{"drain: no node", m, 1, shard.Drain{}, shard.ErrInvalid},
		{"drain: nameless", m, 1, shard.Drain{Nodes: []shard.NodeID{""}}, shard.ErrInvalid},
		{"configure: no replicas", m, 1, shard.Configure{Ranges: s.Ranges}, shard.ErrInvalid},
		{"configure: too many replicas", m, 1, shard.Configure{Replicas: shard.MaxReplicas + 1, Ranges: s.Ranges}, shard.ErrInvalid},
		{"configure: nothing served", m, 1, shard.Configure{Replicas: 1}, shard.ErrInvalid},
		{"configure: overlapping ranges", m, 1, shard.Configure{Replicas: 1, Ranges: []kv.Range{kv.Prefix("a"), kv.Prefix("ab")}}, shard.ErrInvalid},
		{"configure: ranges out of order", m, 1, shard.Configure{Replicas: 1, Ranges: []kv.Range{kv.Prefix("c"), kv.Prefix("a")}}, shard.ErrInvalid},
		{"configure: empty range", m, 1, shard.Configure{Replicas: 1, Ranges: []kv.Range{{Start: "b", End: "a"}}}, shard.ErrInvalid},
		{"configure: too many ranges", m, 1, shard.Configure{Replicas: 1, Ranges: singles(shard.MaxRanges + 1)}, shard.ErrInvalid},
		{"split: out of order", m, 1, shard.Split{Shard: 1, At: []string{"b", "a"}}, shard.ErrInvalid},
	} {
		got, err := shard.Apply(c.on, shard.Command{IfVersion: c.ifv, Change: c.change})
		if got != nil || !errors.Is(err, c.want) || !errors.Is(err, shard.ErrRefused) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
	var stale *shard.StaleError
	_, err := shard.Apply(m, shard.Command{IfVersion: 4, Change: shard.Split{Shard: 1, At: []string{"a"}}})
	if !errors.As(err, &stale) || *stale != (shard.StaleError{IfVersion: 4, Current: 1}) || !errors.Is(err, shard.ErrRefused) {
		t.Errorf("stale: %v", err)
	}
	if !reflect.DeepEqual(m, before) {
		t.Error("the map was changed")
	}
}

// Random splits, merges and moves against a model: a list of cuts, and a set of
// replicas for each part. Every command and map is also encoded and decoded.
func TestApplyAgainstModel(t *testing.T) {
	rng := testseed.Rand(t)
	cuts := []string{""}
	replicas := [][]shard.NodeID{{"n0"}}
	m, err := shard.Apply(nil, shard.Command{Change: shard.Found{ClusterID: "c", Spec: maptest.Spec(1, 1), Replicas: replicas}})
	if err != nil {
		t.Fatal(err)
	}
	epochs := map[shard.ID]uint64{}
	for step := range 300 {
		i := rng.IntN(len(m.Shards))
		c := shard.Command{IfVersion: m.Version, RequestID: fmt.Sprint(step)}
		if rng.IntN(4) == 0 {
			if i == 0 || !slices.Equal(replicas[i-1], replicas[i]) {
				continue
			}
			c.Change = shard.Merge{Shards: []shard.ID{m.Shards[i-1].ID, m.Shards[i].ID}, Replicas: replicas[i]}
			cuts, replicas = slices.Delete(cuts, i, i+1), slices.Delete(replicas, i, i+1)
		} else if rng.IntN(3) == 0 {
			at := m.Shards[i].Range.Start + string([]byte{byte(rng.IntN(256))})
			if !m.Shards[i].Range.Contains(at) {
				continue
			}
			c.Change = shard.Split{Shard: m.Shards[i].ID, At: []string{at}, Stay: rng.IntN(2) == 0}
			cuts = slices.Insert(cuts, i+1, at)
			replicas = slices.Insert(replicas, i+1, replicas[i])
		} else {
			r := []shard.NodeID{shard.NodeID(fmt.Sprint("n", rng.IntN(9))), "last"}
			c.Change = shard.Assign{Moves: []shard.Move{{Shard: m.Shards[i].ID, Replicas: r}}}
			replicas[i] = r
		}
		b, err := shard.EncodeCommand(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := shard.DecodeCommand(b)
		if err != nil || !reflect.DeepEqual(back, c) {
			t.Fatalf("%+v came back as %+v, %v", c, back, err)
		}
		next, err := shard.Apply(m, back)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if next.Version != m.Version+1 || len(next.Shards) != len(cuts) {
			t.Fatalf("version %d after %d, %d shards, want %d", next.Version, m.Version, len(next.Shards), len(cuts))
		}
		for i, s := range next.Shards {
			if s.Range.Start != cuts[i] || !slices.Equal(s.Replicas, replicas[i]) {
				t.Fatalf("shard %d is %+v, want start %q on %v", i, s, cuts[i], replicas[i])
			}
			if s.Epoch < epochs[s.ID] {
				t.Fatalf("epoch of %d fell from %d to %d", s.ID, epochs[s.ID], s.Epoch)
			}
			epochs[s.ID] = s.Epoch
		}
		m = next
		mb, err := shard.EncodeMap(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := shard.DecodeMap(mb); err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("map came back as %+v, %v", got, err)
		}
	}
}

func TestEpochGrowsOnlyWithReplicas(t *testing.T) {
	m := maptest.Found(t, maptest.Spec(2, 1), "m")
	move := func(n shard.NodeID) {
		t.Helper()
		next, err := shard.Apply(m, shard.Command{IfVersion: m.Version, Change: shard.Assign{Moves: []shard.Move{{Shard: 1, Replicas: []shard.NodeID{n}}}}})
		if err != nil {
			t.Fatal(err)
		}
		m = next
	}
	move("a")
	move("a")
	move("b")
	if m.Shards[0].Epoch != 3 || m.Shards[1].Epoch != 1 || m.Version != 4 {
		t.Errorf("epochs %d, %d at version %d", m.Shards[0].Epoch, m.Shards[1].Epoch, m.Version)
	}
}

// The parts of a cut for watches keep the number of watches in the map and in commands,
// and so does the later verdict.
func TestMarksOfCutsAreInTheMap(t *testing.T) {
	m := maptest.Found(t, maptest.Spec(1, 1))
	step := func(c shard.Change) {
		t.Helper()
		b, err := shard.EncodeCommand(shard.Command{IfVersion: m.Version, Change: c})
		if err != nil {
			t.Fatal(err)
		}
		if shard.CommandLevel(b) != shard.LevelWatches {
			t.Errorf("%+v has level %d", c, shard.CommandLevel(b))
		}
		back, err := shard.DecodeCommand(b)
		if err != nil {
			t.Fatal(err)
		}
		if m, err = shard.Apply(m, back); err != nil {
			t.Fatal(err)
		}
		if b, err = shard.EncodeMap(m); err != nil {
			t.Fatal(err)
		}
		if got, err := shard.DecodeMap(b); err != nil || !reflect.DeepEqual(got, m) || m.Level() != shard.LevelWatches {
			t.Errorf("map of level %d came back as %+v, %v", m.Level(), got, err)
		}
	}
	step(shard.Split{Shard: 1, At: []string{"m"}, Stay: true, Watches: 7})
	for _, s := range m.Shards {
		if s.Home.Parting != 7 || s.Home.Whole != 0 {
			t.Errorf("after the cut: %+v", s)
		}
	}
	home := m.Shards[0].Home
	home.Parting, home.Whole = 0, 7
	step(shard.Rehome{Homes: []shard.ShardHome{{Shard: m.Shards[0].ID, Home: home}}})
	if h := m.Shards[0].Home; h.Parting != 0 || h.Whole != 7 {
		t.Errorf("after the verdict: %+v", h)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, err := shard.EncodeCommand(shard.Command{Change: shard.Split{Shard: 1, At: []string{"\xff"}}})
	if err != nil {
		t.Fatal(err)
	}
	newer := slices.Clone(good)
	newer[0] = shard.Level + 1
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"empty", nil, shard.ErrMalformed},
		{"no level", good[1:], shard.ErrNewer}, // '{' is read as a very high level
		{"level 0", append([]byte{0}, good[1:]...), shard.ErrMalformed},
		{"newer", newer, shard.ErrNewer},
		{"unknown field", []byte("\x01" + `{"request_id":"","if_version":0,"graft":{}}`), shard.ErrMalformed},
		{"no change", []byte("\x01" + `{"request_id":"","if_version":0}`), shard.ErrMalformed},
		{"two changes", []byte("\x01" + `{"split":{"shard":1,"at":[]},"assign":{"moves":[]}}`), shard.ErrMalformed},
		{"trailing", append(slices.Clone(good), '!'), shard.ErrMalformed},
	} {
		if _, err := shard.DecodeCommand(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := shard.DecodeMap([]byte("\x01{}")); !errors.Is(err, shard.ErrMalformed) {
		t.Errorf("an invalid map is decoded: %v", err)
	}
	if _, err := shard.EncodeCommand(shard.Command{}); !errors.Is(err, shard.ErrMalformed) {
		t.Errorf("an empty command is encoded: %v", err)
	}
}

func FuzzDecodeCommand(f *testing.F) {
	b, _ := shard.EncodeCommand(shard.Command{Change: shard.Split{Shard: 1, At: []string{"a"}}})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := shard.DecodeCommand(b)
		if err != nil {
			return
		}
		if m, err := shard.Apply(nil, c); err == nil && m.Validate() != nil {
			t.Fatalf("%q founds an invalid map", b)
		}
	})
}

func FuzzDecodeMap(f *testing.F) {
	m, err := shard.Apply(nil, shard.Command{Change: shard.Found{ClusterID: "c", Spec: maptest.Spec(2, 1), Cuts: []string{"m"}}})
	if err != nil {
		f.Fatal(err)
	}
	b, _ := shard.EncodeMap(m)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := shard.DecodeMap(b); err == nil && m.Validate() != nil {
			t.Fatalf("%q decodes to an invalid map", b)
		}
	})
}
