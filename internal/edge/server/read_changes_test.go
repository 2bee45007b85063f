package server_test

import (
	"errors"
	"io"
	"maps"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// changes lists the changes since a revision; parts is the number of messages.
func (r *running) changes(l *pb.ListRequest) (at int64, kvs map[string]string, deleted map[string]bool, parts int, err error) {
	r.tb.Helper()
	s, err := pb.NewCacheServiceClient(r.conn).List(r.tb.Context(), l)
	if err != nil {
		r.tb.Fatal(err)
	}
	kvs, deleted = map[string]string{}, map[string]bool{}
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return at, kvs, deleted, parts, nil
		}
		if err != nil {
			return 0, nil, nil, 0, wire.Error(err)
		}
		if parts++; at != 0 && m.GetRevision() != at {
			r.tb.Errorf("revisions %d and %d in one list", at, m.GetRevision())
		}
		at = m.GetRevision()
		for _, item := range m.GetKvs() {
			if item.GetModRevision() <= l.GetChangedSince() {
				r.tb.Errorf("got %s, which has not changed since %d", item.GetKey(), l.GetChangedSince())
			}
			kvs[string(item.GetKey())] = string(item.GetValue())
		}
		for _, key := range m.GetDeleted() {
			deleted[string(key)] = true
		}
	}
}

func (r *running) stateAt(rng kv.Range, at kv.Revision) map[string]string {
	out := make(map[string]string)
	for _, item := range r.h.State(rng, at) {
		out[string(item.Key())] = string(item.Value())
	}
	return out
}

// For random histories, ranges and revisions, with shards here and elsewhere, the old state plus
// the listed changes equals the new state.
func TestListChangesModel(t *testing.T) {
	rng := testseed.Rand(t)
	h := cachetest.New()
	here, there := pairOf(t, h, nil)
	inParts := false
	for i := range 200 {
		last := write(h, rng, 1+rng.IntN(20))
		since := cachetest.Start + 1 + kv.Revision(rng.Int64N(int64(last-cachetest.Start)))
		a, b := string(rune('a'+rng.IntN(26))), string(rune('a'+rng.IntN(26)))
		r := kv.Range{Start: min(a, b), End: max(a, b) + "z"}
		node := []*running{here, there}[i%2]
		l := &pb.ListRequest{ChangedSince: int64(since)}
		l.Key, l.RangeEnd = r.Etcd()
		if rng.IntN(3) == 0 {
			l.Revision = int64(max(since, last-5))
		}
		at, kvs, deleted, parts, err := node.changes(l)
		if err != nil {
			t.Fatal(err)
		}
		if l.GetRevision() == 0 && at < int64(last) || l.GetRevision() != 0 && at != l.GetRevision() {
			t.Errorf("listed at %d, want %v (%d)", at, l, last)
		}
		got := node.stateAt(r, since)
		for key := range deleted {
			if _, both := kvs[key]; both {
				t.Errorf("%s is both listed and deleted", key)
			}
			delete(got, key)
		}
		maps.Copy(got, kvs)
		if want := node.stateAt(r, kv.Revision(at)); !maps.Equal(got, want) {
			t.Fatalf("%v, from state %v: got %v, want %v", l, r, got, want)
		}
		inParts = inParts || parts > 3
	}
	if !inParts {
		t.Error("no list came in parts")
	}
}

// Errors give the reason: the invalid field, a revision that does not exist, or the oldest possible
// start, which is the highest floor of all shards.
func TestListChangesRefused(t *testing.T) {
	h := cachetest.New()
	write(h, testseed.Rand(t), 50)
	here, _ := pairOf(t, h, func(c *cache.Config) { c.TombstoneBytes = 0 })
	late := h.Commit(cachetest.Delete("a/0"), cachetest.Delete("u/0"))
	h.Commit(cachetest.Delete("b/0"))
	here.serving()
	all := func(change func(*pb.ListRequest)) *pb.ListRequest {
		l := &pb.ListRequest{Key: []byte{0}, RangeEnd: []byte{0}, ChangedSince: int64(h.Now())}
		change(l)
		return l
	}
	for field, change := range map[string]func(*pb.ListRequest){
		"changed_since": func(l *pb.ListRequest) { l.ChangedSince = -1 },
		"limit":         func(l *pb.ListRequest) { l.Limit = 1 },
		"page_token":    func(l *pb.ListRequest) { l.PageToken = []byte("x") },
		"keys_only":     func(l *pb.ListRequest) { l.KeysOnly = true },
		"count":         func(l *pb.ListRequest) { l.Count = true },
		"count_only":    func(l *pb.ListRequest) { l.CountOnly = true },
	} {
		var invalid *kv.InvalidError
		if _, _, _, _, err := here.changes(all(change)); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	var invalid *kv.InvalidError
	if _, _, _, _, err := here.changes(all(func(l *pb.ListRequest) { l.Revision = int64(h.Now() - 1) })); !errors.As(err, &invalid) || invalid.Field != "changed_since" {
		t.Errorf("a start after the list's revision: %v", err)
	}
	for _, key := range []string{"a", "u"} {
		var future *kv.FutureError
		if _, _, _, _, err := here.changes(&pb.ListRequest{Key: []byte(key), ChangedSince: int64(h.Now()) + 7}); !errors.As(err, &future) || future.Requested != h.Now()+7 {
			t.Errorf("a start after etcd's revision, shard of %s: %v", key, err)
		}
	}
	var compacted *kv.CompactedError
	_, _, _, _, err := here.changes(all(func(l *pb.ListRequest) { l.ChangedSince = int64(cachetest.Start) }))
	if !errors.As(err, &compacted) || compacted.Requested != cachetest.Start+1 || compacted.Floor <= late {
		t.Errorf("a start before the floor: %v", err)
	}
	s, _ := status.FromError(wire.Status(err))
	if s.Code() != codes.OutOfRange {
		t.Errorf("code %v", s.Code())
	}
	if compacted == nil {
		return
	}
	if _, _, _, _, err := here.changes(all(func(l *pb.ListRequest) { l.ChangedSince = int64(compacted.Floor) - 1 })); err != nil {
		t.Errorf("a start at the floor: %v", err)
	}
}
