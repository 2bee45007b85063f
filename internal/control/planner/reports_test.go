package planner

import (
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/shard"
)

func TestReports(t *testing.T) {
	start := time.Unix(1000, 0)
	var r *Reports
	if len(r.Loads()) > 0 || r.loading(1, []shard.NodeID{"a"}) {
		t.Error("without reports there are loads or loading shards")
	}
	r = r.Add(start, 0, []Report{
		{Node: "a", Shards: []ShardReport{{Shard: 1, Ready: true, Bytes: 10, Events: 100, Watches: 3}}},
		{Node: "b", Shards: []ShardReport{{Shard: 1, Bytes: 20, Events: 7, Watches: 4}, {Shard: 1, Watches: 2}}},
	})
	before := r
	r = r.Add(start.Add(10*time.Second), 0, []Report{{Node: "a", Shards: []ShardReport{{Shard: 1, Ready: true, Bytes: 11, Events: 150, Watches: 3}}}})
	if got, want := r.Loads()[1], (Load{Bytes: 20, Events: 5, Watches: 9}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if before.Loads()[1].Events != 0 {
		t.Error("Add changed its receiver")
	}
	if r.loading(1, []shard.NodeID{"a", "unknown"}) || !r.loading(1, []shard.NodeID{"b"}) || !r.loading(2, []shard.NodeID{"a"}) {
		t.Error("loading returns the wrong nodes")
	}
	r = r.Add(start.Add(20*time.Second), 0, []Report{{Node: "a", Shards: []ShardReport{{Shard: 1, Ready: true, Events: 5}}}})
	if got := r.Loads()[1].Events; got != 0 {
		t.Errorf("a copy whose event count was reset has %v events per second, want 0", got)
	}
	if r = r.Add(start.Add(2*reportLife), 0, nil); len(r.Loads()) > 0 {
		t.Errorf("expired reports are kept: %+v", r.Loads())
	}
}

// The leader gives no shards to a node that has not reached etcd, as to a node without reports. The raft log
// does not depend on etcd.
func TestOfANodeWithoutEtcdOnlyTheRaftLogCounts(t *testing.T) {
	now, a := time.Unix(1000, 0), []shard.NodeID{"a"}
	report := Report{Node: "a", RaftIndex: 100, NoEtcd: true, Shards: []ShardReport{{Shard: 1, Ready: true, Bytes: 10}, {Shard: 2}}}
	r := (*Reports)(nil).Add(now, 100, []Report{report})
	if !r.hasLog("a") || !r.caughtUp("a") || !r.told("a") {
		t.Error("the raft log of a node without etcd does not count")
	}
	if r.heard("a") || r.loaded(1, a, now.Add(-time.Second)) || r.loading(2, a) || len(r.Loads()) > 0 {
		t.Error("the shards of a node without etcd count")
	}
	if r = r.Add(now.Add(2*reportLife), 100, nil); r.told("a") {
		t.Error("an expired report of the raft log counts")
	}
	report.NoEtcd = false
	if r = r.Add(now.Add(2*reportLife), 100, []Report{report}); !r.heard("a") || !r.loading(2, a) {
		t.Error("the shards do not count after the node has reached etcd")
	}
}

// A node that loads a shard is asked once a second. This must not raise the measured
// rate of bursts.
func TestBurstsDoNotRaiseTheRate(t *testing.T) {
	var r *Reports
	events := int64(0)
	for second := range 120 {
		if second%5 == 0 {
			events += 50
		}
		r = r.Add(time.Unix(1000+int64(second), 0), 0, []Report{{Node: "a", Shards: []ShardReport{{Shard: 1, Ready: true, Events: events}}}})
		if rate := r.Loads()[1].Events; second > 10 && (rate < 5 || rate > 15) {
			t.Fatalf("after %d seconds: %v events per second, want about 10", second, rate)
		}
	}
}
