package etcd

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/etcd/etcddemand"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// slowMember is an etcd member that may hang: it accepts requests and does not answer. Without a leader it answers
// only serializable reads. A stalled member stays at the same revision, and answers progress requests.
type slowMember struct {
	fake
	hangs, leaderless, stalls atomic.Bool
	reads, opens              atomic.Int64
}

func (m *slowMember) Range(ctx context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	m.reads.Add(1)
	if m.hangs.Load() || m.leaderless.Load() && !r.GetSerializable() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return m.fake.Range(ctx, r)
}

func (m *slowMember) Watch(stream etcdserverpb.Watch_WatchServer) error {
	m.opens.Add(1)
	if m.hangs.Load() {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	if !m.stalls.Load() {
		return m.fake.Watch(stream)
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		answer := &etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: 100}, WatchId: anyWatch}
		switch {
		case r.GetCreateRequest() != nil:
			answer.Created, answer.WatchId = true, 0
		case r.GetProgressRequest() == nil:
			continue
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func startMember(t *testing.T) (m *slowMember, endpoint string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m, g := &slowMember{}, grpc.NewServer()
	etcdserverpb.RegisterKVServer(g, m)
	etcdserverpb.RegisterWatchServer(g, m)
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-ended })
	return m, l.Addr().String()
}

// A member hangs while its connections stay open. The first read that detects this ends the watches there, and no
// more calls go to that member.
func TestMemberThatHangs(t *testing.T) {
	hung, one := startMember(t)
	good, two := startMember(t)
	cfg := testConfig(one, two)
	cfg.SilenceLimit, cfg.CallTimeout = time.Hour, 500*time.Millisecond
	c := newClient(t, cfg)
	ended := make(chan error, 1000)
	for hung.opens.Load() == 0 || good.opens.Load() == 0 { // in turn, once both are connected
		f := follow(t, c, kv.FollowRequest{From: 200}).begun(200)
		go func() {
			select {
			case err := <-f.err:
				ended <- err
			case <-t.Context().Done():
			}
		}()
	}
	hung.hangs.Store(true)
	for left, began := hung.opens.Load(), time.Now(); left > 0; {
		select {
		case err := <-ended:
			if left--; !errors.Is(err, errSilent) || !strings.Contains(err.Error(), one+" does not answer") {
				t.Errorf("a watch ended with %v", err)
			}
			continue
		default:
		}
		if _, err := c.Revision(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) > patience {
			t.Fatal("a watch stays at the hung member")
		}
	}
	reads, opens := hung.reads.Load(), hung.opens.Load()
	for range 4 {
		if _, err := c.Revision(t.Context()); err != nil {
			t.Fatal(err)
		}
		follow(t, c, kv.FollowRequest{From: 200}).begun(200)
	}
	if hung.reads.Load() != reads || hung.opens.Load() != opens {
		t.Error("the hung member still gets calls")
	}
}

// While etcd has no leader, no member answers reads that need it. The client avoids the hung member, and not the
// member that failed to answer the first read.
func TestLeaderThatHangs(t *testing.T) {
	for leader := range 3 {
		var members []*slowMember
		var endpoints []string
		for range 3 {
			m, at := startMember(t)
			members, endpoints = append(members, m), append(endpoints, at)
		}
		cfg := testConfig(endpoints...)
		cfg.SilenceLimit, cfg.CallTimeout = time.Hour, 200*time.Millisecond
		c := newClient(t, cfg)
		ended := make(chan error, 1000)
		for slices.ContainsFunc(members, func(m *slowMember) bool { return m.opens.Load() == 0 }) {
			f := follow(t, c, kv.FollowRequest{From: 200}).begun(200)
			go func() {
				select {
				case err := <-f.err:
					ended <- err
				case <-t.Context().Done():
				}
			}()
		}
		for i, m := range members {
			m.hangs.Store(i == leader)
			m.leaderless.Store(i != leader)
		}
		for left, began := members[leader].opens.Load(), time.Now(); left > 0; {
			select {
			case err := <-ended:
				if left--; !errors.Is(err, errSilent) || !strings.Contains(err.Error(), endpoints[leader]+" does not answer") {
					t.Errorf("a watch ended with %v", err)
				}
				continue
			default:
			}
			if _, err := c.Revision(t.Context()); !errors.Is(err, etcdconn.ErrUnavailable) {
				t.Errorf("Revision without a leader returns %v, want ErrUnavailable", err)
			}
			if time.Since(began) > patience {
				t.Fatal("a watch stays at the hung member")
			}
		}
		opens := members[leader].opens.Load()
		for _, m := range members {
			m.leaderless.Store(false)
		}
		for range 4 {
			if _, err := c.Revision(t.Context()); err != nil {
				t.Fatal(err)
			}
			follow(t, c, kv.FollowRequest{From: 200}).begun(200)
		}
		if members[leader].opens.Load() != opens || len(ended) > 0 {
			t.Errorf("the hung member got %d more watches, and %d watches at others ended", members[leader].opens.Load()-opens, len(ended))
		}
	}
}

