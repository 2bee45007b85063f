package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// changing is a node with a map and members that change.
type changing struct {
	server.Node

	mu      sync.Mutex
	changed chan struct{}
	m       *shard.Map
	before  []*shard.Map // older maps whose changes are known
	members []*pb.Member
}

func (c *changing) Changes() <-chan struct{} { c.mu.Lock(); defer c.mu.Unlock(); return c.changed }
func (c *changing) Members() []*pb.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*pb.Member(nil), c.members...)
}

func (c *changing) MapSince(cluster string, version uint64) (*shard.Map, *shard.Delta) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, old := range c.before {
		if old.ClusterID == cluster && old.Version == version {
			return c.m, shard.Diff(old, c.m)
		}
	}
	return c.m, nil
}

func (c *changing) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

func member(i int, state pb.MemberState) *pb.Member {
	return &pb.Member{Name: fmt.Sprintf("n%04d", i), ClientAddress: fmt.Sprintf("10.0.0.%d:7400", i), State: state}
}

// When a member flaps or a shard moves, clients are sent only the change, not the whole map and all
// members.
func TestClientsAreSentOnlyTheChanges(t *testing.T) {
	var cuts []string
	for i := 1; i < 1000; i++ {
		cuts = append(cuts, fmt.Sprintf("%04d", i))
	}
	node := &changing{changed: make(chan struct{}), m: cachetest.Map(7, cuts, "other")}
	for i := range 1000 {
		node.members = append(node.members, member(i, pb.MemberState_MEMBER_STATE_ALIVE))
	}
	r := start(t, cachetest.New(), options{server: func(c *server.Config) { node.Node, c.Node = c.Node, node }})
	follow := func(req *pb.WatchShardMapRequest) pb.ClusterService_WatchShardMapClient {
		t.Helper()
		s, err := pb.NewClusterServiceClient(r.conn).WatchShardMap(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	next := func(s pb.ClusterService_WatchShardMapClient) *pb.WatchShardMapResponse {
		t.Helper()
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	expect := func(what string, m *pb.WatchShardMapResponse, shards, removed, members int) {
		t.Helper()
		if len(m.GetMap().GetShards()) != shards || len(m.GetRemovedShards()) != removed || len(m.GetMembers()) != members {
			t.Errorf("%s: %d shards, %d removed and %d members, want %d, %d, %d", what,
				len(m.GetMap().GetShards()), len(m.GetRemovedShards()), len(m.GetMembers()), shards, removed, members)
		}
	}

	all, some := follow(&pb.WatchShardMapRequest{}), follow(&pb.WatchShardMapRequest{Ranges: []*pb.KeyRange{{Key: []byte("0500x")}, {Key: []byte("0700"), RangeEnd: []byte("0702")}}})
	first := next(all)
	expect("the first message", first, 1000, 0, 1000)
	if !first.GetAllShards() || !first.GetAllMembers() {
		t.Errorf("the first message is not marked as complete: all shards %t, all members %t", first.GetAllShards(), first.GetAllMembers())
	}
	m := next(some)
	expect("the first message about three shards", m, 3, 0, 1000)
	if m.GetAllShards() {
		t.Error("a message with three of the shards is marked as complete")
	}

	node.change(func() { node.members[8] = member(8, pb.MemberState_MEMBER_STATE_SUSPECT) })
	m = next(all)
	expect("a member flaps", m, 0, 0, 1)
	if size := proto.Size(m); m.GetMap() != nil || size > 100 {
		t.Errorf("a flap takes %d bytes", size)
	}
	expect("a member flaps", next(some), 0, 0, 1)

	moved := node.m.Clone()
	moved.Version++
	moved.Spec.Shards, moved.Spec.Replicas = 1, 1
	moved.Shards[701].Epoch++
	moved.Shards[701].Replicas = []shard.NodeID{"elsewhere"}
	node.change(func() { node.before, node.m = append(node.before, node.m), moved })
	m = next(all)
	expect("a shard moves, told with its neighbours", m, 3, 0, 0)
	if m.GetFromVersion() != 7 || m.GetMap().GetVersion() != 8 {
		t.Errorf("from version %d to %d", m.GetFromVersion(), m.GetMap().GetVersion())
	}
	expect("a shard moves, told to a client of it and of one neighbour", next(some), 2, 0, 0)

	split, err := shard.Apply(moved, shard.Command{IfVersion: 8, Change: shard.Split{Shard: moved.Shards[2].ID, At: []string{"0002x"}}})
	if err != nil {
		t.Fatal(err)
	}
	node.change(func() { node.before, node.m, node.members = append(node.before, moved), split, node.members[:999] })
	m = next(all)
	expect("a split", m, 4, 1, 0)
	if len(m.GetRemovedMembers()) != 1 {
		t.Errorf("members removed: %v", m.GetRemovedMembers())
	}
	expect("a split elsewhere", next(some), 0, 0, 0)

	again := next(follow(&pb.WatchShardMapRequest{KnownVersion: 8, ClusterId: "test", KnownMembers: first.GetMembersVersion()}))
	expect("a client comes back", again, 4, 1, 1)

	_, err = follow(&pb.WatchShardMapRequest{Ranges: make([]*pb.KeyRange, 1025)}).Recv()
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("1025 ranges: %v", err)
	}
}

// A client of one key among a thousand shards gets nothing while other shards change. If it adds a range, it gets
// the shards of that range; when it reconnects, it gets the changes that it has missed.
func TestClientsAreSentTheShardsOfTheirRanges(t *testing.T) {
	var cuts []string
	for i := 1; i < 1000; i++ {
		cuts = append(cuts, fmt.Sprintf("%04d", i))
	}
	node := &changing{changed: make(chan struct{}), m: cachetest.Map(7, cuts, "other"), members: []*pb.Member{member(1, pb.MemberState_MEMBER_STATE_ALIVE)}}
	r := start(t, cachetest.New(), options{server: func(c *server.Config) { node.Node, c.Node = c.Node, node }})
	follow := func(req *pb.WatchShardMapRequest) pb.ClusterService_WatchShardMapClient {
		t.Helper()
		s, err := pb.NewClusterServiceClient(r.conn).WatchShardMap(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	next := func(s pb.ClusterService_WatchShardMapClient, from, version uint64, shards, removed int) *pb.WatchShardMapResponse {
		t.Helper()
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetFromVersion() != from || m.GetMap().GetVersion() != version || len(m.GetMap().GetShards()) != shards || len(m.GetRemovedShards()) != removed {
			t.Fatalf("from version %d to %d, %d shards, %d removed; want %d to %d, %d, %d",
				m.GetFromVersion(), m.GetMap().GetVersion(), len(m.GetMap().GetShards()), len(m.GetRemovedShards()), from, version, shards, removed)
		}
		return m
	}
	move := func(i int) {
		moved := node.m.Clone()
		moved.Version++
		moved.Shards[i].Epoch++
		moved.Shards[i].Replicas = []shard.NodeID{shard.NodeID(fmt.Sprint("n", moved.Version))}
		node.change(func() { node.before, node.m = append(node.before, node.m), moved })
	}
	key := func(k string) []*pb.KeyRange { return []*pb.KeyRange{{Key: []byte(k)}} }

	all, some, none := follow(&pb.WatchShardMapRequest{}), follow(&pb.WatchShardMapRequest{Ranges: key("0500x")}), follow(&pb.WatchShardMapRequest{OnlyRanges: true})
	next(all, 0, 7, 1000, 0)
	next(some, 0, 7, 1, 0)
	next(none, 0, 7, 0, 0)
	for i := range 3 {
		move(700 + 10*i)
		next(all, uint64(7+i), uint64(8+i), 3, 0)
	}
	move(500)
	next(all, 10, 11, 3, 0)
	next(some, 7, 11, 1, 0) // the versions in between were not sent
	node.change(func() { node.members = append(node.members, member(2, pb.MemberState_MEMBER_STATE_ALIVE)) })
	if m, err := none.Recv(); err != nil || m.GetMap() != nil || len(m.GetMembers()) != 1 {
		t.Errorf("a client without ranges got %v, %v", m, err)
	}
	drained := node.m.Clone()
	drained.Version++
	drained.Drained = []shard.NodeID{"other"}
	node.change(func() { node.before, node.m = append(node.before, node.m), drained })
	next(none, 7, 12, 0, 0)

	req := &pb.WatchShardMapRequest{KnownVersion: 12, ClusterId: "test", Ranges: []*pb.KeyRange{{Key: []byte("0500x")}, {Key: []byte("0800"), RangeEnd: []byte("0802")}}}
	req.NewRanges = req.GetRanges()[1:]
	more := follow(req)
	next(more, 12, 12, 2, 0)
	move(801)
	next(more, 12, 13, 2, 0)
	late := follow(req) // with an older version, and a shard that is new to the client and has changed
	next(late, 12, 13, 2, 0)
	req.KnownVersion, req.NewRanges = 13, nil
	same := follow(req)
	if m, err := same.Recv(); err != nil || m.GetMap() != nil {
		t.Errorf("a client with the newest version got %v, %v", m, err)
	}
}

// The memory that calls need for their request counts against the budget until they end.
func TestRequestsCountUntilTheirCallsEnd(t *testing.T) {
	b := budget.New(128 << 20) // 16 MiB of it for requests, 8 MiB for each client
	r := start(t, cachetest.New(), options{server: func(c *server.Config) { c.Budget = b }})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	long := strings.Repeat("k", 1<<20)
	follow := func() error {
		s, err := pb.NewClusterServiceClient(r.conn).WatchShardMap(ctx, &pb.WatchShardMapRequest{Ranges: []*pb.KeyRange{{Key: []byte(long)}}})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}
	if err := follow(); err != nil {
		t.Fatal(err)
	}
	health, err := healthgrpc.NewHealthClient(r.conn).Watch(ctx, &healthgrpc.HealthCheckRequest{Service: long})
	if err == nil {
		_, err = health.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	if held := b.Held(budget.Requests); held < 6<<20 {
		t.Errorf("two calls hold only %d bytes", held)
	}
	if err := follow(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a third call: %v", err)
	}
	cancel()
	testkit.Eventually(t, "all bytes are released", func() bool { return b.Held(budget.Requests) == 0 })
}
