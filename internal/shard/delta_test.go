package shard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// anyChange returns a random change of m.
func anyChange(r *rand.Rand, m *shard.Map) shard.Change {
	i := r.IntN(len(m.Shards))
	s := &m.Shards[i]
	nodes := []shard.NodeID{"a", "b", "c", "d"}
	r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	switch r.IntN(7) {
	case 5:
		from := string(rune('a' + r.IntN(13)))
		ranges := []kv.Range{{Start: from, End: from + "m"}, {Start: string(rune('n' + r.IntN(12)))}}
		if r.IntN(2) == 0 {
			ranges = []kv.Range{{}}
		}
		return shard.Configure{Replicas: 1 + r.IntN(4), Ranges: ranges}
	case 0:
		return shard.Split{Shard: s.ID, At: []string{s.Range.Start + string(rune('a'+r.IntN(26)))}, Stay: r.IntN(2) == 0}
	case 1:
		return shard.Rehome{Homes: []shard.ShardHome{{Shard: s.ID, Home: shard.Home{Pins: nodes[:1]}}}}
	case 2:
		if i+1 < len(m.Shards) {
			return shard.Merge{Shards: []shard.ID{s.ID, m.Shards[i+1].ID}, Replicas: s.Replicas}
		}
		return shard.Drain{Nodes: nodes[:1], Undo: len(m.Drained) > 0}
	case 3:
		return shard.Finalize{Level: shard.Level} // once
	default:
		moves := []shard.Move{{Shard: s.ID, Replicas: nodes[:1+r.IntN(3)]}}
		if o := m.Shards[r.IntN(len(m.Shards))]; o.ID != s.ID {
			moves = append(moves, shard.Move{Shard: o.ID, Replicas: nodes[:2]})
		}
		return shard.Assign{Moves: moves}
	}
}

// Deltas, single or combined, encoded or not, lead to the later map.
func TestDeltasMakeTheMap(t *testing.T) {
	r := testseed.Rand(t)
	for range 50 {
		m, err := shard.Apply(nil, shard.Command{Change: shard.Found{
			ClusterID: "c", EtcdClusterID: 1, Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 4, Replicas: 2},
			Cuts: []string{"f", "m", "t"}, Replicas: [][]shard.NodeID{{"a", "b"}, {"a", "b"}, {"b", "a"}, {"a", "b"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		maps := []*shard.Map{m}
		for range 40 {
			next, err := shard.Apply(m, shard.Command{IfVersion: m.Version, Change: anyChange(r, m)})
			if err == nil {
				m = next
				maps = append(maps, m)
			}
		}
		for range 20 {
			i := r.IntN(len(maps))
			j := i + r.IntN(len(maps)-i)
			deltas := []*shard.Delta{shard.Diff(maps[i], maps[j])}
			if j > i {
				sum := shard.Diff(maps[i], maps[i+1])
				for k := i + 1; k < j; k++ {
					sum = sum.Then(shard.Diff(maps[k], maps[k+1]))
				}
				deltas = append(deltas, sum)
			}
			for how, d := range deltas {
				b, err := d.Encode()
				if err != nil {
					t.Fatal(err)
				}
				decoded, err := shard.DecodeDelta(b)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range []*shard.Delta{d, decoded} {
					got, err := d.Apply(maps[i])
					if err != nil {
						t.Fatal(err)
					}
					if !sameMap(got, maps[j]) {
						t.Fatalf("%d: version %d to %d:\n%+v\nwant\n%+v", how, maps[i].Version, maps[j].Version, got, maps[j])
					}
				}
			}
		}
	}
}

func sameMap(a, b *shard.Map) bool {
	x, errX := shard.EncodeMap(a)
	y, errY := shard.EncodeMap(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// The size of a delta does not depend on the size of the map.
func TestADeltaNamesOnlyTheChanges(t *testing.T) {
	var cuts []string
	for i := range 10_000 {
		cuts = append(cuts, fmt.Sprintf("%06d", i))
	}
	m, err := shard.Apply(nil, shard.Command{Change: shard.Found{ClusterID: "c", EtcdClusterID: 1, Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 10_001, Replicas: 1}, Cuts: cuts}})
	if err != nil {
		t.Fatal(err)
	}
	next, err := shard.Apply(m, shard.Command{IfVersion: 1, Change: shard.Assign{Moves: []shard.Move{{Shard: m.Shards[77].ID, Replicas: []shard.NodeID{"a"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	d := shard.Diff(m, next)
	b, err := d.Encode()
	if err != nil || len(b) > 1000 || len(d.Map.Shards) != 1 || len(d.Removed) != 0 {
		t.Errorf("%d bytes, %d shards, %v", len(b), d.Size(), err)
	}
	if _, err := d.Apply(next); !errors.Is(err, shard.ErrOtherMap) {
		t.Errorf("applied to another map: %v", err)
	}
	wrong := &shard.Delta{From: 1, Map: *next, Removed: m.Shards[:1]}
	wrong.Map.Shards = nil
	if _, err := wrong.Apply(m); err == nil {
		t.Error("a delta that leaves a hole in the map is applied")
	}
}

func FuzzDecodeDelta(f *testing.F) {
	f.Add([]byte("\x01" + `{"from":1,"map":{"cluster_id":"c","lineage":1,"version":2,"shards":[]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := shard.DecodeDelta(b)
		if err != nil {
			return
		}
		again, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := shard.DecodeDelta(again); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}

// A delta contains a shard whichever of its fields has changed, including fields
// that are added to the type later.
func TestADeltaNamesEveryField(t *testing.T) {
	earlier := &shard.Map{ClusterID: "c", Version: 1, Shards: []shard.Shard{{ID: 1}}}
	fields := 0
	var each func(v reflect.Value, path string, later *shard.Map)
	each = func(v reflect.Value, path string, later *shard.Map) {
		for i := range v.NumField() {
			f, name := v.Field(i), path+"."+v.Type().Field(i).Name
			if f.Kind() == reflect.Struct {
				each(f, name, later)
				continue
			}
			was := reflect.ValueOf(f.Interface())
			switch f.Kind() {
			case reflect.String:
				f.SetString("other")
			case reflect.Slice:
				f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Int, reflect.Int64:
				f.SetInt(7)
			case reflect.Uint32, reflect.Uint64:
				f.SetUint(7)
			default:
				t.Fatalf("%s is of kind %s: change it here", name, f.Kind())
			}
			if d := shard.Diff(earlier, later); len(d.Map.Shards) != 1 {
				t.Errorf("a change of %s is not in the delta", name)
			}
			fields++
			f.Set(was)
		}
	}
	later := &shard.Map{ClusterID: "c", Version: 2, Shards: []shard.Shard{{ID: 1}}}
	each(reflect.ValueOf(&later.Shards[0]).Elem(), "Shard", later)
	if fields < 9 {
		t.Errorf("only %d fields were changed", fields)
	}
}
