package memetcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Config configures a Server.
type Config struct {
	// Listen opens the listener; it is called by every Start. Required.
	Listen func() (net.Listener, error)
	// Version is reported by Maintenance.Status.
	Version string
	// ClusterID and MemberID are in every header.
	ClusterID, MemberID uint64
	// MaxRequestBytes bounds a write request, in bytes. A watch response larger
	// than this and 512 KiB is sent in fragments, if the watch asked for them.
	MaxRequestBytes int
	// ProgressInterval is the interval of progress for watches with
	// progress_notify. etcd adds up to a tenth at random; the model does not.
	ProgressInterval time.Duration
	// SyncInterval is how long a new watch in the past waits for its first
	// events. etcd checks such watches at this interval.
	SyncInterval time.Duration
}

// Defaults returns etcd's defaults.
func Defaults() Config {
	return Config{
		Version:          "3.7.3",
		ClusterID:        0xc1,
		MemberID:         0xe1,
		MaxRequestBytes:  1536 << 10,
		ProgressInterval: 10 * time.Minute,
		SyncInterval:     100 * time.Millisecond,
	}
}

// Validate names every mistake.
func (c Config) Validate() error {
	var errs []error
	if c.Listen == nil {
		errs = append(errs, errors.New("no Listen: the server needs a listener at every Start"))
	}
	if c.MaxRequestBytes <= 0 {
		errs = append(errs, fmt.Errorf("MaxRequestBytes must be positive: %d", c.MaxRequestBytes))
	}
	if c.ProgressInterval <= 0 {
		errs = append(errs, fmt.Errorf("ProgressInterval must be positive: %v", c.ProgressInterval))
	}
	if c.SyncInterval < 0 {
		errs = append(errs, fmt.Errorf("SyncInterval must not be negative: %v", c.SyncInterval))
	}
	return errors.Join(errs...)
}

// Server is one etcd member with its data. All methods may be called by any
// goroutine.
type Server struct {
	config Config

	life    sync.Mutex // serialises Start and Stop
	running *run       // guarded by life

	mu         sync.Mutex
	store      *store               // guarded by mu
	term       uint64               // grows with every Start; guarded by mu
	paused     chan struct{}        // closed by Resume; nil: not paused; guarded by mu
	watchDelay time.Duration        // guarded by mu
	noProgress bool                 // guarded by mu
	streams    map[*stream]struct{} // and all in them; guarded by mu
	counts     Counts               // guarded by mu
	changed    chan struct{}        // closed and replaced when a stream should look; guarded by mu
}

// Counts are the requests of clients since New.
type Counts struct {
	// Ranges are single Range requests, Txns are transactions.
	Ranges, Txns int
	// Watches are watches created.
	Watches int
}

// run is the time between a Start and a Stop.
type run struct {
	grpc *grpc.Server
	done chan struct{} // closed when Serve has returned
}

// New returns a server that is stopped and empty: its revision is 1.
func New(config Config) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("memetcd: %w", err)
	}
	return &Server{config: config, store: newStore(), streams: map[*stream]struct{}{}, changed: make(chan struct{})}, nil
}

// Start listens and serves until Stop. It does nothing when the server runs.
func (s *Server) Start() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.running != nil {
		return nil
	}
	lis, err := s.config.Listen()
	if err != nil {
		return fmt.Errorf("memetcd: %w", err)
	}
	s.mu.Lock()
	s.term++
	s.mu.Unlock()
	const overhead = 512 << 10 // as etcd allows for gRPC
	srv := grpc.NewServer(
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(s.config.MaxRequestBytes+overhead),
		grpc.UnaryInterceptor(s.pausable),
		// As etcd's defaults; gRPC's would cut clients that ping every 10 s.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Hour, Timeout: 20 * time.Second}),
	)
	pb.RegisterKVServer(srv, &kvServer{Server: s})
	pb.RegisterWatchServer(srv, &watchServer{Server: s})
	pb.RegisterMaintenanceServer(srv, &maintenanceServer{Server: s})
	pb.RegisterClusterServer(srv, &clusterServer{Server: s})
	r := &run{grpc: srv, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		_ = srv.Serve(lis) // ends with Stop, or with the listener: then it cannot be dialled
	}()
	s.running = r
	return nil
}

// Stop breaks all connections and returns when every goroutine of the server
// has ended. The data stay; Start serves them again. Stop may be called twice.
func (s *Server) Stop() {
	s.life.Lock()
	defer s.life.Unlock()
	if s.running == nil {
		return
	}
	s.running.grpc.Stop()
	<-s.running.done
	s.running = nil
}

// Pause makes the server answer no request, and send nothing on watches, while its
// connections stay open, as when its disk hangs. A request that arrives meanwhile is
// executed after Resume, unless its caller has given up; a request in progress may
// be executed and its answer held back.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == nil {
		s.paused = make(chan struct{})
	}
}

// Resume ends a Pause.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused != nil {
		close(s.paused)
		s.paused = nil
	}
}

// SetWatchDelay holds events back from watches for d after their revision was
// committed. While a watch lacks events it is not synced, and progress requests
// of its stream are dropped, as etcd does.
func (s *Server) SetWatchDelay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchDelay = d
	s.notifyLocked()
}

// DropProgress makes the server ignore progress requests.
func (s *Server) DropProgress(drop bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noProgress = drop
}

// Watches returns the number of open watches, and how many of them have pending
// events.
func (s *Server) Watches() (open, behind int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.streams {
		for _, w := range st.watches {
			if w.compacted {
				continue
			}
			open++
			if !w.synced || w.next <= s.store.rev() {
				behind++
			}
		}
	}
	return open, behind
}

// Counts returns the number of requests since New, by kind.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

func (s *Server) notifyLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// gate waits while the server is paused.
func (s *Server) gate(ctx context.Context) error {
	for {
		s.mu.Lock()
		paused := s.paused
		s.mu.Unlock()
		if paused == nil {
			return ctx.Err()
		}
		select {
		case <-paused:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pausable holds requests back before and after their handler.
func (s *Server) pausable(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if err := s.gate(ctx); err != nil {
		return nil, err
	}
	resp, err := handle(ctx, req)
	if gerr := s.gate(ctx); gerr != nil {
		return nil, gerr
	}
	return resp, err
}

// headerLocked returns a header with a revision.
func (s *Server) headerLocked(rev int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: s.config.ClusterID, MemberId: s.config.MemberID, RaftTerm: s.term, Revision: rev}
}
