package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// slowMember is a member of etcd that may hang: it takes requests and answers none. One
// without a leader answers reads of its own state only.
type slowMember struct {
	fake
	hangs, leaderless atomic.Bool
	reads, opens      atomic.Int64
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
	return m.fake.Watch(stream)
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

// A member of etcd hangs, and its connections stand: the first read that finds out
// ends the watches there, and the others are not sent to it any more.
func TestMemberThatHangs(t *testing.T) {
	hung, one := startMember(t)
	good, two := startMember(t)
	cfg := testConfig(one, two)
	cfg.SilenceLimit, cfg.CallTimeout = time.Hour, 500*time.Millisecond
	c := newClient(t, cfg)
	ended := make(chan error, 1000)
	for hung.opens.Load() == 0 || good.opens.Load() == 0 { // by turns, once both are connected to
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
				t.Errorf("ended: %v", err)
			}
			continue
		default:
		}
		if _, err := c.Revision(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) > patience {
			t.Fatal("a watch stays at the member that hangs")
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
		t.Error("it is still asked")
	}
}

// While etcd has no leader, no member answers the reads that need one. The member that
// hangs is passed over, and not the one whose read was the first to get no answer.
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
					t.Errorf("ended: %v", err)
				}
				continue
			default:
			}
			if _, err := c.Revision(t.Context()); !errors.Is(err, ErrUnavailable) {
				t.Errorf("a revision without a leader: %v", err)
			}
			if time.Since(began) > patience {
				t.Fatal("a watch stays at the member that hangs")
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
			t.Errorf("the member that hangs got %d more watches, and %d watches at others ended", members[leader].opens.Load()-opens, len(ended))
		}
	}
}

// A member hangs while watches are being created there: they leave as soon as that is
// known.
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
			case <-f.updates: // at the other one
			case err := <-f.err:
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, err)
			}
		})
	}
	all.Wait()
	if len(ended) == 0 {
		t.Error("no watch was sent to the member that hangs")
	}
	for _, err := range ended {
		if !errors.Is(err, errSilent) || !strings.Contains(err.Error(), one+" does not answer") {
			t.Errorf("ended: %v", err)
		}
	}
}

// A member hangs that is silent, or that does not reach the leader though another does.
func TestHanging(t *testing.T) {
	well, silent, leaderless := reaction{led: true}, reaction{silent: true}, reaction{}
	for _, test := range []struct {
		members []reaction
		want    []bool
	}{
		{[]reaction{well, well, well}, []bool{false, false, false}},
		{[]reaction{well, silent, well}, []bool{false, true, false}},
		{[]reaction{leaderless, silent, leaderless}, []bool{false, true, false}}, // no leader yet
		{[]reaction{leaderless, silent, well}, []bool{false, true, false}},       // one does not know it yet
		{[]reaction{leaderless, leaderless, leaderless}, []bool{false, false, false}},
		{[]reaction{well, well, leaderless}, []bool{false, false, true}}, // cut from the other members
		{[]reaction{silent, silent, well}, []bool{true, true, false}},
	} {
		if got := hanging(test.members); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %v, want %v", test.members, got, test.want)
		}
	}
}

// A read that the leader must confirm shows that a member reaches it, also when it is
// refused. Without a leader a member does not answer, or says so; a learner never asks it.
func TestLedBy(t *testing.T) {
	for err, want := range map[error]bool{
		nil:                                              true,
		rpctypes.ErrGRPCPermissionDenied:                 true,
		rpctypes.ErrGRPCInvalidAuthToken:                 true,
		rpctypes.ErrGRPCCompacted:                        true,
		rpctypes.ErrGRPCNoLeader:                         false,
		rpctypes.ErrGRPCLeaderChanged:                    false,
		rpctypes.ErrGRPCTimeout:                          false,
		rpctypes.ErrGRPCNotSupportedForLearner:           false,
		status.Error(codes.DeadlineExceeded, "deadline"): false,
	} {
		if got := ledBy(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// An etcd that is slow as a whole is asked ever more seldom.
func TestInquiriesBecomeRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		i := newInquiry(func(context.Context) { asked++ })
		began := time.Now()
		var at []time.Duration
		for time.Since(began) < 34*time.Second {
			before := asked
			i.start()
			synctest.Wait()
			if asked > before {
				at = append(at, time.Since(began))
			}
			time.Sleep(100 * time.Millisecond)
		}
		var pauses []time.Duration
		for n := range at[1:] {
			pauses = append(pauses, at[n+1]-at[n])
		}
		if s := time.Second; !slices.Equal(pauses, []time.Duration{s, 2 * s, 4 * s, 5 * s, 5 * s, 5 * s, 5 * s, 5 * s}) {
			t.Errorf("pauses: %v", pauses)
		}
		time.Sleep(3 * longestInquiryPause)
		i.start()
		synctest.Wait()
		before := asked
		time.Sleep(inquiryPause)
		i.start()
		synctest.Wait()
		if asked != before+1 {
			t.Error("etcd was well for long, and the pause is as long as before")
		}
		i.close()
		i.start()
		synctest.Wait()
		if asked != before+1 {
			t.Error("an inquiry after close")
		}
	})
}

// An inquiry that takes long is the only one: the members are not asked again before they
// have answered.
func TestInquiriesAreOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, make(chan struct{})
		i := newInquiry(func(context.Context) { asked++; <-answer })
		for range 20 {
			i.start()
			time.Sleep(inquiryPause)
			synctest.Wait()
		}
		if asked != 1 {
			t.Errorf("%d inquiries while the first one was not answered", asked)
		}
		answer <- struct{}{}
		time.Sleep(longestInquiryPause)
		i.start()
		synctest.Wait()
		if asked != 2 {
			t.Errorf("%d inquiries after the first one", asked)
		}
		close(answer)
		i.close()
	})
}

// When more than a minority is slow, etcd is: none is passed over. One that answers again
// is taken back.
func TestMinorityHangs(t *testing.T) {
	for n, most := range map[int]int{1: 0, 2: 1, 3: 1, 4: 1, 5: 2} {
		var all []endpoint
		for i := range n {
			all = append(all, endpoint{addr: fmt.Sprintf("10.0.0.%d:2379", i)})
		}
		r := newRoster(all, time.Second, nil)
		for hung := n; hung >= 0; hung-- {
			r.hanging, r.told = make(map[string]time.Time), make(map[string]chan struct{})
			hangs := make([]bool, n)
			for i := range hung {
				hangs[i] = true
			}
			want := hung
			if hung > most {
				want = 0
			}
			if fresh := r.judge(hangs); len(r.hanging) != want || len(fresh) != want {
				t.Errorf("%d of %d hang: %d are passed over, %d newly, want %d", hung, n, len(r.hanging), len(fresh), want)
			}
			if fresh := r.judge(hangs); len(fresh) != 0 {
				t.Errorf("%v are passed over newly, and were before", fresh)
			}
			if want == 0 {
				continue
			}
			r.reached["x"] = all[0].addr
			told := r.told[all[0].addr]
			select {
			case <-told:
			default:
				t.Error("the watches there are not told")
			}
			if r.judge(make([]bool, n)); len(r.hanging) != 0 || r.told[all[0].addr] == told {
				t.Error("they answer again and are still passed over")
			}
			r.judge(hangs)
			r.mu.Lock()
			if r.expireLocked(time.Now().Add(hangFor)); len(r.hanging) != 0 {
				t.Error("for ever")
			}
			r.mu.Unlock()
		}
	}
}
