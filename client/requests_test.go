package client

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
)

// scripted is a node that answers reads as the test specifies.
type scripted struct {
	pb.UnimplementedCacheServiceServer
	get  func(*pb.GetRequest) *pb.GetResponse
	list func(*pb.ListRequest) []*pb.ListResponse
	// parts sends a list in parts.
	parts func(r *pb.ListRequest, send func(*pb.ListResponse) error) error
}

func (s *scripted) Get(_ context.Context, r *pb.GetRequest) (*pb.GetResponse, error) {
	return s.get(r), nil
}

func (s *scripted) List(r *pb.ListRequest, out grpc.ServerStreamingServer[pb.ListResponse]) error {
	if s.parts != nil {
		return s.parts(r, out.Send)
	}
	for _, part := range s.list(r) {
		if err := out.Send(part); err != nil {
			return err
		}
	}
	return nil
}

// client returns a client of this node only.
func (s *scripted) client(t *testing.T, change ...func(*Config)) *Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterCacheServiceServer(server, s)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	cfg := Config{Endpoints: []string{l.Addr().String()}, RetryFor: 10 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		server.Stop()
		<-ended
	})
	return c
}

// The options of a read reach the node.
func TestReadOptionsReachTheNode(t *testing.T) {
	at := Position{Cluster: "c", Lineage: 2, Revision: 7}
	for name, want := range map[string]struct {
		opts        []ReadOption
		consistency pb.Consistency
		staleness   time.Duration
		revision    int64
		cluster     string
		lineage     uint64
	}{
		"newest":        {nil, pb.Consistency_CONSISTENCY_LINEARIZABLE, 0, 0, "", 0},
		"not too old":   {[]ReadOption{Serializable(3 * time.Second)}, pb.Consistency_CONSISTENCY_SERIALIZABLE, 3 * time.Second, 0, "", 0},
		"of any age":    {[]ReadOption{Serializable(0)}, pb.Consistency_CONSISTENCY_SERIALIZABLE, 0, 0, "", 0},
		"at a revision": {[]ReadOption{AtRevision(5)}, pb.Consistency_CONSISTENCY_UNSPECIFIED, 0, 5, "", 0},
		"at a position": {[]ReadOption{AtPosition(at)}, pb.Consistency_CONSISTENCY_UNSPECIFIED, 0, 7, "c", 2},
	} {
		var asked []*pb.GetRequest
		s := &scripted{get: func(r *pb.GetRequest) *pb.GetResponse {
			asked = append(asked, r)
			return &pb.GetResponse{ClusterId: "c", Lineage: 2, Revision: 7, Age: durationpb.New(time.Minute)}
		}}
		got, err := s.client(t).Get(t.Context(), "k", want.opts...)
		if err != nil || got.Position() != at {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if age := time.Since(got.FreshAt); age < time.Minute || age > time.Hour {
			t.Errorf("%s: fresh %v ago", name, age)
		}
		expected := &pb.GetRequest{Key: []byte("k"), Consistency: want.consistency, Revision: want.revision, ClusterId: want.cluster, Lineage: want.lineage}
		var options []ListOption
		for _, o := range want.opts {
			options = append(options, o)
		}
		l := (&Client{}).List(t.Context(), Key("k"), options...)
		listed := &pb.ListRequest{Key: []byte("k"), Consistency: want.consistency, Revision: want.revision, ClusterId: want.cluster, Lineage: want.lineage}
		if want.staleness > 0 {
			expected.MaxStaleness, listed.MaxStaleness = durationpb.New(want.staleness), durationpb.New(want.staleness)
		}
		if len(asked) != 1 || !proto.Equal(asked[0], expected) {
			t.Errorf("%s: asked for %v, want %v", name, asked, expected)
		}
		if r := l.request(); !proto.Equal(r, listed) {
			t.Errorf("%s: a list asks for %v, want %v", name, r, listed)
		}
	}
}

// An interrupted list resumes in the same history and at the same revision: from its last
// key without a limit, and from the interrupted page with a limit.
func TestAnInterruptedListResumes(t *testing.T) {
	at := Position{Cluster: "c", Lineage: 2, Revision: 7}
	for name, test := range map[string]struct {
		opts []ListOption
		last string
		want *pb.ListRequest
	}{
		"before the first key": {[]ListOption{Serializable(time.Second)}, "", &pb.ListRequest{Key: []byte("a"), RangeEnd: []byte("z"), Revision: 7}},
		"after a key":          {nil, "k", &pb.ListRequest{Key: []byte("k"), RangeEnd: []byte("z"), Revision: 7}},
		"with a limit":         {[]ListOption{Limit(3)}, "k", &pb.ListRequest{Key: []byte("a"), RangeEnd: []byte("z"), Revision: 7, Limit: 3}},
		"a page":               {[]ListOption{Page([]byte("p")), Limit(3)}, "k", &pb.ListRequest{Key: []byte("a"), RangeEnd: []byte("z"), PageToken: []byte("p"), Limit: 3}},
		"a page to the end":    {[]ListOption{Page([]byte("p"))}, "k", &pb.ListRequest{Key: []byte("k"), RangeEnd: []byte("z"), Revision: 7}},
	} {
		l := (&Client{}).List(t.Context(), Between("a", "z"), test.opts...)
		l.at, l.last = at, test.last
		test.want.ClusterId, test.want.Lineage = "c", 2
		if r := l.request(); !proto.Equal(r, test.want) {
			t.Errorf("%s: asks for %v, want %v", name, r, test.want)
		}
	}
}

// A node that only sends the last key again makes no progress: the list fails eventually.
func TestAListWithoutProgressFails(t *testing.T) {
	s := &scripted{parts: func(_ *pb.ListRequest, send func(*pb.ListResponse) error) error {
		if err := send(&pb.ListResponse{ClusterId: "c", Lineage: 2, Revision: 7, Kvs: []*pb.KeyValue{{Key: []byte("k"), ModRevision: 7}}}); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "the rest is on another node, which is away")
	}}
	c := s.client(t, func(cfg *Config) { cfg.RetryFor = time.Second })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := drained(c.List(ctx, Between("a", "z"))); !errors.Is(err, ErrUnavailable) {
		t.Errorf("the list ends with %v", err)
	}
}

