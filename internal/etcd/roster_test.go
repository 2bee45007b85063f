package etcd

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// slowMember is a member of etcd that may hang: it takes what comes and says nothing.
type slowMember struct {
	fake
	hangs        atomic.Bool
	reads, opens atomic.Int64
}

func (m *slowMember) Range(ctx context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	m.reads.Add(1)
	if m.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return m.fake.Range(ctx, r)
}

func (m *slowMember) Watch(stream etcdserverpb.Watch_WatchServer) error {
	m.opens.Add(1)
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
	for before := hung.reads.Load(); hung.reads.Load() == before; {
		if _, err := c.Revision(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range hung.opens.Load() {
		select {
		case err := <-ended:
			if !errors.Is(err, errSilent) || !strings.Contains(err.Error(), one+" does not answer") {
				t.Errorf("ended: %v", err)
			}
		case <-time.After(10 * time.Second):
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

// When more than a minority is slow, etcd is: nobody is passed over but them.
func TestMinorityHangs(t *testing.T) {
	for n, most := range map[int]int{1: 0, 2: 1, 3: 1, 4: 1, 5: 2} {
		var all []endpoint
		var at []net.Addr
		for i := range n {
			a := &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(i)), Port: 2379}
			all, at = append(all, endpoint{addr: a.String()}), append(at, a)
		}
		r := newRoster(all, time.Second)
		for i, a := range at {
			r.reached[a.String()] = all[i].addr
		}
		for _, a := range at {
			r.hangs(a)
			r.hangs(a)
		}
		if len(r.hanging) != most {
			t.Errorf("of %d, %d are passed over, want %d", n, len(r.hanging), most)
		}
		r.expireLocked(time.Now().Add(hangFor))
		if len(r.hanging) != 0 {
			t.Error("for ever")
		}
	}
}
