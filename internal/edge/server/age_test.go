package server_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// aged makes a cache report that it was up to date with etcd the given time ago.
func aged(c *cache.Cache, age time.Duration) { c.Observe(time.Now().Add(-age), cachetest.Start) }

// around reports whether an age is at least the expected one, with a tolerance for slow tests.
func around(got *durationpb.Duration, want time.Duration) bool {
	return got != nil && got.AsDuration() >= want && got.AsDuration() < want+10*time.Minute
}

// endOf returns the last message of a list.
func (r *running) endOf(l *pb.ListRequest) *pb.ListResponse {
	r.tb.Helper()
	s, err := pb.NewCacheServiceClient(r.conn).List(r.tb.Context(), l)
	if err != nil {
		r.tb.Fatal(err)
	}
	var last *pb.ListResponse
	for {
		m, err := s.Recv()
		if err != nil {
			break
		}
		last = m
	}
	if last == nil {
		r.tb.Fatalf("no answer to %v", l)
	}
	return last
}

// An answer reports its maximum age: the age of the shard with the oldest data, on any node.
func TestAnswersReportTheirAge(t *testing.T) {
	h := cachetest.New()
	here, there := pair(t, h)
	for id, age := range map[shard.ID]time.Duration{1: time.Hour, 2: 0} {
		aged(here.node.Replica(id), age)
	}
	for id, age := range map[shard.ID]time.Duration{3: 0, 4: 2 * time.Hour} {
		aged(there.node.Replica(id), age)
	}
	as := func(key, end string) *pb.ListRequest {
		return &pb.ListRequest{
			Key: []byte(key), RangeEnd: []byte(end),
			Consistency: pb.Consistency_CONSISTENCY_SERIALIZABLE, MaxStaleness: durationpb.New(24 * time.Hour),
		}
	}
	for _, x := range []struct {
		name string
		r    *pb.ListRequest
		want time.Duration // below 0: not reported
	}{
		{"two shards, one old", as("a", "m"), time.Hour},
		{"the other one alone", as("g", "m"), 0},
		{"at the other node", as("u", "v"), 2 * time.Hour},
		{"at the other node, counted", func() *pb.ListRequest { r := as("u", "v"); r.CountOnly = true; return r }(), 2 * time.Hour},
		// Both at the revision that the first shard has chosen, and with the age reported by that one.
		{"two shards at the other node", as("n", "v"), 0},
		{"at a revision", &pb.ListRequest{Key: []byte("a"), RangeEnd: []byte("m"), Revision: int64(cachetest.Start)}, -1},
		{"linearizable", &pb.ListRequest{Key: []byte("a"), RangeEnd: []byte("m")}, 0},
	} {
		m := here.endOf(x.r)
		if x.want < 0 && m.GetAge() != nil || x.want >= 0 && !around(m.GetAge(), x.want) {
			t.Errorf("%s: %v", x.name, m)
		}
	}
	s := here.watch()
	s.create(&pb.CreateWatch{WatchId: 1, Key: []byte("a"), RangeEnd: []byte("m"), Start: &pb.CreateWatch_StartRevision{StartRevision: first}})
	if c := s.created(1); !around(c.GetAge(), time.Hour) {
		t.Errorf("created: %v", c)
	}
	get, err := pb.NewCacheServiceClient(here.conn).Get(t.Context(), &pb.GetRequest{
		Key: []byte("a"), Consistency: pb.Consistency_CONSISTENCY_SERIALIZABLE, MaxStaleness: durationpb.New(24 * time.Hour),
	})
	if err != nil || !around(get.GetAge(), time.Hour) {
		t.Errorf("get: %v, %v", get, err)
	}
	s.requestProgress()
	if m := s.next().GetProgress(); !around(m.GetAge(), time.Hour) {
		t.Errorf("progress: %v", m)
	}
}

// A watch with a bound on the age of its data ends when the data is older, with the reason and
// other nodes to use. Other watches continue.
func TestWatchEndsWhenItsDataIsTooOld(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{shards: cachetest.Map(1, []string{"h"}, "here", "there")})
	aged(r.node.Replica(1), time.Hour)
	within := func(id int64, key string, bound time.Duration) *pb.CreateWatch {
		return &pb.CreateWatch{
			WatchId: id, Key: []byte(key), MaxStaleness: durationpb.New(bound),
			Start: &pb.CreateWatch_StartRevision{StartRevision: first},
		}
	}
	s := r.watch()
	s.create(within(1, "a", 99*time.Millisecond))
	if e := s.ended(1); e.GetReason() != pb.EndReason_END_REASON_INVALID || !strings.HasPrefix(e.GetMessage(), "max_staleness: ") {
		t.Errorf("a bound too small: %v", e)
	}
	stale := func(id int64, says ...string) {
		t.Helper()
		e := s.ended(id)
		for _, text := range says {
			if !strings.Contains(e.GetMessage(), text) {
				t.Errorf("watch %d: %v, want %q", id, e, text)
			}
		}
		if e.GetReason() != pb.EndReason_END_REASON_STALE || e.GetRetryAfter().AsDuration() <= 0 || len(e.GetEndpoints()) != 1 || e.GetResumeRevision() != first {
			t.Errorf("watch %d: %v", id, e)
		}
	}
	s.create(within(2, "a", time.Minute))
	stale(2, "1h0m0", "allows 1m0s")
	s.create(within(3, "i", time.Minute))
	stale(3, "not known", "allows 1m0s")
	aged(r.node.Replica(2), 0)
	s.create(within(4, "a", 24*time.Hour))
	s.created(4)
	s.create(within(5, "i", time.Hour))
	s.created(5)
	s.create(within(6, "i", minStaleness))
	if m := s.next(); m.GetCreated() == nil && m.GetEnded().GetReason() != pb.EndReason_END_REASON_STALE {
		t.Fatalf("got %v", m) // on a slow machine, the data is too old from the beginning
	} else if m.GetCreated() != nil {
		stale(6, "allows 100ms")
	}
	// The other watches continue.
	h.Commit(cachetest.Put("a", "1"), cachetest.Put("i", "1"))
	got := map[int64]bool{}
	for len(got) < 2 {
		m := s.next()
		if len(m.GetEvents()) == 0 {
			t.Fatalf("got %v", m)
		}
		got[m.GetWatchId()] = true
	}
}

const minStaleness = 100 * time.Millisecond
