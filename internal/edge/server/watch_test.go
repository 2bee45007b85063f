package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// An error in a watch ends only the watch, with a reason and a message that names the remedy. The
// stream continues.
func TestWatchRefused(t *testing.T) {
	h := cachetest.New()
	m := cachetest.Map(1, []string{"h"}, "here")
	m.Spec.Ranges = []kv.Range{{Start: "b"}}
	m.Shards[0].Range.Start = "b"
	h.Commit(cachetest.Put("c", "1"))
	h.Forget(cachetest.Start + 2)
	r := start(t, h, options{shards: m})
	at := func(p wire.Position) *pb.CreateWatch_ResumeToken {
		return &pb.CreateWatch_ResumeToken{ResumeToken: wire.ResumeToken(p)}
	}
	good := wire.Position{Cluster: wire.ClusterKey("test"), Lineage: 1, Range: kv.Single("c"), Revision: cachetest.Start + 1}
	other := func(change func(*wire.Position)) wire.Position {
		p := good
		change(&p)
		return p
	}
	now := &pb.CreateWatch_StartRevision{StartRevision: first + 1}
	for _, c := range []struct {
		name   string
		create *pb.CreateWatch
		reason pb.EndReason
		says   string
	}{
		{"no key", &pb.CreateWatch{}, pb.EndReason_END_REASON_INVALID, "name a key"},
		{"end before key", &pb.CreateWatch{Key: []byte("d"), RangeEnd: []byte("c")}, pb.EndReason_END_REASON_INVALID, "is not after"},
		{"end is key", &pb.CreateWatch{Key: []byte("d"), RangeEnd: []byte("d")}, pb.EndReason_END_REASON_INVALID, "is not after"},
		{"negative revision", &pb.CreateWatch{Key: []byte("c"), Start: &pb.CreateWatch_StartRevision{StartRevision: -1}}, pb.EndReason_END_REASON_INVALID, "leave it out"},
		{"below the floor", &pb.CreateWatch{Key: []byte("c"), Start: &pb.CreateWatch_StartRevision{StartRevision: 1}}, pb.EndReason_END_REASON_COMPACTED, "list, then watch"},
		{"not served", &pb.CreateWatch{Key: []byte("a"), RangeEnd: []byte("d"), Start: now}, pb.EndReason_END_REASON_INVALID, "cachectl settings"},
		{"another lineage", &pb.CreateWatch{Key: []byte("c"), Start: now, Lineage: 7}, pb.EndReason_END_REASON_LINEAGE, "list, then watch"},
		{"a token cut short", &pb.CreateWatch{Key: []byte("c"), Start: &pb.CreateWatch_ResumeToken{ResumeToken: wire.ResumeToken(good)[:9]}}, pb.EndReason_END_REASON_INVALID, "too short"},
		{"no token", &pb.CreateWatch{Key: []byte("c"), Start: &pb.CreateWatch_ResumeToken{}}, pb.EndReason_END_REASON_INVALID, "too short"},
		{"a token damaged", &pb.CreateWatch{Key: []byte("c"), Start: &pb.CreateWatch_ResumeToken{ResumeToken: append(wire.ResumeToken(good), 0)}}, pb.EndReason_END_REASON_INVALID, "damaged"},
		{"a page token", &pb.CreateWatch{Key: []byte("c"), Start: &pb.CreateWatch_ResumeToken{ResumeToken: wire.PageToken(good)}}, pb.EndReason_END_REASON_INVALID, "another kind"},
		{"a token of another range", &pb.CreateWatch{Key: []byte("d"), Start: at(good)}, pb.EndReason_END_REASON_INVALID, "another key"},
		{"a token of another cluster", &pb.CreateWatch{Key: []byte("c"), Start: at(other(func(p *wire.Position) { p.Cluster = wire.ClusterKey("x") }))}, pb.EndReason_END_REASON_LINEAGE, "resume token was issued by another cluster; start with WithState"},
		{"a token of another cluster and range", &pb.CreateWatch{Key: []byte("d"), Start: at(other(func(p *wire.Position) { p.Cluster = wire.ClusterKey("x") }))}, pb.EndReason_END_REASON_INVALID, "another key"},
		{"a revision of another cluster", &pb.CreateWatch{Key: []byte("c"), Start: now, ClusterId: "x", Lineage: 1}, pb.EndReason_END_REASON_LINEAGE, "start revision was issued by another cluster"},
		{"a revision of another cluster, of any lineage", &pb.CreateWatch{Key: []byte("c"), Start: now, ClusterId: "x"}, pb.EndReason_END_REASON_LINEAGE, "another cluster"},
		{"another lineage of this cluster", &pb.CreateWatch{Key: []byte("c"), Start: now, ClusterId: "test", Lineage: 7}, pb.EndReason_END_REASON_LINEAGE, "list, then watch"},
		{"a token of another lineage", &pb.CreateWatch{Key: []byte("c"), Start: at(other(func(p *wire.Position) { p.Lineage = 3 }))}, pb.EndReason_END_REASON_LINEAGE, "list, then watch"},
		{"a token below the floor", &pb.CreateWatch{Key: []byte("c"), Start: at(other(func(p *wire.Position) { p.Revision = 3 }))}, pb.EndReason_END_REASON_COMPACTED, "list, then watch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := watchOn(t, r.conn)
			defer s.end()
			c.create.WatchId = 5
			s.create(c.create)
			e := s.ended(5)
			if e.GetReason() != c.reason || !strings.Contains(e.GetMessage(), c.says) {
				t.Errorf("got %v, want %v with %q", e, c.reason, c.says)
			}
			if foreign := strings.Contains(c.says, "another cluster"); foreign != (e.GetForeign() != "") {
				t.Errorf("foreign is %q in %v", e.GetForeign(), e)
			}
			if c.reason == pb.EndReason_END_REASON_COMPACTED && e.GetFloor() != first+1 {
				t.Errorf("floor %d, want %d", e.GetFloor(), first+1)
			}
			s.create(&pb.CreateWatch{WatchId: 5, Key: []byte("c"), Start: at(good)})
			if got := s.created(5).GetRevision(); got != first {
				t.Errorf("the token of revision %d starts after %d", first, got)
			}
		})
	}
}

