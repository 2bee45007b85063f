package client

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// randomRange is a range of keys of one byte.
func randomRange(rng *rand.Rand) Range {
	a, b := rng.IntN(26), rng.IntN(27)
	if a > b {
		a, b = b, a
	}
	r := Range{Start: string(rune('a' + a))}
	if b < 26 {
		r.End = string(rune('a' + max(b, a+1)))
	}
	if a == 0 {
		r.Start = ""
	}
	return r
}

// Ranges are the keys that are in them, whichever way they are written.
func TestRangesAsSets(t *testing.T) {
	var probes []string
	for c := 'a'; c <= 'z'; c++ {
		probes = append(probes, string(c), string(c)+"m")
	}
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var ranges []Range
		for range rng.IntN(6) {
			ranges = append(ranges, randomRange(rng))
		}
		in := func(rs []Range, key string) bool {
			return slices.ContainsFunc(rs, func(r Range) bool { return r.Contains(key) })
		}
		got := union(ranges, 10)
		for i := 1; i < len(got); i++ {
			if got[i-1].End == "" || got[i-1].End >= got[i].Start {
				t.Fatalf("seed %d: %v are not disjoint", seed, got)
			}
		}
		few := union(ranges, 2)
		if len(few) > 2 {
			t.Fatalf("seed %d: %v", seed, few)
		}
		r := randomRange(rng)
		covered, touched := true, false
		for _, key := range probes {
			if in(got, key) != in(ranges, key) || in(ranges, key) && !in(few, key) {
				t.Fatalf("seed %d: %s of %v is in %v: %t, in %v: %t", seed, key, ranges, got, in(got, key), few, in(few, key))
			}
			if r.Contains(key) {
				covered, touched = covered && in(ranges, key), touched || in(ranges, key)
			}
		}
		if covers(got, r) != covered && r.End != "" || touches(got, r) != touched {
			t.Fatalf("seed %d: %v covers %v: %t, touches it: %t", seed, got, r, covers(got, r), touches(got, r))
		}
	}
	if union(nil, 3) != nil || covers(nil, Range{}) || touches(nil, Range{}) {
		t.Error("no ranges have keys")
	}
}

// A client that needs further shards asks for these and for what has changed in the
// others, and forgets the shards that it does not follow any more.
func TestATopologyOfSomeRanges(t *testing.T) {
	c := &Client{watchers: map[*Watcher]struct{}{}}
	c.follower = newFollower(c)
	watch := func(r Range) *Watcher {
		w := &Watcher{c: c}
		w.asm.rng = r
		c.watchers[w] = struct{}{}
		return w
	}
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
	take := func(in interest, r *pb.WatchShardMapResponse) {
		t.Helper()
		next, err := c.follower.topology.Load().with("a", in, r)
		if err != nil {
			t.Fatal(err)
		}
		c.follower.topology.Store(next)
	}
	message := func(from, version uint64, shards ...*pb.Shard) *pb.WatchShardMapResponse {
		return &pb.WatchShardMapResponse{Map: &pb.ShardMap{ClusterId: "c", Version: version, Shards: shards}, FromVersion: from}
	}
	first := watch(Key("100x"))
	in := c.follower.interest()
	if r := c.follower.topology.Load().request("a", in); !r.GetOnlyRanges() || len(r.GetRanges()) != 1 || len(r.GetNewRanges()) != 0 {
		t.Errorf("the first request: %v", r)
	}
	take(in, message(0, 5, shards[100]))
	if top := c.follower.topology.Load(); !top.covers(Key("100x")) || top.covers(Key("100y")) || top.covers(Range{}) {
		t.Errorf("knows %v", top.known)
	}

	watch(Key("100y"))
	watch(Between("150", ""))
	in = c.follower.interest()
	c.follower.topology.Store(c.follower.topology.Load().narrowed(in))
	r := c.follower.topology.Load().request("a", in)
	if want := []Range{Between("100", "101"), Between("150", "")}; !slices.Equal(in.ranges, want) || r.GetKnownVersion() != 5 || len(r.GetNewRanges()) != 2 {
		t.Errorf("asks for %v: %v", in.ranges, r)
	}
	take(in, message(5, 5, append(slices.Clone(shards[150:]), shards[100])...))
	if top := c.follower.topology.Load(); len(top.shards.shards) != 51 || !top.covers(Key("170")) || !top.covers(Key("100z")) || top.covers(Key("120")) {
		t.Errorf("%d shards, knows %v", len(top.shards.shards), top.known)
	}
	take(in, message(5, 9, shardMessage(900, "150", "1505", "m")))
	take(in, message(0, 8, shards[100])) // of a node that was asleep
	if top := c.follower.topology.Load(); len(top.shards.shards) != 52 || top.shards.version != 9 {
		t.Errorf("%d shards of version %d", len(top.shards.shards), top.shards.version)
	}

	clear(c.watchers)
	c.watchers[first] = struct{}{}
	in = c.follower.interest()
	c.follower.topology.Store(c.follower.topology.Load().narrowed(in))
	if top := c.follower.topology.Load(); len(in.fresh) != 0 || len(top.shards.shards) != 1 || top.covers(Key("170")) || !top.covers(Key("100z")) {
		t.Errorf("of %v %v is new; %d shards, knows %v", in.ranges, in.fresh, len(top.shards.shards), top.known)
	}
	take(in, &pb.WatchShardMapResponse{Map: &pb.ShardMap{ClusterId: "c", Version: 10, Shards: shards[:100]}, AllShards: true})
	if in = c.follower.interest(); !in.all || !c.follower.topology.Load().covers(Range{}) {
		t.Errorf("a map of few shards: %+v", in)
	}
}
