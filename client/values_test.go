package client

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/retry"
)

// A member that changes replaces what was known of it. One that left is not asked, one
// that is suspect is asked last and is no watch's home.
func TestChangedMembersAreReplaced(t *testing.T) {
	member := func(name string, state pb.MemberState) *pb.Member {
		return &pb.Member{Name: name, ClientAddress: name + ":1", State: state}
	}
	top := new(topology)
	take := func(r *pb.WatchShardMapResponse) {
		t.Helper()
		next, err := top.with("a", interest{all: true}, r)
		if err != nil {
			t.Fatal(err)
		}
		top = next
	}
	take(&pb.WatchShardMapResponse{Members: []*pb.Member{member("n1", pb.MemberState_MEMBER_STATE_ALIVE), member("n2", pb.MemberState_MEMBER_STATE_ALIVE), member("n3", pb.MemberState_MEMBER_STATE_ALIVE)}, AllMembers: true})
	take(&pb.WatchShardMapResponse{Members: []*pb.Member{member("n3", pb.MemberState_MEMBER_STATE_LEFT), member("n1", pb.MemberState_MEMBER_STATE_SUSPECT)}})
	if got := names(top.members); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("members %v", got)
	}
	for _, seed := range []string{"1", "2", "3", "4"} {
		if got := top.candidates(Range{}, preference{seed: seed}); !slices.Equal(got, []string{"n2:1", "n1:1"}) {
			t.Errorf("candidates %v", got)
		}
	}
	take(&pb.WatchShardMapResponse{RemovedMembers: []string{"n2"}})
	if home := top.home(Range{}, preference{seed: "1"}); home != "" || len(top.members) != 2 {
		t.Errorf("the home is %q", home)
	}
}

// Versions of the shard map are compared within a cluster: a rebuilt cluster's map begins
// at a low version and is taken.
func TestTheMapOfARebuiltClusterIsTaken(t *testing.T) {
	top := &topology{shards: shardMap{clusterID: "old", version: 9}}
	next, err := top.with("a", interest{all: true}, &pb.WatchShardMapResponse{Map: &pb.ShardMap{ClusterId: "new", Version: 2}, AllShards: true})
	if err != nil || next.shards.clusterID != "new" || next.shards.version != 2 || !next.all {
		t.Errorf("%+v, %v", next, err)
	}
}

// Ranges with and without an end: a range that ends does not cover one that does not.
func TestARangeWithAnEndDoesNotCoverAnOpenOne(t *testing.T) {
	closed, open := []Range{Between("a", "m")}, []Range{Between("a", "")}
	for _, c := range []struct {
		ranges []Range
		r      Range
		want   bool
	}{
		{closed, Between("b", ""), false},
		{closed, Between("a", "m"), true},
		{closed, Between("a", "n"), false},
		{open, Between("b", ""), true},
		{open, Between("a", "z"), true},
		{open, Range{}, false},
	} {
		if got := covers(c.ranges, c.r); got != c.want {
			t.Errorf("%v covers %v: %t", c.ranges, c.r, got)
		}
	}
	narrow := (&topology{all: true}).narrowed(interest{ranges: []Range{Key("a"), Key("b")}, fresh: []Range{Key("b")}})
	if narrow.covers(Range{}) || !narrow.covers(Key("a")) || narrow.covers(Key("b")) {
		t.Errorf("knows %v, all: %t", narrow.known, narrow.all)
	}
}

// A connection is closed when no watch uses it and its node has left the cluster; those
// to endpoints, to live members and of watches stay.
func TestConnectionsToFormerNodesAreClosed(t *testing.T) {
	onBench(t, func(b *bench) {
		for _, addr := range []string{"gone:1", "live:1", "dead:1", "left:1"} {
			if _, err := b.c.node(addr); err != nil {
				t.Fatal(err)
			}
		}
		b.c.nodes["watched:1"] = &node{addr: "watched:1", streams: b.c.nodes["a:1"].streams}
		b.c.nodes["a:1"].streams = nil
		b.c.forget(&topology{members: []member{
			{address: "live:1", state: pb.MemberState_MEMBER_STATE_ALIVE}, {address: "dead:1", state: pb.MemberState_MEMBER_STATE_DEAD}, {address: "left:1", state: pb.MemberState_MEMBER_STATE_LEFT},
		}})
		var got []string
		for addr := range b.c.nodes {
			got = append(got, addr)
		}
		if slices.Sort(got); !slices.Equal(got, []string{"a:1", "live:1", "watched:1"}) {
			t.Errorf("connections to %v", got)
		}
		b.c.drop(b.c.nodes["live:1"])
	}, "a:1")
}