// An answer of another history than the requested one is rejected, and so is an answer
// whose parts have different revisions.
func TestAnswersOfAnotherHistoryAreRefused(t *testing.T) {
	asked := Position{Cluster: "c", Lineage: 2, Revision: 7}
	for name, other := range map[string]Position{"cluster": {"d", 2, 7}, "lineage": {"c", 3, 7}} {
		s := &scripted{
			get: func(*pb.GetRequest) *pb.GetResponse {
				return &pb.GetResponse{ClusterId: other.Cluster, Lineage: other.Lineage, Revision: other.Revision}
			},
			list: func(*pb.ListRequest) []*pb.ListResponse {
				return []*pb.ListResponse{{ClusterId: other.Cluster, Lineage: other.Lineage, Revision: other.Revision}}
			},
		}
		c := s.client(t)
		if got, err := c.Get(t.Context(), "k", AtPosition(asked)); !errors.Is(err, ErrLineage) {
			t.Errorf("another %s: got %+v, %v", name, got, err)
		}
		if err := drained(c.List(t.Context(), Key("k"), AtPosition(asked))); !errors.Is(err, ErrLineage) {
			t.Errorf("another %s: listed, %v", name, err)
		}
	}
	s := &scripted{list: func(*pb.ListRequest) []*pb.ListResponse {
		return []*pb.ListResponse{{ClusterId: "c", Lineage: 2, Revision: 7}, {ClusterId: "c", Lineage: 2, Revision: 8}}
	}}
	if err := drained(s.client(t).List(t.Context(), Key("k"))); !errors.Is(err, ErrLineage) {
		t.Errorf("a list of two revisions: %v", err)
	}
}

