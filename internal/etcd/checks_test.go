package etcd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// After a restore of etcd that no read has detected yet, a follower gets nothing of the new history: neither the
// state, nor a difference, the events of a watch or the past.
func TestNothingOfARestoredEtcdIsServed(t *testing.T) {
	restored := func(t *testing.T) *Client {
		c := (&behind{now: 100, still: true, watches: []int64{0}}).start(t)
		c.Adopt(1, kv.Mark{Cluster: 3, Term: 7, Revision: 200})
		return c
	}
	for name, req := range map[string]kv.FollowRequest{
		"state":      {Range: kv.Prefix("/"), Lineage: 1},
		"difference": {Range: kv.Prefix("/"), Lineage: 1, Held: state{}.held(), HeldAt: 1},
		"watch":      {Range: kv.Prefix("/"), Lineage: 1, From: 150},
	} {
		t.Run(name, func(t *testing.T) {
			for u, err := range restored(t).Follow(t.Context(), req) {
				if !errors.Is(err, kv.ErrOtherHistory) {
					t.Fatalf("update %+v, error %v, want ErrOtherHistory", u, err)
				}
			}
		})
	}
	t.Run("past", func(t *testing.T) {
		h, err := restored(t).History(t.Context(), HistoryRequest{Range: kv.Prefix("/"), From: 10, Before: 20, MaxBytes: 1})
		if !errors.Is(err, kv.ErrOtherHistory) {
			t.Errorf("history %+v, error %v, want ErrOtherHistory", h, err)
		}
	})
}

// If the history ends during a read, the read fails, although its own response contradicts nothing.
func TestHistoryEndsDuringARead(t *testing.T) {
	m, c := startMembers(t, 1, before)
	c.Adopt(1, before)
	gate := make(chan struct{})
	m.mu.Lock()
	m.gate = gate
	m.mu.Unlock()
	read := make(chan error)
	go func() { _, err := c.Revision(t.Context()); read <- err }()
	testkit.Eventually(t, "the read is in flight", func() bool { return c.Stats().ClockReads > 0 })
	c.Suspect(1, kv.ErrOtherHistory)
	close(gate)
	if err := <-read; !errors.Is(err, kv.ErrOtherHistory) {
		t.Errorf("got %v", err)
	}
}

// timedReads records when a read is sent.
type timedReads struct {
	etcdserverpb.KVClient
	sent time.Time
}

func (r *timedReads) Range(ctx context.Context, req *etcdserverpb.RangeRequest, o ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	r.sent = time.Now()
	return r.KVClient.Range(ctx, req, o...)
}

// The age of data counts from before the request, because etcd may change while the response is in transit.
func TestClockDatesFromBeforeTheRequest(t *testing.T) {
	_, c := startMembers(t, 1, before)
	reads := &timedReads{KVClient: c.Reads}
	c.Reads = reads
	clock, err := c.Clock(t.Context())
	if err != nil || clock.At.After(reads.sent) {
		t.Errorf("the read is dated %v, its request was sent at %v: %v", clock.At, reads.sent, err)
	}
}

// A watch from a future revision begins before etcd has reached that revision. The revision does not count as
// etcd's: otherwise the next read of etcd would look like a restore.
func TestWatchFromTheFutureIsNoRestore(t *testing.T) {
	b := &behind{now: 100, still: true, watches: []int64{0}}
	c := b.start(t)
	c.Adopt(1, kv.Mark{Cluster: 3, Revision: 100})
	want := new(kv.Demand)
	want.Ask(200)
	follow(t, c, kv.FollowRequest{Range: kv.Prefix("/"), Lineage: 1, From: 150, Want: want}).begun(150)
	testkit.Eventually(t, "etcd has answered", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.asked > 2
	})
	if _, err := c.Look(t.Context()); err != nil {
		t.Error(err)
	}
	if _, mark := c.Known(); mark.Revision != 100 {
		t.Errorf("the known revision of etcd is %d, want 100", mark.Revision)
	}
}

// A watch that is far behind keeps its permit until it has reached the revision that etcd had at its beginning.
func TestFarBehindWatchKeepsItsPermit(t *testing.T) {
	b := &behind{now: 100, still: true, watches: []int64{0}, progress: []int64{99, 100, 101}}
	l := b.start(t)
	l.cfg.FreeCatchUp = 20
	one := NewLocalPermits(1)
	l.SetPermits(one)
	want := new(kv.Demand)
	want.Ask(101)
	for u, err := range l.Follow(t.Context(), kv.FollowRequest{Range: kv.Prefix("/"), From: 10, Want: want}) {
		if err != nil {
			t.Fatal(err)
		}
		if held := len(one) == 1; held != (u.Revision <= 100) {
			t.Errorf("revision %d: permit held %v", u.Revision, held)
		}
		if u.Revision == 101 {
			break
		}
	}
}

