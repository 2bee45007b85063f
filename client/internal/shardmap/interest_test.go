package shardmap

import (
	"fmt"
	"slices"
	"testing"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
)

// A client that needs further shards requests them together with the changes of the others,
// and drops the shards that it no longer follows.
func TestATopologyOfSomeRanges(t *testing.T) {
	var top *Topology
	var ranges []keyrange.Range
	var shards []*pb.Shard
	for i := range 200 {
		key, end := fmt.Sprintf("%03d", i), fmt.Sprintf("%03d", i+1)
		if i == 0 {
			key = "\x00"
		}
		if i == 199 {
			end = "\x00"
		}
		shards = append(shards, shardMessage(uint64(i+1), key, end, "n"))
	}
	take := func(in Interest, r *pb.WatchShardMapResponse) {
		t.Helper()
		next, err := top.With("a", in, r)
		if err != nil {
			t.Fatal(err)
		}
		top = next
	}
	message := func(from, version uint64, shards ...*pb.Shard) *pb.WatchShardMapResponse {
		return &pb.WatchShardMapResponse{Map: &pb.ShardMap{ClusterId: "c", Version: version, Shards: shards}, FromVersion: from}
	}
	ranges = append(ranges, key("100x"))
	in := top.Need(ranges)
	if r := top.Request("a", in); !r.GetOnlyRanges() || len(r.GetRanges()) != 1 || len(r.GetNewRanges()) != 0 {
		t.Errorf("the first request: %v", r)
	}
	take(in, message(0, 5, shards[100]))
	if !top.Covers(key("100x")) || top.Covers(key("100y")) || top.Covers(keyrange.Range{}) {
		t.Errorf("knows %v", top.known)
	}

	ranges = append(ranges, key("100y"), between("150", ""))
	in = top.Need(ranges)
	top = top.Narrowed(in)
	r := top.Request("a", in)
	if want := []keyrange.Range{between("100", "101"), between("150", "")}; !slices.Equal(in.Ranges, want) || r.GetKnownVersion() != 5 || len(r.GetNewRanges()) != 2 {
		t.Errorf("asks for %v: %v", in.Ranges, r)
	}
	take(in, message(5, 5, append(slices.Clone(shards[150:]), shards[100])...))
	if len(top.Shards) != 51 || !top.Covers(key("170")) || !top.Covers(key("100z")) || top.Covers(key("120")) {
		t.Errorf("%d shards, knows %v", len(top.Shards), top.known)
	}
	take(in, message(5, 9, shardMessage(900, "150", "1505", "m")))
	take(in, message(0, 8, shards[100])) // of a node that was suspended
	if len(top.Shards) != 52 || top.Version != 9 {
		t.Errorf("%d shards of version %d", len(top.Shards), top.Version)
	}

	ranges = ranges[:1]
	in = top.Need(ranges)
	top = top.Narrowed(in)
	if len(in.fresh) != 0 || len(top.Shards) != 1 || top.Covers(key("170")) || !top.Covers(key("100z")) {
		t.Errorf("of %v, %v is new; %d shards of %v", in.Ranges, in.fresh, len(top.Shards), top.known)
	}
	take(in, &pb.WatchShardMapResponse{Map: &pb.ShardMap{ClusterId: "c", Version: 10, Shards: shards[:100]}, AllShards: true})
	if in = top.Need(ranges); !in.All || !top.Covers(keyrange.Range{}) {
		t.Errorf("a map of few shards: %+v", in)
	}
}

// A range with an end does not cover an open one.
func TestARangeWithAnEndDoesNotCoverAnOpenOne(t *testing.T) {
	closed, open := []keyrange.Range{between("a", "m")}, []keyrange.Range{between("a", "")}
	for _, c := range []struct {
		ranges []keyrange.Range
		r      keyrange.Range
		want   bool
	}{
		{closed, between("b", ""), false},
		{closed, between("a", "m"), true},
		{closed, between("a", "n"), false},
		{open, between("b", ""), true},
		{open, between("a", "z"), true},
		{open, keyrange.Range{}, false},
	} {
		if got := keyrange.Covers(c.ranges, c.r); got != c.want {
			t.Errorf("%v covers %v: %t", c.ranges, c.r, got)
		}
	}
	narrow := (&Topology{all: true}).Narrowed(Interest{Ranges: []keyrange.Range{key("a"), key("b")}, fresh: []keyrange.Range{key("b")}})
	if narrow.Covers(keyrange.Range{}) || !narrow.Covers(key("a")) || narrow.Covers(key("b")) {
		t.Errorf("knows %v, all: %t", narrow.known, narrow.all)
	}
}

// The range of a watch is extended to the bounds of its known shards, within which further
// watches need no other shards. Ranges that touch or overlap are joined.
func TestRangesOfInterest(t *testing.T) {
	known := &Topology{Shards: []Shard{{Keys: between("", "g")}, {Keys: between("g", "m")}, {Keys: between("m", "")}}}
	for _, c := range []struct{ r, want keyrange.Range }{
		{key("h"), between("g", "m")},
		{between("a", "h"), between("", "m")},
		{between("h", "m"), between("g", "m")},
		{between("h", "n"), keyrange.Range{Start: "g"}},
		{keyrange.Range{Start: "n"}, keyrange.Range{Start: "m"}},
		{keyrange.Range{Start: "b"}, keyrange.Range{}},
	} {
		if got := known.widened(c.r); got != c.want {
			t.Errorf("%v becomes %v, want %v", c.r, got, c.want)
		}
	}
	for _, c := range []struct {
		ranges []keyrange.Range
		most   int
		want   []keyrange.Range
	}{
		{[]keyrange.Range{between("c", "d"), between("a", "b")}, 8, []keyrange.Range{between("a", "b"), between("c", "d")}},
		{[]keyrange.Range{between("b", "d"), between("a", "b")}, 8, []keyrange.Range{between("a", "d")}},
		{[]keyrange.Range{between("a", "f"), between("b", "d")}, 8, []keyrange.Range{between("a", "f")}},
		{[]keyrange.Range{{Start: "a"}, between("b", "d")}, 8, []keyrange.Range{{Start: "a"}}},
		{[]keyrange.Range{between("a", "c"), {Start: "b"}}, 8, []keyrange.Range{{Start: "a"}}},
		{[]keyrange.Range{between("a", "b"), between("c", "d"), between("e", "f")}, 3, []keyrange.Range{between("a", "b"), between("c", "d"), between("e", "f")}},
		{[]keyrange.Range{between("a", "b"), between("c", "d"), between("e", "f")}, 2, []keyrange.Range{between("a", "d"), between("e", "f")}},
	} {
		got := keyrange.Union(c.ranges, c.most)
		if len(got) != len(c.want) {
			t.Errorf("%v: %v, want %v", c.ranges, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%v: %v, want %v", c.ranges, got, c.want)
			}
		}
	}
}

func between(start, end string) keyrange.Range { return keyrange.Range{Start: start, End: end} }

func key(key string) keyrange.Range { return between(key, key+"\x00") }
