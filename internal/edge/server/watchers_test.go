package server_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/ops/watchstats"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

func watchers(ctx context.Context, conn *grpc.ClientConn, r *pb.ListWatchersRequest) (out []*pb.WatcherStatus, err error) {
	s, err := pb.NewAdminServiceClient(conn).ListWatchers(ctx, r)
	for err == nil {
		var m *pb.ListWatchersResponse
		m, err = s.Recv()
		out = append(out, m.GetWatchers()...)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	slices.SortFunc(out, func(a, b *pb.WatcherStatus) int {
		return cmp.Or(cmp.Compare(a.GetApi(), b.GetApi()), cmp.Compare(a.GetWatchId(), b.GetWatchId()))
	})
	return out, err
}

// ListWatchers lists every open watch of both APIs with its client, range, sent messages and lag,
// even while its client does not read.
func TestListWatchers(t *testing.T) {
	r := startBoth(t)
	native := r.watch()
	c := all(1, first)
	c.Key, c.RangeEnd = []byte("a"), nil
	native.create(c)
	native.created(1)
	state := all(2, 0)
	state.Key, state.RangeEnd = []byte("a"), []byte("b")
	state.Start = &pb.CreateWatch_StateFirst{StateFirst: true}
	native.create(state)
	for m := native.next(); !m.GetSync().GetEnd(); {
		m = native.next()
	}
	etcd, err := etcdserverpb.NewWatchClient(r.conn).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := etcd.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte("p"), RangeEnd: []byte("q")},
	}}); err != nil {
		t.Fatal(err)
	}
	if m, err := etcd.Recv(); err != nil || !m.GetCreated() {
		t.Fatal(m, err)
	}
	stuck := watchOn(t, dial(t, r.clients)) // its client does not read
	c = all(3, first)
	c.Key = []byte("z")
	stuck.create(c)
	list := func(q *pb.ListWatchersRequest) []*pb.WatcherStatus {
		t.Helper()
		out, err := watchers(t.Context(), r.conn, q)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	value := strings.Repeat("v", 64<<10)
	testkit.Eventually(t, "the unread watch lags", func() bool {
		r.h.Commit(cachetest.Put("z", value))
		late := list(&pb.ListWatchersRequest{MinLag: 10})
		return len(late) == 1 && late[0].GetWatchId() == 3 && late[0].GetLag().AsDuration() > 0 &&
			late[0].GetRevision()+late[0].GetLagRevisions() <= int64(r.h.Now())
	})
	r.h.Commit(cachetest.Put("a", value))
	for n := 0; n < 2; {
		if m := native.next(); m.GetRevision() == int64(r.h.Now()) {
			n++
		}
	}
	var got []*pb.WatcherStatus
	testkit.Eventually(t, "the other watches do not lag", func() bool {
		got = list(&pb.ListWatchersRequest{})
		return len(got) == 4 && got[0].GetLagRevisions() == 0 && got[1].GetLagRevisions() == 0 && got[3].GetLagRevisions() == 0
	})
	for i, want := range []struct {
		api      pb.WatcherAPI
		id       int64
		key, end string
		bytes    int64
		resyncs  int64
	}{
		{pb.WatcherAPI_WATCHER_API_NATIVE, 1, "a", "", 64 << 10, 0},
		{pb.WatcherAPI_WATCHER_API_NATIVE, 2, "a", "b", 64 << 10, 1},
		{pb.WatcherAPI_WATCHER_API_NATIVE, 3, "z", "\x00", 64 << 10, 0},
		{pb.WatcherAPI_WATCHER_API_ETCD, 0, "p", "q", 0, 0},
	} {
		w := got[i]
		if w.GetApi() != want.api || w.GetWatchId() != want.id || string(w.GetKey()) != want.key || string(w.GetRangeEnd()) != want.end ||
			w.GetBytes() < want.bytes || w.GetBytes() > 0 != (w.GetBytesPerSecond() > 0) || w.GetResyncs() != want.resyncs || w.GetDeltas() != 0 ||
			w.GetNode() != "here" || w.GetServeMode() != pb.WatcherServeMode_WATCHER_SERVE_MODE_WINDOW || w.GetSince() == nil || !strings.HasPrefix(w.GetClient(), "127.0.0.1:") {
			t.Errorf("watcher %d: %v", i, w)
		}
	}
	if got[0].GetClient() == got[2].GetClient() || got[0].GetClient() != got[3].GetClient() {
		t.Errorf("the clients of the watches are %s, %s and %s", got[0].GetClient(), got[2].GetClient(), got[3].GetClient())
	}
	if got := list(&pb.ListWatchersRequest{Key: []byte("b"), RangeEnd: []byte("c")}); len(got) != 0 {
		t.Errorf("the watches of a range without watches: %v", got)
	}
	if got := list(&pb.ListWatchersRequest{Key: []byte("p")}); len(got) != 1 {
		t.Errorf("the watches of a key: %v", got)
	}
	for _, q := range []*pb.ListWatchersRequest{{MinLag: -1}, {RangeEnd: []byte("b")}, {Key: []byte("b"), RangeEnd: []byte("a")}} {
		if _, err := watchers(t.Context(), r.conn, q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", q, err)
		}
	}
	sums := r.server.WatchSummaries()
	if sums[0].API != "native" || sums[0].Modes[watchstats.Window] != 3 || sums[0].Lag[0] != 0 || sums[0].Lag[2] < 10 || sums[0].Behind[2] <= 0 || sums[1].Modes[watchstats.Window] != 1 {
		t.Errorf("%+v", sums)
	}
	stuck.end()
}