// Errors that concern no single watch end the stream, with a message.
func TestStreamRefused(t *testing.T) {
	r := start(t, cachetest.New(), options{server: func(c *server.Config) { c.MaxMessageBytes = 64 << 10 }})
	create := func(c *pb.CreateWatch) *pb.WatchRequest {
		return &pb.WatchRequest{Request: &pb.WatchRequest_Create{Create: c}}
	}
	interval := func(d time.Duration) *pb.WatchRequest {
		return &pb.WatchRequest{Request: &pb.WatchRequest_Options{Options: &pb.StreamOptions{ProgressInterval: durationpb.New(d)}}}
	}
	for _, c := range []struct {
		name  string
		send  []*pb.WatchRequest
		code  codes.Code
		field string
	}{
		{"no ID", []*pb.WatchRequest{create(all(0, first))}, codes.InvalidArgument, "create.watch_id"},
		{"a negative ID", []*pb.WatchRequest{create(all(-1, first))}, codes.InvalidArgument, "create.watch_id"},
		{"an ID twice", []*pb.WatchRequest{create(all(1, first)), create(all(1, first))}, codes.InvalidArgument, "create.watch_id"},
		{"an unknown request", []*pb.WatchRequest{{}}, codes.InvalidArgument, "request"},
		{"too short an interval", []*pb.WatchRequest{interval(time.Millisecond)}, codes.InvalidArgument, "options.progress_interval"},
		{"too long an interval", []*pb.WatchRequest{interval(time.Hour)}, codes.InvalidArgument, "options.progress_interval"},
		{"a huge key", []*pb.WatchRequest{create(&pb.CreateWatch{WatchId: 1, Key: bytes.Repeat([]byte("k"), 65<<10)})}, codes.ResourceExhausted, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := watchOn(t, r.conn)
			defer s.end()
			for _, m := range c.send {
				s.send(m)
			}
			var err error
			for err == nil {
				_, err = s.rpc.Recv()
			}
			if status.Code(err) != c.code {
				t.Errorf("got %v", err)
			}
			var invalid *kv.InvalidError
			if c.field != "" && (!errors.As(wire.Error(err), &invalid) || invalid.Field != c.field) {
				t.Errorf("got %v, want field %s", err, c.field)
			}
		})
	}
}

// Watches above the limit are refused until other watches have ended.
func TestTooManyWatches(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{server: func(c *server.Config) { c.MaxWatchesPerStream = 2 }})
	s := r.watch()
	for id := range int64(3) {
		s.create(all(id+1, first))
	}
	s.created(1)
	s.created(2)
	if e := s.ended(3); e.GetReason() != pb.EndReason_END_REASON_LIMIT || e.GetRetryAfter() == nil || !strings.Contains(e.GetMessage(), "open another one") {
		t.Errorf("got %v", e)
	}
	s.cancel(1)
	if e := s.ended(1); e.GetReason() != pb.EndReason_END_REASON_CANCELED || e.GetResumeRevision() != first {
		t.Errorf("got %v", e)
	}
	s.cancel(1) // this watch has ended
	s.create(all(3, first))
	s.created(3)
}

