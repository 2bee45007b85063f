package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/data/peerapi"
	"github.com/shardwatch/shardwatch/internal/edge/admin"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/edge/etcdwatch"
	"github.com/shardwatch/shardwatch/internal/edge/farewell"
	"github.com/shardwatch/shardwatch/internal/edge/gateway"
	"github.com/shardwatch/shardwatch/internal/edge/grpcserver"
	"github.com/shardwatch/shardwatch/internal/edge/intake"
	"github.com/shardwatch/shardwatch/internal/edge/native"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/fair"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// Server serves clients on one listener and other nodes on another. Create it
// with New.
type Server struct {
	cfg      Config
	callers  *callers.Checker
	clients  clientServer
	peers    *grpc.Server
	gateway  *gateway.Gateway // nil without etcd's API
	health   *health.Server
	pumps    pump.Pumps // serve the watches in gRPC
	webPumps pump.Pumps // of the watches in JSON; they use turns of large work, so that gRPC watches do not wait for them
	native   *native.API
	stopping chan struct{} // closed by Drain: nothing new begins, and peers use other nodes
	left     chan struct{} // closed when Drain has sent all watches to other nodes
	heldBack func() (streams int, bytes int64)
	pace     int // watches per second that Drain and SendOn send to other nodes

	conns  connections
	called calls // of clients

	mu       sync.Mutex
	draining bool         // guarded by mu
	moved    wait.Signal  // notified by SendOn
	sampled  [2]time.Time // guarded by mu; the times of the last two samples
}

// Keepalive: a client or peer that vanishes without closing its connection is detected within
// keepaliveTime + keepaliveTimeout. kube-apiserver pings etcd after 30 s without
// an answer, so that our later ping is only for other clients. Clients may ping every
// keepaliveLeast. (grpc-go's server closes connections of clients that ping more often than
// every 5 min, by default.)
const (
	keepaliveTime    = 45 * time.Second
	keepaliveTimeout = 10 * time.Second
	keepaliveLeast   = 5 * time.Second
)

// New returns a server. It fails when the Config is wrong.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.OpenQueue = cmp.Or(cfg.OpenQueue, etcdwatch.NewOpenQueue())
	cfg.Turns = cmp.Or(cfg.Turns, fair.NewTurns())
	s := &Server{cfg: cfg, stopping: make(chan struct{}), left: make(chan struct{}), pace: farewell.Pace, health: health.NewServer()}

	s.callers = &callers.Checker{Access: cfg.Access, Guard: cfg.Guard, Audit: cfg.Audit}
	s.pumps.Trace, s.webPumps.Trace = cfg.Trace, cfg.Trace
	s.webPumps.Turn = s.webTurn
	s.native = native.New(native.Config{
		Router: cfg.Router, Callers: s.callers, Guard: cfg.Guard, Access: cfg.Access, Audit: cfg.Audit, OpenQueue: cfg.OpenQueue,
		Budget: cfg.Budget, Turns: cfg.Turns, Stopping: s.stopping, Happened: cfg.Happened, Self: cfg.Self,
		MaxWatchesPerStream: cfg.MaxWatchesPerStream, MaxResyncs: cfg.MaxResyncs, ResyncRate: cfg.ResyncRate, Patience: cfg.Patience,
		FragmentBytes: cfg.FragmentBytes, ProgressInterval: cfg.ProgressInterval,
	})
	creds := cfg.Access.Credentials(plain(cfg.ClientTLS))
	if cfg.Etcd != nil {
		var err error
		if s.gateway, err = gateway.New(gateway.Config{
			MaxRequest: 2 * cfg.MaxMessageBytes, // base64, in JSON
			EtcdStatus: etcdapi.HealthOf(cfg.Etcd).EtcdStatus, Probe: etcdapi.HealthOf(cfg.Etcd).Read,
			Memory: cfg.Budget, Hosts: cfg.JSONHosts, Admit: s.admitJSON, Unary: s.unaryJSON, Stream: s.streamJSON, Turn: s.turn, Logger: cfg.Logger,
		}); err != nil {
			return nil, fmt.Errorf("server: %w", err)
		}
		creds = s.gateway.Credentials(cfg.ClientTLS, cfg.Access.Credentials)
	}
	creds = intake.New(cfg.Budget, cfg.MaxMessageBytes, cfg.Logger).Credentials(creds)
	clients, err := s.newClientServer(creds)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.clients = clients
	shardwatchv1.RegisterCacheServiceServer(s.clients, s.native.ForClients(&s.pumps))
	if cfg.Etcd != nil {
		cfg.Etcd.Register(s.clients, &s.pumps)
		cfg.Etcd.Register(s.gateway, &s.webPumps)
		shardwatchv1.RegisterCacheServiceServer(s.gateway, s.native.ForClients(&s.webPumps))
	}
	healthgrpc.RegisterHealthServer(s.clients, s.health)
	reflection.Register(s.clients)

	peers := s.peerService()
	s.heldBack = peers.HeldBack
	s.peers = grpc.NewServer(append(s.options(told(plain(cfg.PeerTLS), cfg.PeerFailed), 0), peers.Options()...)...)
	peerv1.RegisterPeerServiceServer(s.peers, peers)
	shardwatchv1.RegisterCacheServiceServer(s.peers, s.native.ForNodes(&s.pumps))
	s.adminService().Register(s.clients, s.peers)
	healthgrpc.RegisterHealthServer(s.peers, s.health)
	s.SetReady(false)
	return s, nil
}