// A member hangs while watches are being created there. They leave as soon as the client detects it.
func TestWatchIsCreatedAtAMemberThatHangs(t *testing.T) {
	hung, one := startMember(t)
	_, two := startMember(t)
	cfg := testConfig(one, two)
	cfg.SilenceLimit, cfg.CallTimeout = time.Hour, 500*time.Millisecond
	c := newClient(t, cfg)
	for hung.opens.Load() == 0 {
		follow(t, c, kv.FollowRequest{From: 200}).begun(200)
	}
	hung.hangs.Store(true)
	var ended []error
	var all sync.WaitGroup
	var mu sync.Mutex
	for range 8 {
		f := follow(t, c, kv.FollowRequest{From: 200})
		all.Go(func() {
			select {
			case <-f.updates: // from the other member
			case err := <-f.err:
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, err)
			}
		})
	}
	all.Wait()
	if len(ended) == 0 {
		t.Error("no watch was sent to the hung member")
	}
	for _, err := range ended {
		if !errors.Is(err, errSilent) || !strings.Contains(err.Error(), one+" does not answer") {
			t.Errorf("a watch ended with %v", err)
		}
	}
}

// The disk of a member stalls, so that the member loses the leader and answers each progress request with the
// revision before the stall. A watch whose consumer waits for a later revision leaves the member.
func TestMemberWhoseDiskStalls(t *testing.T) {
	stalled, one := startMember(t)
	_, two := startMember(t)
	stalled.stalls.Store(true)
	cfg := testConfig(one, two)
	cfg.SilenceLimit = time.Hour
	c := newClient(t, cfg)
	ended := make(chan error, 1000)
	want := new(kv.Demand)
	for stalled.opens.Load() == 0 { // in turn
		f := follow(t, c, kv.FollowRequest{From: 200, Want: want}).begun(200)
		go func() {
			select {
			case err := <-f.err:
				ended <- err
			case <-t.Context().Done():
			}
		}()
	}
	stalled.leaderless.Store(true)
	want.Ask(300)
	left := stalled.opens.Load()
	testkit.Eventually(t, "the watches leave the member whose disk stalls", func() bool {
		if _, err := c.Revision(t.Context()); err != nil { // detects the stalled member
			t.Fatal(err)
		}
		for ; len(ended) > 0; left-- {
			if err := <-ended; !errors.Is(err, errSilent) || !strings.Contains(err.Error(), one+" does not answer") {
				t.Errorf("a watch ended with %v", err)
			}
		}
		return left == 0
	})
}

// A member that counts as hung keeps a watch as long as it sends the awaited updates.
func TestMemberThatSendsIsKept(t *testing.T) {
	c := newClient(t, testConfig("m1:1", "m2:1"))
	now := time.Now()
	began, late, short := now.Add(-time.Hour), 2*c.SlowAfter(), c.SlowAfter()/10
	for name, x := range map[string]struct {
		new            bool // the watch is not created yet
		receives, news time.Duration
		wants          kv.Revision
		waits          time.Duration
		leaves         bool
	}{
		"nothing arrives":             {receives: late, news: late, leaves: true},
		"the watch is not created":    {new: true, receives: short, news: short, leaves: true},
		"answers without news":        {receives: short, news: late, wants: 300, waits: late, leaves: true},
		"something new has arrived":   {receives: short, news: short, wants: 300, waits: late},
		"no consumer waits":           {receives: short, news: late, wants: 200, waits: late},
		"the consumer waits a moment": {receives: short, news: late, wants: 300, waits: short},
		"the consumer is busy":        {receives: 0, news: late, wants: 300, waits: late},
	} {
		t.Run(name, func(t *testing.T) {
			a := &asker{c: c, began: began, created: !x.new, demand: etcddemand.New(time.Second, time.Second, time.Second, began)}
			a.progress.Store(200)
			a.reception.Got(100, false)
			a.reception.Ready(time.Hour - x.news)
			a.reception.Got(100, false)
			if x.receives > 0 {
				a.reception.Ready(time.Hour - x.receives)
			}
			a.demand.Add(x.wants, 200, now.Add(-x.waits))
			err := a.leaveHung(now)
			if left := errors.Is(err, errSilent); left != x.leaves || (err != nil) != left {
				t.Errorf("%v", err)
			}
			if (a.notYetHung != nil) == x.leaves {
				t.Error("the watch must check again if it stays, and only then")
			}
		})
	}
}
