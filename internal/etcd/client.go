package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// Client speaks to one etcd cluster.
type Client struct {
	cfg       Config
	endpoints []endpoint
	conns     []*grpc.ClientConn

	roster  *roster
	inquiry *inquiry

	watch etcdserverpb.WatchClient
	lists etcdserverpb.KVClient
	clock etcdserverpb.KVClient
	// maintenance is on the connection of clock.
	maintenance etcdserverpb.MaintenanceClient
	login       login
	// passage is the connection for what is passed through.
	passage *grpc.ClientConn

	permits   Permits
	reads     shared[Clock]
	looks     shared[sight]
	muxes     muxes
	lineage   lineage
	pastReads pastReads
	historian chan struct{} // a place for the goroutine that reads history for all
	verdicts  shared[verdict]
	floors    shared[struct{}] // watches that learn etcd's compact revision
	asked     askers           // by callers that wait for a verdict
	past      past
	away      away
	situation situation
	cluster   atomic.Uint64 // 0: not known yet
	term      atomic.Uint64 // as of the newest read of the clock; 0: none yet
	count     counters
}

// New returns a client of the cluster at cfg.Endpoints. It connects when first
// used: etcd may be away. Close gives the connections back.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	endpoints, _ := parseEndpoints(cfg.Endpoints, cfg.TLS != nil) // Validate has told the mistakes
	c := &Client{
		cfg: cfg, endpoints: endpoints,
		permits: NewLocalPermits(cfg.MaxConcurrentLists), historian: make(chan struct{}, 1),
		reads: shared[Clock]{timeout: clockTimeout}, situation: situation{log: cfg.Logger},
	}
	c.inquiry = newInquiry(c.inquire)
	c.roster = newRoster(endpoints, c.readTimeout()/2, c.inquiry.start)
	for i, maxBytes := range []int{cfg.MaxResponseBytes, maxAnswer, maxAnswer, maxAnswer} {
		var more []grpc.DialOption
		if i == clockConn && len(endpoints) > 1 {
			more = append(more, grpc.WithUnaryInterceptor(c.roster.time))
		}
		conn, err := dial(&cfg, endpoints, c.roster, maxBytes, more...)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.conns = append(c.conns, conn)
	}
	c.watch = etcdserverpb.NewWatchClient(c.conns[0])
	c.lists = etcdserverpb.NewKVClient(c.conns[1])
	c.clock = etcdserverpb.NewKVClient(c.conns[clockConn])
	c.maintenance = etcdserverpb.NewMaintenanceClient(c.conns[clockConn])
	c.passage = c.conns[3]
	c.login = login{
		user: cfg.Username, password: cfg.Password, timeout: loginPatience * cfg.CallTimeout,
		auth: etcdserverpb.NewAuthClient(c.conns[clockConn]), turn: make(chan struct{}, 1),
	}
	return c, nil
}

// clockConn is the index of the connection for small reads.
const clockConn = 2

// anotherAfter is how long a member of several has to answer a small read: then
// another one is asked.
const anotherAfter = time.Second

// readTimeout bounds one attempt of a small read.
func (c *Client) readTimeout() time.Duration {
	if len(c.endpoints) > 1 {
		return min(c.cfg.CallTimeout, anotherAfter)
	}
	return c.cfg.CallTimeout
}

// maxAnswer bounds an answer that is not a watch's: pages have no bound in
// bytes at etcd, and transactions passed through are etcd's to bound.
const maxAnswer = math.MaxInt32

// Close closes the connections; open calls fail. It may be called
// twice.
func (c *Client) Close() error {
	for _, conn := range c.conns {
		_ = conn.Close() // its only error: it is closed already
	}
	c.inquiry.close()
	c.muxes.close()
	return nil
}

// withLeader asks etcd to refuse, and to end streams, while the member has no
// leader (v3rpc/interceptor.go).
func withLeader(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
}

// call makes a read-only call, at one endpoint after the other until one
// answers, with a new token when the old one has expired. Each attempt is
// bounded by timeout.
func (c *Client) call(ctx context.Context, deed string, timeout time.Duration, do func(context.Context) error) error {
	var err error
	for range len(c.endpoints) + 2 {
		err = c.attempt(ctx, timeout, do)
		switch {
		case err == nil:
			c.situation.back()
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", deed, ctx.Err())
		case errors.Is(err, errAttempt), isToken(err), isUnavailable(err):
			continue
		}
		c.situation.back() // it is there, and says no
		return fmt.Errorf("%s: %w", deed, err)
	}
	if isToken(err) {
		return fmt.Errorf("%s: %w", deed, err)
	}
	c.situation.lost(err)
	return unavailable(deed, err)
}

// errAttempt says that one endpoint did not answer in time.
var errAttempt = errors.New("no answer in time")

func (c *Client) attempt(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	token, err := c.login.token(ctx)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = do(withLeader(withToken(within, token)))
	if isToken(err) {
		c.login.forget(token)
	}
	if err != nil && (within.Err() != nil || wire.IsTimeout(err)) && ctx.Err() == nil {
		return fmt.Errorf("%w (%v): %w", errAttempt, timeout, err)
	}
	return err
}