// While etcd's authentication is on, callers see only the watches of ranges that they may read.
func TestListWatchersAsAUser(t *testing.T) {
	r, g := guarded(t)
	g.grant(map[string]string{"ann": "a", "bob": "b", "eve": "e", "root": ""})
	for id, user := range map[int64]string{1: "ann", 2: "bob"} {
		s := watchAs(t, user, r.conn)
		s.create(&pb.CreateWatch{WatchId: id, Key: []byte(user), Start: &pb.CreateWatch_StartRevision{StartRevision: first}})
		s.created(id)
	}
	for user, want := range map[string]string{"ann": "ann", "bob": "bob", "root": "ann bob", "eve": ""} {
		got, err := watchers(as(t, user), r.conn, &pb.ListWatchersRequest{})
		var seen []string
		for _, w := range got {
			seen = append(seen, w.GetUser())
		}
		if err != nil || strings.Join(seen, " ") != want {
			t.Errorf("%s sees the watches of %q, %v", user, seen, err)
		}
	}
	for _, token := range []string{"", "old"} {
		if _, err := watchers(as(t, token), r.conn, &pb.ListWatchersRequest{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("token %q: %v", token, err)
		}
	}
}

// A list of many watches is sent in parts, and does not delay the watches.
func BenchmarkListWatchers(b *testing.B) {
	const streams, each = 10, 10_000
	h := cachetest.New()
	r := start(b, h, options{server: func(c *server.Config) { c.MaxWatchesPerStream = each }})
	for range streams {
		s := r.watch()
		for id := range int64(each) {
			s.create(&pb.CreateWatch{WatchId: id + 1, Key: fmt.Appendf(nil, "a/%06d", id), Start: &pb.CreateWatch_StartRevision{StartRevision: first}})
		}
		for range each {
			if m := s.next(); m.GetCreated() == nil {
				b.Fatal(m)
			}
		}
	}
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			if got, err := watchers(b.Context(), r.conn, &pb.ListWatchersRequest{}); err != nil || len(got) != streams*each {
				b.Fatal(len(got), err)
			}
		}
	})
	b.Run("summary", func(b *testing.B) {
		for b.Loop() {
			if got := r.server.WatchSummaries(); got[0].Modes[watchstats.Window] != streams*each {
				b.Fatal(got)
			}
		}
	})
}
