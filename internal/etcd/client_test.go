package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// Every write acknowledged before a call is in its result, although callers share reads.
func TestRevisionIsNeverOlderThanTheCall(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	cli := s.Client()
	var acknowledged atomic.Int64
	writing, stop := context.WithCancel(t.Context())
	var writer, readers sync.WaitGroup
	writer.Go(func() {
		for writing.Err() == nil {
			r, err := cli.Put(context.Background(), "/r", "x")
			if err != nil {
				t.Error(err)
				return
			}
			acknowledged.Store(r.Header.Revision)
		}
	})
	for range 20 {
		readers.Go(func() {
			for range 50 {
				before := acknowledged.Load()
				got, err := c.Revision(t.Context())
				if err != nil || int64(got) < before {
					t.Errorf("got %d, %v; revision %d was acknowledged before the call", got, err, before)
				}
			}
		})
	}
	readers.Wait()
	stop()
	writer.Wait()
	if n := c.Stats(); n.ClockCalls != 1000 || n.ClockReads >= n.ClockCalls {
		t.Errorf("%d calls made %d reads, want shared reads", n.ClockCalls, n.ClockReads)
	}
	clock, err := c.Clock(t.Context())
	if id, e := c.ClusterID(t.Context()); err != nil || e != nil || id != clock.Cluster || id == 0 || clock.Term == 0 || clock.Member == 0 || clock.At.IsZero() {
		t.Errorf("clock %+v, %v; cluster %d, %v", clock, err, id, e)
	}
}

// lines is a log whose lines can be counted.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), what)
}

// While etcd is unavailable, every call fails with that error, and the log reports the outage once.
func TestUnavailable(t *testing.T) {
	s := etcdtest.Start(t)
	s.Stop()
	log := &lines{}
	cfg := testConfig(s.Endpoint())
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	c := newClient(t, cfg)
	for name, do := range map[string]func() error{
		"revision": func() error { _, err := c.Revision(t.Context()); return err },
		"cluster":  func() error { _, err := c.ClusterID(t.Context()); return err },
		"keys":     func() error { return c.Keys(t.Context(), kv.Range{}, nil) },
		"check":    func() error { return c.Check(t.Context()) },
		"list":     follow(t, c, kv.FollowRequest{}).failure,
		"watch":    follow(t, c, kv.FollowRequest{From: 5}).failure,
	} {
		err := do()
		var typed *kv.UnavailableError
		if !errors.Is(err, etcdconn.ErrUnavailable) || !errors.As(err, &typed) || typed.Why != kv.EtcdUnavailable || typed.RetryAfter <= 0 {
			t.Errorf("%s: %v, want UnavailableError with a retry delay", name, err)
		}
	}
	s.Restart()
	testkit.Eventually(t, "etcd is back", func() bool { _, err := c.Revision(t.Context()); return err == nil })
	if gone, back := log.count("etcd is unavailable:"), log.count("etcd is available again"); gone != 1 || back != 1 {
		t.Errorf("the log reports %d outages and %d recoveries, want 1 each:\n%s", gone, back, log.b.String())
	}
	if err := c.Check(t.Context()); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Revision(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

// If one endpoint of two is dead, no call fails.
func TestDeadEndpointBesideAGoodOne(t *testing.T) {
	dead := etcdtest.Start(t)
	dead.Stop()
	s := etcdtest.Start(t)
	log := &lines{}
	cfg := testConfig(dead.Endpoint(), s.Endpoint())
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	c := newClient(t, cfg)
	for range 3 {
		if err := c.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Revision(t.Context()); err != nil {
			t.Fatal(err)
		}
		follow(t, c, kv.FollowRequest{}).ready()
	}
	if n := log.count("does not answer, the others do"); n != 1 {
		t.Errorf("the log reports the dead endpoint %d times, want once", n)
	}
}

// fake is an etcd with scripted responses.
type fake struct {
	etcdserverpb.UnimplementedMaintenanceServer
	etcdserverpb.UnimplementedWatchServer
	etcdserverpb.UnimplementedKVServer
	version string
	cluster uint64
}

func (f *fake) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Version: f.version, Header: &etcdserverpb.ResponseHeader{ClusterId: f.cluster}}, nil
}

