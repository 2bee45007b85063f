package devetcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// Config configures Run.
type Config struct {
	// Dir is etcd's data directory. Data of an earlier Run is kept.
	Dir string
	// ClientAddr is the address for clients: an IP address and a port; port 0:
	// any.
	ClientAddr string
	// NoSync leaves out fsync: faster, and lost when the machine stops.
	NoSync bool
	// ProgressInterval is the interval at which etcd sends quiet watches their progress
	// unasked; 0: etcd's default of 10 minutes.
	ProgressInterval time.Duration
	// AuthToken is etcd's --auth-token; empty: its default, simple tokens.
	AuthToken string
	// PasswordCost is etcd's --bcrypt-cost; 0: its default, which takes a
	// twentieth of a second for each login.
	PasswordCost uint
	// Logger receives etcd's warnings and errors. Required.
	Logger *slog.Logger
	// Ready, if set, is called once clients can connect, with the address that
	// they connect to.
	Ready func(clientAddr string)
}

// AddrInUseError reports that a port is taken. The caller knows its flag.
type AddrInUseError struct {
	Addr string
}

func (e *AddrInUseError) Error() string {
	return fmt.Sprintf("cannot listen on %s: the port is taken", e.Addr)
}

// startLimit bounds the time that etcd takes to elect itself. This involves its
// disk, and no other process.
const startLimit = time.Minute

// Run runs etcd until ctx ends, then closes all connections and returns nil.
// It fails with an *AddrInUseError when the port is taken.
func Run(ctx context.Context, cfg Config) error {
	serving := make(chan *grpc.Server, 1) // there is one address
	e, err := start(cfg, serving)
	if err != nil {
		return err
	}
	defer e.Close()
	defer func() {
		// Close waits 7 s for calls to end, and watches do not end on their own.
		select {
		case s := <-serving:
			s.Stop()
		default: // etcd had not begun to serve
		}
	}()
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-e.Server.ReadyNotify():
	case <-limit.C:
		return fmt.Errorf("the embedded etcd in %s was not ready within %v", cfg.Dir, startLimit)
	case err := <-e.Err():
		return fmt.Errorf("start the embedded etcd in %s: %w", cfg.Dir, err)
	case <-ctx.Done():
		return nil
	}
	if cfg.Ready != nil {
		cfg.Ready(e.Clients[0].Addr().String())
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-e.Err():
		return fmt.Errorf("run the embedded etcd in %s: %w", cfg.Dir, err)
	case <-e.Server.StopNotify():
		return fmt.Errorf("the embedded etcd in %s stopped unexpectedly", cfg.Dir)
	}
}

// start starts etcd, and passes on its gRPC server once there is one.
func start(cfg Config, serving chan<- *grpc.Server) (*embed.Etcd, error) {
	if cfg.Logger == nil {
		return nil, errors.New("embedded etcd: no logger")
	}
	c := embed.NewConfig()
	c.Name = "dev"
	c.Dir = cfg.Dir
	c.UnsafeNoFsync = cfg.NoSync
	c.WatchProgressNotifyInterval = cfg.ProgressInterval
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger(cfg.Logger))
	c.TickMs, c.ElectionMs = 20, 200 // a lone member elects itself, and waits for no other
	if cfg.AuthToken != "" {
		c.AuthToken = cfg.AuthToken
	}
	if cfg.PasswordCost != 0 {
		c.BcryptCost = cfg.PasswordCost
	}
	client := url.URL{Scheme: "http", Host: cfg.ClientAddr}
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:0"} // a lone member has no peers, but must listen
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.ServiceRegister = func(s *grpc.Server) { serving <- s }
	e, err := embed.StartEtcd(c)
	if err == nil {
		return e, nil
	}
	var op *net.OpError
	if errors.Is(err, syscall.EADDRINUSE) && errors.As(err, &op) {
		return nil, &AddrInUseError{Addr: op.Addr.String()}
	}
	return nil, fmt.Errorf("start the embedded etcd in %s: %w", cfg.Dir, err)
}