// A watch from a future revision emits nothing below its start.
func TestWatchFromTheFuture(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{})
	s := r.watch()
	s.create(all(1, first+3))
	s.created(1)
	for range 5 {
		h.Commit(cachetest.Put("a", "1"))
	}
	for want := first + 3; want <= first+4; want++ {
		if m := s.next(); m.GetRevision() != want {
			t.Fatalf("got %v, want revision %d", m, want)
		}
	}
}

// A revision of 50,000 deletes arrives as one revision, in fragments of a bounded size. So do two
// values of etcd's maximum size with their previous values.
func TestBigRevisions(t *testing.T) {
	const keys = 50_000
	h := cachetest.New()
	r := start(t, h, options{shards: cachetest.Map(1, []string{"k/02"}, "here")})
	s := r.watch()
	c := all(1, first)
	c.PrevKv = true
	s.create(c)
	s.created(1)
	var ops []cachetest.Op
	for i := range keys {
		ops = append(ops, cachetest.Delete(fmt.Sprintf("k/%05d", i)))
	}
	h.Commit(ops...)
	big := string(bytes.Repeat([]byte("v"), 3<<19))
	h.Commit(cachetest.Put("a", big), cachetest.Put("z", big))
	h.Commit(cachetest.Put("a", big+"1"), cachetest.Put("z", big+"2"))
	seen := make(map[string]bool)
	for revision, events, parts := first, 0, 0; revision < first+3; {
		m := s.next() // at most 4 MiB: the client's default
		if m.GetRevision() != revision || len(m.GetEvents()) == 0 {
			t.Fatalf("got revision %d, want %d", m.GetRevision(), revision)
		}
		events += len(m.GetEvents())
		parts++
		if revision == first {
			for _, e := range m.GetEvents() {
				seen[string(e.GetKv().GetKey())] = true
			}
		} else if e := m.GetEvents()[0]; (len(e.GetPrevKv().GetValue()) == len(big)) != (revision == first+2) {
			t.Errorf("revision %d: a previous value of %d bytes", revision, len(e.GetPrevKv().GetValue()))
		}
		if m.GetFragment() {
			continue
		}
		if want := map[int64]int{first: keys, first + 1: 2, first + 2: 2}[revision]; events != want || parts < 2 {
			t.Errorf("revision %d: %d events in %d parts, want %d", revision, events, parts, want)
		}
		revision++
		events, parts = 0, 0
	}
	if len(seen) != keys {
		t.Errorf("%d different keys", len(seen))
	}
}

// A large initial state arrives first, in chunks between begin and end, while writes continue and
// other watches have their turn. Then come the events from the next revision on.
func TestStateFirst(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{server: func(c *server.Config) { c.FragmentBytes = 8 << 10; c.ProgressInterval = 100 * time.Millisecond }})
	value := strings.Repeat("v", 200)
	for i := range 2000 {
		h.Commit(cachetest.Put(fmt.Sprintf("%c/%04d", 'a'+i%20, i), value))
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				h.Commit(cachetest.Put(fmt.Sprintf("%c/%04d", 'a'+i%20, i%2000), fmt.Sprint(i)), cachetest.Delete(fmt.Sprintf("%c/x", 'a'+i%20)))
				time.Sleep(time.Millisecond)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	s := r.watch()
	s.create(&pb.CreateWatch{WatchId: 1, Key: []byte{0}, RangeEnd: []byte{0}, Start: &pb.CreateWatch_StateFirst{StateFirst: true}})
	c := s.created(1)
	if len(c.GetResumeToken()) > 0 {
		t.Errorf("got %v, want no token: a client that resumed there would never receive the state", c)
	}
	at := c.GetRevision()
	state, chunks := make(map[string]string), 0
	for complete := false; !complete; {
		m := s.next()
		y := m.GetSync()
		switch {
		case m.GetProgress() != nil:
			if p := m.GetProgress().GetRevision(); p != 0 {
				t.Errorf("progress %d before the end of the state", p)
			}
			continue
		case y == nil || y.GetRevision() != at || y.GetBegin() != (chunks == 0):
			t.Fatalf("chunk %d: got %v", chunks, m)
		}
		for _, item := range y.GetKvs() {
			state[string(item.GetKey())] = string(item.GetValue())
		}
		chunks++
		complete = y.GetEnd()
	}
	want := make(map[string]string)
	for _, item := range h.State(kv.Range{}, kv.Revision(at)) {
		want[string(item.Key())] = string(item.Value())
	}
	if !maps.Equal(state, want) || chunks < 10 {
		t.Errorf("the state at revision %d: %d keys in %d chunks, want %d keys", at, len(state), chunks, len(want))
	}
	for next, progress := at+1, int64(0); next < at+50 || progress == 0; {
		m := s.next()
		if p := m.GetProgress(); p != nil {
			if progress = p.GetRevision(); progress >= next {
				t.Fatalf("progress %d before revision %d", progress, next)
			}
			continue
		}
		if m.GetRevision() != next {
			t.Fatalf("got revision %d, want %d", m.GetRevision(), next)
		}
		next++
	}
}