func drained(l *Listing) error {
	for _, err := range l.All() {
		if err != nil {
			return err
		}
	}
	return nil
}

// mute is a node that accepts everything and answers nothing, like a stopped process.
type mute struct {
	pb.UnimplementedClusterServiceServer
	asked chan struct{}
}

func (m *mute) WatchShardMap(_ *pb.WatchShardMapRequest, s grpc.ServerStreamingServer[pb.WatchShardMapResponse]) error {
	select {
	case m.asked <- struct{}{}:
	default:
	}
	<-s.Context().Done()
	return s.Context().Err()
}

// A node that never sends the requested map is left, even if its connection works.
func TestANodeThatNeverSendsItsMapIsLeft(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mute{asked: make(chan struct{})}
	server := grpc.NewServer()
	pb.RegisterClusterServiceServer(server, m)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	c, err := New(Config{Endpoints: []string{l.Addr().String()}, Silence: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		server.Stop()
		<-ended
	})
	for _, what := range []string{"at first", "after the first stream was left"} {
		select {
		case <-m.asked:
		case <-time.After(time.Minute):
			t.Fatalf("the map was not requested %s", what)
		}
	}
}

// listed returns a part of a list.
func listed(keys ...string) *pb.ListResponse {
	r := &pb.ListResponse{ClusterId: "c", Lineage: 2, Revision: 7}
	for _, k := range keys {
		r.Kvs = append(r.Kvs, &pb.KeyValue{Key: []byte(k), ModRevision: 3})
	}
	return r
}

// A list whose node fails after the last key of the range, but before the end of the
// answer, is completed at the next node. The range of that request is valid.
func TestAListMayBreakAfterItsLastKey(t *testing.T) {
	for last, rng := range map[string]Range{"a": Key("a"), "b": Between("a", "b\x00")} {
		s, calls := &scripted{}, 0
		s.parts = func(r *pb.ListRequest, send func(*pb.ListResponse) error) error {
			calls++
			if calls > 1 && (string(r.GetKey()) != last || len(r.GetRangeEnd()) > 0) {
				return status.Errorf(codes.InvalidArgument, "asked for %v", r)
			}
			if err := send(listed(last)); err != nil || calls > 1 {
				return err
			}
			return status.Error(codes.Unavailable, "the node dies")
		}
		var keys string
		for kv, err := range s.client(t).List(t.Context(), rng).All() {
			if err != nil {
				t.Fatalf("%v: %v", rng, err)
			}
			keys += string(kv.Key)
		}
		if keys != last || calls != 2 {
			t.Errorf("%v: listed %q in %d calls", rng, keys, calls)
		}
	}
}

// A list whose node falls silent halfway resumes from the last key on another node.
func TestAListLeavesANodeThatFallsSilent(t *testing.T) {
	silent, calls := make(chan struct{}), 0
	s := &scripted{}
	s.parts = func(r *pb.ListRequest, send func(*pb.ListResponse) error) error {
		if calls++; calls > 1 {
			if string(r.GetKey()) != "b" || r.GetRevision() != 7 {
				t.Errorf("asked for %v", r)
			}
			return send(listed("b", "c"))
		}
		if err := errors.Join(send(listed("a")), send(listed("b"))); err != nil {
			return err
		}
		<-silent
		return nil
	}
	c := s.client(t, func(c *Config) { c.AttemptTimeout = 200 * time.Millisecond })
	defer close(silent)
	var keys string
	for kv, err := range c.List(t.Context(), Between("a", "z")).All() {
		if err != nil {
			t.Fatal(err)
		}
		keys += string(kv.Key)
	}
	if keys != "abc" {
		t.Errorf("listed %q", keys)
	}
}