func (f *fake) Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: f.cluster, Revision: 300}}, nil
}

// Watch announces a watch that has to catch up, and then stays silent.
func (f *fake) Watch(stream etcdserverpb.Watch_WatchServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.GetCreateRequest() == nil {
			continue
		}
		if err := stream.Send(&etcdserverpb.WatchResponse{Created: true, Header: &etcdserverpb.ResponseHeader{Revision: 100}}); err != nil {
			return err
		}
	}
}

// serve makes only the fakes reachable, by their names.
func serve(t *testing.T, fakes map[string]*fake) func(context.Context, string) (net.Conn, error) {
	t.Helper()
	listeners := map[string]*bufconn.Listener{}
	for name, f := range fakes {
		l, g := bufconn.Listen(1<<16), grpc.NewServer()
		etcdserverpb.RegisterMaintenanceServer(g, f)
		etcdserverpb.RegisterWatchServer(g, f)
		etcdserverpb.RegisterKVServer(g, f)
		ended := make(chan error, 1)
		go func() { ended <- g.Serve(l) }()
		t.Cleanup(func() { g.Stop(); <-ended })
		listeners[name] = l
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if l := listeners[addr]; l != nil {
			return l.DialContext(ctx)
		}
		return nil, fmt.Errorf("no server at %s", addr)
	}
}

func TestCheckRefuses(t *testing.T) {
	dialer := serve(t, map[string]*fake{
		"new:1": {version: "3.7.3", cluster: 1}, "new:2": {version: "3.6.14", cluster: 1},
		"old:1": {version: "3.5.32", cluster: 1}, "old:2": {version: "3.4.30", cluster: 1}, "other:1": {version: "3.7.3", cluster: 2},
	})
	check := func(endpoints ...string) error {
		cfg := testConfig(endpoints...)
		cfg.Dialer = dialer
		return newClient(t, cfg).Check(t.Context())
	}
	if err := check("new:1", "new:2", "away:1"); err != nil {
		t.Error(err)
	}
	if err := check("away:1", "away:2"); !errors.Is(err, etcdconn.ErrUnavailable) || !strings.Contains(err.Error(), "away:2") {
		t.Errorf("with all endpoints away: %v, want ErrUnavailable", err)
	}
	err := check("new:1", "old:1", "away:1", "old:2")
	var version *etcdconn.VersionError
	if !errors.As(err, &version) || *version != (etcdconn.VersionError{Endpoint: "old:1", Version: "3.5.32"}) {
		t.Errorf("with old versions: %v, want VersionError", err)
	}
	for _, word := range []string{"old:1", "3.5.32", "old:2", "3.4.30", "3.5.33, 3.6.14, 3.7.1", "upgrade"} {
		if !strings.Contains(fmt.Sprint(err), word) {
			t.Errorf("error %q does not mention %q", err, word)
		}
	}
	var cluster *etcdconn.ClusterError
	if err := check("new:1", "other:1"); !errors.As(err, &cluster) || cluster.Endpoints != [2]string{"new:1", "other:1"} || cluster.IDs != [2]uint64{1, 2} {
		t.Errorf("with endpoints of two clusters: %v, want ClusterError", err)
	}
}