// peerService returns the service for the other nodes of the cluster.
func (s *Server) peerService() *peerapi.Service {
	return peerapi.New(peerapi.Config{
		Node: s.cfg.Node, Guard: s.cfg.Guard, Permits: s.cfg.Permits, Verifier: s.cfg.Verifier, Voting: s.cfg.Operator, Ending: s.Ending,
		Trace: s.cfg.Trace, Speaks: s.cfg.PeerSpeaks, Stopping: s.stopping, Self: s.cfg.Self, FragmentBytes: s.cfg.FragmentBytes,
	})
}

// adminService returns the service for operators and followers of the shard map.
func (s *Server) adminService() *admin.Service {
	return admin.New(admin.Config{
		Node: s.cfg.Node, Status: s.Status, Callers: s.callers, Verifier: s.cfg.Verifier, Lineage: s.cfg.Lineage, Operator: s.cfg.Operator,
		Trace: s.cfg.Trace, Watchers: s.watchers, Figures: s.figures, Stopping: s.stopping, Left: s.left, GoOn: s.goOn,
		Self: s.cfg.Self, Logger: s.cfg.Logger,
	})
}

// plain returns the credentials of a port without a gateway; nil: without TLS.
func plain(t *tls.Config) credentials.TransportCredentials {
	if t == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(t)
}

// Flow control of messages from clients and other nodes, in bytes. By default, gRPC
// would measure the windows, with a ping for incoming data. streamWindow bounds the unread
// data of a stream; it is the smallest window of gRPC. If a handler waits for a larger
// message, gRPC extends the window automatically.
const (
	streamWindow = 64 << 10
	connWindow   = 4 << 20
)

// readBuffer is the size of each connection's read buffer, in bytes. gRPC avoids the buffer only
// for connection types that it knows, but ours are wrapped to count their bytes. Clients
// send little; larger messages bypass the buffer.
const readBuffer = 4 << 10

// options returns the options of a server that closes connections without a call after idle;
// 0: never.
func (s *Server) options(creds credentials.TransportCredentials, idle time.Duration) []grpc.ServerOption {
	return append(uncompressed(),
		grpc.Creds(creds),
		grpc.ForceServerCodecV2(wire.NewCodec()),
		grpc.WaitForHandlers(true), // because handlers use pumps
		grpc.MaxRecvMsgSize(s.cfg.MaxMessageBytes),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(readBuffer),
		grpc.MaxConcurrentStreams(uint32(s.cfg.MaxStreamsPerConnection)), //nolint:gosec // validated
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idle, Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveLeast, PermitWithoutStream: true}),
	)
}

// SetReady sets whether the node is serving, for gRPC's health protocol.
func (s *Server) SetReady(ready bool) {
	now := healthgrpc.HealthCheckResponse_NOT_SERVING
	if ready {
		now = healthgrpc.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", now)
	s.health.SetServingStatus(shardwatchv1.CacheService_ServiceDesc.ServiceName, now)
}

// Run serves until ctx ends. It cuts streams that are still open then: call Drain
// before.
func (s *Server) Run(ctx context.Context, clients, peers net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	clients, peers = &listener{clients, &s.conns}, &listener{peers, &s.conns}
	serve := func(name string, server grpcServer, l net.Listener) {
		g.Go(func() error {
			if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				return fmt.Errorf("serve %s on %s: %w", name, l.Addr(), err)
			}
			return nil
		})
		g.Go(func() error {
			<-ctx.Done()
			server.Stop()
			return nil
		})
	}
	if !s.cfg.GRPCGo {
		clients = grpcserver.Listener(clients)
	}
	if s.gateway != nil {
		clients = s.gateway.Listener(clients)
		g.Go(func() error { return s.gateway.Run(ctx) })
	}
	g.Go(func() error {
		s.sample(ctx)
		return nil
	})
	g.Go(func() error {
		s.native.Run(ctx)
		return nil
	})
	serve("clients", s.clients, clients)
	serve("peers", s.peers, peers)
	err := g.Wait()
	s.pumps.Wait()
	s.webPumps.Wait()
	return err
}

// etcdWatches returns how many watches of etcd's API are open.
func (s *Server) etcdWatches() int {
	if s.cfg.Etcd == nil {
		return 0
	}
	return s.cfg.Etcd.Watches()
}

// connections are the open connections of clients and peers. The key of a connection is its
// remote address as an interface value, which its calls share: not the text of the address.
type connections struct {
	mu   sync.Mutex
	open map[net.Addr]net.Conn // guarded by mu
}

// count returns the number of open connections.
func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// cut closes the connection from an address, and reports whether it was open.
func (c *connections) cut(from net.Addr) bool {
	c.mu.Lock()
	conn := c.open[from]
	c.mu.Unlock()
	if conn == nil {
		return false
	}
	_ = conn.Close()
	return true
}

// listener registers the connections that it accepts.
type listener struct {
	net.Listener
	conns *connections
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.conns.mu.Lock()
	defer l.conns.mu.Unlock()
	if l.conns.open == nil {
		l.conns.open = make(map[net.Addr]net.Conn)
	}
	from := c.RemoteAddr()
	l.conns.open[from] = c
	return &counted{c, l.conns, from}, nil
}

type counted struct {
	net.Conn
	conns *connections
	from  net.Addr
}

// NetConn returns the connection beneath.
func (c *counted) NetConn() net.Conn { return c.Conn }

// Close implements net.Conn.
func (c *counted) Close() error {
	c.conns.mu.Lock()
	if c.conns.open[c.from] == c.Conn {
		delete(c.conns.open, c.from)
	}
	c.conns.mu.Unlock()
	return c.Conn.Close()
}
