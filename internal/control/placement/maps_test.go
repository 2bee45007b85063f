package placement

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// A node that is some versions behind gets a delta, encoded once for all such
// nodes; a node that is too far behind, or of another cluster, gets the map.
func TestVersionsReturnTheChangesSinceAVersion(t *testing.T) {
	b := new(versions)
	m, err := shard.Apply(nil, shard.Command{Change: shard.Found{
		ClusterID: "c", EtcdClusterID: 1, Spec: shard.Spec{Ranges: []kv.Range{{}}, Shards: 2, Replicas: 1},
		Cuts: []string{"m"}, Replicas: [][]shard.NodeID{{"a"}, {"a"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	maps := []*shard.Map{m}
	if err := b.show(m); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * minSteps {
		node := shard.NodeID(fmt.Sprint("n", i%2))
		if m, err = shard.Apply(m, shard.Command{IfVersion: m.Version, Change: shard.Assign{Moves: []shard.Move{{Shard: m.Shards[i%2].ID, Replicas: []shard.NodeID{node, "a"}}}}}); err != nil {
			t.Fatal(err)
		}
		if err := b.show(m); err != nil {
			t.Fatal(err)
		}
		maps = append(maps, m)
	}
	for _, behind := range []int{1, 2, 100} {
		have := maps[len(maps)-1-behind]
		now, d := b.since("c", have.Version)
		if now != m || d == nil {
			t.Fatalf("%d behind: %v", behind, d)
		}
		got, err := d.Apply(have)
		if err != nil {
			t.Fatal(err)
		}
		one, _ := shard.EncodeMap(got)
		other, _ := shard.EncodeMap(m)
		if !bytes.Equal(one, other) {
			t.Errorf("%d behind: another map", behind)
		}
		if _, again := b.since("c", have.Version); again != d {
			t.Errorf("%d behind: the delta is encoded again for a second caller", behind)
		}
	}
	if _, d := b.since("c", 1); d != nil {
		t.Error("a node that is too far behind gets a delta")
	}
	if _, d := b.since("other", m.Version-1); d != nil {
		t.Error("a node of another cluster gets a delta")
	}
	if len(b.steps) > minSteps {
		t.Errorf("%d steps are kept", len(b.steps))
	}
}