// Debian's etcd, if installed, is too old and is refused.
func TestCheckRefusesDebiansEtcd(t *testing.T) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("no etcd is installed")
	}
	version, err := exec.CommandContext(t.Context(), path, "--version").Output()
	if err != nil || !bytes.Contains(version, []byte("etcd Version: 3.4.")) {
		t.Skipf("the installed etcd is not a 3.4: %s %v", version, err)
	}
	p, err := etcdtest.NewProcess(t.Context(), etcdtest.ProcessConfig{Binary: path, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var old *etcdconn.VersionError
	if err := newClient(t, testConfig(p.Endpoint())).Check(t.Context()); !errors.As(err, &old) {
		t.Errorf("got %v", err)
	}
}

// A watch without answers ends with an error, so that the caller can use another member.
func TestSilentWatchIsGivenUp(t *testing.T) {
	cfg := testConfig("silent:1")
	cfg.Dialer = serve(t, map[string]*fake{"silent:1": {}})
	cfg.SilenceLimit, cfg.CallTimeout = 200*time.Millisecond, 100*time.Millisecond
	c := newClient(t, cfg)
	if err := follow(t, c, kv.FollowRequest{From: 50}).failure(); !errors.Is(err, errSilent) {
		t.Errorf("a silent watch that catches up ends with %v, want errSilent", err)
	}
	want := new(kv.Demand)
	want.Ask(300)
	f := follow(t, c, kv.FollowRequest{From: 200, Want: want}).begun(200)
	if err := f.failure(); !errors.Is(err, errSilent) {
		t.Errorf("a silent watch that waits for progress ends with %v, want errSilent", err)
	}
	if n := c.Stats(); n.Silenced != 2 || n.ProgressAsked < 2 {
		t.Errorf("stats: %+v", n)
	}
}

// withAuth turns on etcd's authentication: root has all permissions, reader may read /mine/.
func withAuth(t *testing.T, cli *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	var errs []error
	must := func(_ any, err error) { errs = append(errs, err) }
	must(cli.UserAdd(ctx, "root", "secret"))
	must(cli.RoleAdd(ctx, "root"))
	must(cli.UserGrantRole(ctx, "root", "root"))
	must(cli.UserAdd(ctx, "reader", "readme"))
	must(cli.RoleAdd(ctx, "mine"))
	must(cli.RoleGrantPermission(ctx, "mine", "/mine/", "/mine0", clientv3.PermissionType(clientv3.PermRead)))
	must(cli.UserGrantRole(ctx, "reader", "mine"))
	must(cli.AuthEnable(ctx))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestPassword(t *testing.T) {
	s := etcdtest.Start(t)
	cfg := testConfig(s.Endpoint())
	cfg.Username, cfg.Password, cfg.ProbeKey = "reader", "readme", "/mine/"
	c := newClient(t, cfg)
	if _, err := c.Revision(t.Context()); err != nil {
		t.Errorf("with a password for an etcd without authentication: %v", err)
	}
	if _, err := s.Client().Put(t.Context(), "/mine/a", "1"); err != nil {
		t.Fatal(err)
	}
	withAuth(t, s.Client())

	root, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Username: "root", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, lose := range []func(){
		func() { // no token exists yet
			token, _ := c.Token(t.Context())
			c.Forget(token)
		},
		func() { // etcd has dropped the token, as after 5 idle minutes
			if _, err := root.AuthDisable(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := s.Client().AuthEnable(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		for name, do := range map[string]func() error{
			"revision": func() error { _, err := c.Revision(t.Context()); return err },
			"keys":     func() error { return c.Keys(t.Context(), kv.Prefix("/mine/"), func([]byte) error { return nil }) },
		} {
			lose()
			if err := do(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		lose()
		if _, state := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/mine/")}).ready(); len(state) != 1 {
			t.Errorf("%d keys", len(state))
		}
		lose()
		f := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/mine/"), From: 2}).begun(2)
		if got := words(f.nextOf(kv.UpdateBatch).Batch); got != "PUT /mine/a=1" {
			t.Errorf("got %q", got)
		}
		testkit.Eventually(t, "the check has a token", func() bool { return c.Check(t.Context()) == nil })
	}
	for name, err := range map[string]error{
		"watch": follow(t, c, kv.FollowRequest{Range: kv.Prefix("/other/"), From: 2}).failure(),
		"list":  follow(t, c, kv.FollowRequest{Range: kv.Prefix("/other/")}).failure(),
	} {
		if err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("%s without permission: %v", name, err)
		}
	}
	cfg.Password = "wrong"
	wrong := newClient(t, cfg)
	for name, err := range map[string]error{
		"check": wrong.Check(t.Context()),
		"watch": follow(t, wrong, kv.FollowRequest{Range: kv.Prefix("/mine/"), From: 2}).failure(),
	} {
		if err == nil || !strings.Contains(err.Error(), `log in to etcd as "reader"`) || errors.Is(err, etcdconn.ErrUnavailable) {
			t.Errorf("%s with a wrong password: %v", name, err)
		}
	}
}
