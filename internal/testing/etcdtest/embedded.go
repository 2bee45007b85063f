package etcdtest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/internal/freeport"
	"github.com/shardwatch/shardwatch/internal/testing/devetcd"
)

// TB is the required part of testing.TB, so that runners outside of `go test` can
// implement it.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// Server is an etcd inside this process.
type Server struct {
	t    TB
	dir  string
	addr string

	mu   sync.Mutex
	stop func() // nil while stopped; guarded by mu
	cli  *clientv3.Client
}

// Option changes how Start runs etcd.
type Option func(*devetcd.Config)

// WithProgressInterval makes etcd send quiet watches their progress.
func WithProgressInterval(d time.Duration) Option {
	return func(c *devetcd.Config) { c.ProgressInterval = d }
}

// Start runs an etcd on a free loopback port until the test ends.
func Start(t TB, options ...Option) *Server {
	t.Helper()
	free, err := freeport.Take(1)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	s := &Server{t: t, dir: t.TempDir(), addr: free[0]}
	t.Cleanup(s.Stop)
	s.Restart(options...)
	return s
}

// Restart runs a stopped etcd again, with its data and on its port.
func (s *Server) Restart(options ...Option) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.t.Fatalf("etcd is running already")
		return
	}
	ready := make(chan string, 1)
	cfg := devetcd.Config{
		Dir: s.dir, ClientAddr: s.addr, NoSync: true, PasswordCost: 4, Logger: slog.New(slog.DiscardHandler),
		Ready: func(addr string) { ready <- addr },
	}
	for _, o := range options {
		o(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- devetcd.Run(ctx, cfg) }()
	select {
	case s.addr = <-ready:
	case err := <-ended:
		cancel()
		s.t.Fatalf("start etcd: %v", err)
		return
	}
	s.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Logf("stop etcd: %v", err)
		}
	}
}

// Stop stops etcd, and closes its client. It may be called twice.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cli != nil {
		if err := s.cli.Close(); err != nil && !errors.Is(err, context.Canceled) {
			s.t.Logf("close etcd's client: %v", err)
		}
		s.cli = nil
	}
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// Endpoint returns host:port. It stays over Stop and Restart.
func (s *Server) Endpoint() string { return s.addr }

// Client returns etcd's own client, connected to the server. Stop closes it.
func (s *Server) Client() *clientv3.Client {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cli == nil {
		cli, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"http://" + s.addr}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second,
			MaxCallSendMsgSize: 64 << 20,
		})
		if err != nil {
			s.t.Fatalf("connect to etcd: %v", err)
			return nil
		}
		s.cli = cli
	}
	return s.cli
}
