package etcdauth

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/etcd"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds the wait of a test for an event. Passing tests never reach it.
const patience = 60 * time.Second

// account returns a client of etcd, as a user or, with "", without a user.
func account(t *testing.T, s *etcdtest.Server, user string) *etcd.Client {
	t.Helper()
	cfg := etcd.Defaults()
	cfg.Endpoints, cfg.Logger = []string{s.Endpoint()}, slog.New(slog.DiscardHandler)
	if user != "" {
		cfg.Username, cfg.Password = user, etcdtest.Password
	}
	c, err := etcd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// quick is a configuration for tests that wait.
func quick(e Etcd) Config {
	cfg := Defaults()
	cfg.Etcd, cfg.Poll = e, 20*time.Millisecond
	return cfg
}

// start runs a guard until the test ends.
func start(t *testing.T, cfg Config) *Checker {
	t.Helper()
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return g
}

// settled waits until the guard has learned that authentication is on, or off.
func settled(t *testing.T, g *Checker, on bool) {
	t.Helper()
	testkit.Succeeds(t, "the guard has learned whether authentication is on", func() error {
		if s := g.Status(); !s.Known || s.On != on {
			return errors.New("not yet")
		}
		return nil
	})
}

// follows waits until the guard has seen every change of etcd's users so far.
func follows(t *testing.T, g *Checker, s *etcdtest.Server) {
	t.Helper()
	r, err := s.Client().AuthStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	testkit.Succeeds(t, "the guard has seen the change", func() error {
		if at := g.rights.Load(); at.revision < r.AuthRevision {
			return errors.New("not yet")
		}
		return nil
	})
}

// calling returns the context of an incoming call with metadata.
func calling(t *testing.T, pairs ...string) context.Context {
	return metadata.NewIncomingContext(t.Context(), metadata.Pairs(pairs...))
}

// peer is another node's service on its peer port, with its guard.
type peer struct {
	peerv1.UnimplementedPeerServiceServer
	*Checker
}

func (p peer) ShareToken(_ context.Context, r *peerv1.ShareTokenRequest) (*peerv1.ShareTokenResponse, error) {
	p.Share(r.GetTokenSha256(), r.GetUser())
	return &peerv1.ShareTokenResponse{}, nil
}

func (p peer) IdentifyToken(_ context.Context, r *peerv1.IdentifyTokenRequest) (*peerv1.IdentifyTokenResponse, error) {
	return &peerv1.IdentifyTokenResponse{User: p.Identify(r.GetTokenSha256())}, nil
}

func (p peer) ReadRights(context.Context, *peerv1.ReadRightsRequest) (*peerv1.ReadRightsResponse, error) {
	return p.Rights(), nil
}

func (p peer) RereadRights(ctx context.Context, _ *peerv1.RereadRightsRequest) (*peerv1.RereadRightsResponse, error) {
	p.Reread(ctx)
	return &peerv1.RereadRightsResponse{}, nil
}

// serve opens the guard's peer port and returns a connection to it.
func serve(t *testing.T, g *Checker) grpc.ClientConnInterface {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	peerv1.RegisterPeerServiceServer(server, peer{Checker: g})
	go func() { _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
	})
	return conn
}

// lines is a log that counts its lines.
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

func logTo(l *lines) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// fake is an etcd with answers that the test sets.
type fake struct {
	mu       sync.Mutex
	on       bool
	revision uint64
	grants   func() (etcdroles.Grants, error)
	confirm  func(ctx context.Context, token string) error
	owner    func(ctx context.Context, token, user string) error
	calls    map[string]int
	account  bool
	away     error     // the error of requests for all users; nil: they succeed
	open     time.Time // of the last other read that proved that authentication is off
	ended    wait.Signal
}

func (f *fake) called(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = make(map[string]int)
	}
	f.calls[what]++
}

func (f *fake) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[what]
}

func (f *fake) Authenticated(context.Context) (bool, error) {
	f.called("authenticated")
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.on, f.away
}

func (f *fake) AuthStatus(context.Context) (bool, uint64, error) {
	f.called("status")
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.on, f.revision, f.away
}

func (f *fake) Grants(context.Context) (etcdroles.Grants, error) {
	f.called("grants")
	return f.grants()
}

func (f *fake) Confirm(ctx context.Context, token string) error {
	f.called("confirm")
	return f.confirm(ctx, token)
}

func (f *fake) Account() bool { return f.account }

func (f *fake) AuthOff() (at time.Time, ended <-chan struct{}) {
	ended = f.ended.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open, ended
}

func (f *fake) ConfirmUser(ctx context.Context, token, user string) error {
	f.called("owner")
	return f.owner(ctx, token, user)
}

// peersOf opens the guards' peer ports.
func peersOf(t *testing.T, guards ...*Checker) func() []grpc.ClientConnInterface {
	t.Helper()
	var conns []grpc.ClientConnInterface
	for _, g := range guards {
		conns = append(conns, serve(t, g))
	}
	return func() []grpc.ClientConnInterface { return conns }
}