// Progress on request reports a revision that etcd has reached, for quiet ranges too. A client that
// requests progress again and again gets fewer answers than requests.
func TestRequestProgress(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{})
	s := r.watch()
	s.requestProgress()
	if p := s.next().GetProgress(); p == nil || p.GetRevision() != 0 {
		t.Errorf("without a watch: %v", p)
	}
	s.create(&pb.CreateWatch{WatchId: 1, Key: []byte("quiet"), Start: &pb.CreateWatch_StartRevision{StartRevision: first}})
	s.create(&pb.CreateWatch{WatchId: 2, Key: []byte{0}, RangeEnd: []byte{0}, Start: &pb.CreateWatch_StartRevision{StartRevision: first + 1000}})
	s.created(1)
	s.created(2)
	for range 5 {
		at := int64(h.Commit(cachetest.Put("a", "1")))
		s.requestProgress()
		if p := s.next().GetProgress(); p.GetRevision() < at {
			t.Errorf("progress %d, although etcd was at %d", p.GetRevision(), at)
		}
	}
	for range 1000 {
		s.requestProgress()
	}
	at := int64(h.Commit(cachetest.Put("a", "1")))
	s.requestProgress()
	for answers := 1; ; answers++ {
		if p := s.next().GetProgress(); p.GetRevision() >= at {
			break
		} else if answers > 1001 {
			t.Fatal("got more answers than requests")
		}
	}
	h.Fail(errors.New("etcd is away"))
	s.requestProgress()
	if p := s.next().GetProgress(); p.GetRevision() < at {
		t.Errorf("without etcd: %v", p)
	}
	s.create(&pb.CreateWatch{WatchId: 3, Key: []byte("a")})
	for {
		m := s.next()
		if e := m.GetEnded(); e != nil {
			if e.GetReason() != pb.EndReason_END_REASON_UNAVAILABLE || !strings.Contains(e.GetMessage(), "etcd") {
				t.Errorf("a watch from now without etcd: %v", e)
			}
			break
		}
	}
}

// Progress names a lagging shard if it holds back one watch over many shards, or one of many
// watches. Once the shard has caught up, it is no longer named.
func TestHeldBackShardIsNamed(t *testing.T) {
	for _, watches := range [][]*pb.CreateWatch{
		{all(1, first)},
		{
			{WatchId: 1, Key: []byte("a"), RangeEnd: []byte("h"), Start: &pb.CreateWatch_StartRevision{StartRevision: first}},
			{WatchId: 2, Key: []byte("h"), RangeEnd: []byte{0}, Start: &pb.CreateWatch_StartRevision{StartRevision: first}},
		},
	} {
		h := cachetest.New()
		r := start(t, h, options{server: func(c *server.Config) { c.ProgressInterval = 100 * time.Millisecond }})
		s := r.watch()
		for _, c := range watches {
			s.create(c)
		}
		h.Commit(cachetest.Put("a", "1"), cachetest.Put("p", "1"))
		r.node.Gate(2).Limit(cachetest.Start + 1)
		for range 3 {
			h.Commit(cachetest.Put("a", "1"))
		}
		named := func() uint64 {
			for {
				if p := s.next().GetProgress(); p != nil {
					if p.GetRevision() > first && r.node.Replica(2).Progress() == cachetest.Start+1 {
						t.Errorf("progress %d is ahead of shard 2", p.GetRevision())
					}
					t.Log(len(watches), p, r.node.Replica(1).Progress(), r.node.Replica(2).Progress())
					return p.GetHeldBackByShard()
				}
			}
		}
		testkit.Eventually(t, "progress names the lagging shard", func() bool { return named() == 2 })
		r.node.Gate(2).Limit(0)
		testkit.Eventually(t, "nobody lags", func() bool { s.requestProgress(); return named() == 0 })
		s.end()
	}
}

// A watch of a shard without an available owner ends, with other nodes to use instead.
func TestWatchUnavailableNamesOthers(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{shards: cachetest.Map(1, nil, "there")})
	r.node.RefuseRelays(&kv.UnavailableError{Why: kv.NotReady, RetryAfter: time.Second, Detail: "nobody answers"})
	s := r.watch()
	s.create(all(1, first))
	if e := s.ended(1); e.GetReason() != pb.EndReason_END_REASON_UNAVAILABLE || !slices.Equal(e.GetEndpoints(), []string{"there:7400"}) || e.GetRetryAfter() == nil {
		t.Errorf("got %v", e)
	}
}