// A history request whose caller has stopped is not read.
func TestCanceledHistoryRequestsAreNotRead(t *testing.T) {
	for name, busy := range map[string]bool{"waiting for its turn": true, "waiting for a permit": false} {
		t.Run(name, func(t *testing.T) {
			one := NewLocalPermits(1)
			one <- struct{}{}
			permits := &counted{one, make(chan string, 1)}
			c := &Client{historian: make(chan struct{}, 1), permits: permits}
			ctx, giveUp := context.WithCancel(t.Context())
			if busy {
				c.historian <- struct{}{}
			}
			var reader sync.WaitGroup
			reader.Go(func() {
				if _, err := c.History(ctx, HistoryRequest{Range: kv.Single("/a"), From: 2, Before: 3, MaxBytes: 1}); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
			if busy {
				testkit.Eventually(t, "it waits", func() bool { return !c.pastReads.none() })
			} else {
				<-permits.asked
			}
			giveUp()
			reader.Wait()
			if !c.pastReads.none() {
				t.Error("the request still waits to be read")
			}
			if turn := len(c.historian) == 0; turn == busy {
				t.Errorf("the turn is free: %v", turn)
			}
		})
	}
}

// A response to a watch that a stream of history requests does not contain is ignored.
func TestAnswerToNoHistoryRequest(t *testing.T) {
	batch := []*pastRead{{}, {}}
	for _, x := range []struct {
		r        watchResponse
		answered int
		want     []*pastRead
	}{
		{watchResponse{watch: 1}, 2, batch[:1]},
		{watchResponse{watch: 2}, 2, batch[1:]},
		{watchResponse{watch: anyWatch}, 2, batch},
		{watchResponse{watch: 0}, 2, nil},
		{watchResponse{watch: 3}, 2, nil},
		{watchResponse{watch: -2}, 2, nil},
		{watchResponse{watch: anyWatch, created: true, canceled: true}, 1, batch[1:]},
		{watchResponse{watch: anyWatch, created: true, canceled: true}, 2, nil},
	} {
		if got := concerned(batch, &x.r, x.answered); !slices.Equal(got, x.want) {
			t.Errorf("response %+v after %d answers applies to %d requests, want %d", x.r, x.answered, len(got), len(x.want))
		}
	}
}

// forged answers reads with preset responses.
type forged struct {
	etcdserverpb.KVClient
	revision int64
	list     []*mvccpb.KeyValue
	values   []*etcdserverpb.ResponseOp
}

func (f *forged) Range(context.Context, *etcdserverpb.RangeRequest, ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	return &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: f.revision}, Kvs: f.list}, nil
}

func (f *forged) Txn(context.Context, *etcdserverpb.TxnRequest, ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	return &etcdserverpb.TxnResponse{Responses: f.values}, nil
}

func answerOf(kvs ...*mvccpb.KeyValue) *etcdserverpb.ResponseOp {
	return &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{Kvs: kvs}}}
}

func listed(key string, mod int64) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(key), CreateRevision: mod, ModRevision: mod, Version: 1}
}

// An etcd that has not reached the held revision is reported as behind, not as having a different key.
func TestLeapBelowTheHeldRevision(t *testing.T) {
	c := newClient(t, testConfig("none:1"))
	for name, list := range map[string][]*mvccpb.KeyValue{
		"with keys":    {listed("/a", 2), listed("/b", 4)},
		"without keys": nil,
	} {
		c.Lists = &forged{revision: 5, list: list}
		for at, ahead := range map[kv.Revision]bool{4: false, 5: false, 6: true} {
			held := state{"/a": keyValue(listed("/a", 2))}
			_, err := c.leap(t.Context(), kv.FollowRequest{Range: kv.Prefix("/"), Held: held.held(), HeldAt: at})
			var found *kv.ContradictionError
			if got := errors.As(err, &found) && found.Ahead && len(found.Claims) == 0; got != ahead {
				t.Errorf("%s, held at %d with etcd at 5: %v", name, at, err)
			}
		}
	}
}

// The values of a revision must match its list of keys. A member that contradicts itself is rejected.
func TestValuesMustBeThoseOfTheList(t *testing.T) {
	a, b, d := listed("/a", 2), listed("/b", 3), listed("/d", 4)
	runs := []run{{a, b}, {d}}
	c := newClient(t, testConfig("none:1"))
	for name, x := range map[string]struct {
		answers []*etcdserverpb.ResponseOp
		ok      bool
	}{
		"the same":            {[]*etcdserverpb.ResponseOp{answerOf(a, b), answerOf(d)}, true},
		"an answer too few":   {[]*etcdserverpb.ResponseOp{answerOf(a, b)}, false},
		"a key is missing":    {[]*etcdserverpb.ResponseOp{answerOf(a), answerOf(d)}, false},
		"a key too many":      {[]*etcdserverpb.ResponseOp{answerOf(a, b), answerOf(d, d)}, false},
		"another key":         {[]*etcdserverpb.ResponseOp{answerOf(a, listed("/c", 3)), answerOf(d)}, false},
		"of another revision": {[]*etcdserverpb.ResponseOp{answerOf(a, listed("/b", 5)), answerOf(d)}, false},
	} {
		c.Lists = &forged{values: x.answers}
		got, err := c.readRuns(t.Context(), runs, 5)
		if x.ok && (err != nil || len(got) != 3) || !x.ok && !errors.Is(err, errProtocol) {
			t.Errorf("%s: %d values, %v", name, len(got), err)
		}
	}
}