// A read that fails blames its node, unless the program itself stood still, goes where it
// is sent, tries others first, and starts afresh when a node has answered.
func TestAReadBlamesTheNodeThatFails(t *testing.T) {
	onBench(t, func(b *bench) {
		ctx := context.Background()
		a, err := b.c.attempts(ctx, Range{})
		if err != nil {
			t.Fatal(err)
		}
		fails := func(addr string, err error) error {
			a.addr, a.began = addr, b.c.pulse.Wait()
			return a.failed(ctx, err)
		}
		boxed := func(addr string) bool { return b.c.penalties.Boxed(addr, time.Now()) }
		notHere, err := status.New(codes.Unavailable, "x").WithDetails(&errdetails.ErrorInfo{Domain: errorDomain, Reason: "NOT_HERE", Metadata: map[string]string{"endpoints": "c:1"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := fails("a:1", notHere.Err()); err != nil || boxed("a:1") || !slices.Equal(a.hints, []string{"c:1"}) || !slices.Equal(a.tried, retry.Tried{"a:1"}) {
			t.Errorf("sent elsewhere: %v, hints %v, tried %v, in the penalty box: %t", err, a.hints, a.tried, boxed("a:1"))
		}
		if err := fails("b:1", errRefused); err != nil || !boxed("b:1") || len(a.hints) != 0 {
			t.Errorf("refused: %v, hints %v, in the penalty box: %t", err, a.hints, boxed("b:1"))
		}
		a.worked()
		if boxed("b:1") || len(a.tried) != 0 || a.failures != 0 {
			t.Errorf("after an answer: tried %v, %d failures, in the penalty box: %t", a.tried, a.failures, boxed("b:1"))
		}
		a.addr, a.began = "c:1", retry.Wait{Began: time.Now().Add(-time.Hour), Ran: b.c.pulse.Ran()} // the process stood still
		if err := a.failed(ctx, errSlow); err != nil || boxed("c:1") {
			t.Errorf("after a stall: %v, in the penalty box: %t", err, boxed("c:1"))
		}
		if err := fails("c:1", status.Error(codes.InvalidArgument, "x")); !errors.Is(err, ErrInvalid) || boxed("c:1") {
			t.Errorf("invalid: %v", err)
		}
		time.Sleep(b.c.cfg.RetryFor)
		if err := fails("a:1", errSlow); !errors.Is(err, ErrUnavailable) || !errors.Is(err, errSlow) {
			t.Errorf("after the time for attempts: %v", err)
		}
	}, "a:1", "b:1", "c:1")
}

// What a mirror has applied when it ends is told before its end.
func TestTheLastChangeComesBeforeTheEnd(t *testing.T) {
	for range 50 { // both are ready: select takes either
		m := &Mirror{done: make(chan struct{}), ready: make(chan struct{}), changed: make(chan struct{})}
		kvs := func(revision int64, keys ...string) View {
			u := Update{Kind: KindResync, Revision: revision}
			for _, k := range keys {
				u.KVs = append(u.KVs, KeyValue{Key: []byte(k), ModRevision: revision})
			}
			return m.hash.apply(View{}, &u)
		}
		m.hash = hasher{maphash.MakeSeed()}
		m.set(kvs(2, "a"))
		var told []int
		var last error
		for ch, err := range m.Changes(context.Background()) {
			if last = err; err != nil {
				break
			}
			if told = append(told, len(ch.Events)); len(told) == 1 {
				m.set(kvs(3, "b", "c"))
				m.end(errEnded)
			}
		}
		if !slices.Equal(told, []int{1, 3}) || !errors.Is(last, errEnded) {
			t.Fatalf("told changes of %v events, then %v", told, last)
		}
	}
}

// The node of the shard map is left when a probe shows that it is silent: not when the
// program itself stood still, nor when the probe could not be sent for want of a token.
func TestAProbeShowsWhoIsSilent(t *testing.T) {
	for _, test := range []struct {
		code          codes.Code
		stalled       bool
		there, silent bool
	}{
		{code: codes.OK, there: true},
		{code: codes.OK, stalled: true, there: true},
		{code: codes.PermissionDenied, there: true},
		{code: codes.Unimplemented, there: true},
		{code: codes.DeadlineExceeded, silent: true},
		{code: codes.DeadlineExceeded, stalled: true},
		{code: codes.Unavailable, silent: true},
		{code: codes.Unavailable, stalled: true, silent: true},
		{code: codes.Unauthenticated},
	} {
		if there, silent := judgeProbe(test.code, test.stalled); there != test.there || silent != test.silent {
			t.Errorf("%+v: there %v, silent %v", test, there, silent)
		}
	}
}
