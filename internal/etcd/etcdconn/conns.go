package etcdconn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/internal/wire"
)

// Conns are the connections to one etcd cluster.
type Conns struct {
	// Watches, Lists and Reads have separate connections: for long-lived watch streams, for
	// pages of state and keys, and for small linearizable reads. Past, for watch streams
	// that read etcd's log, shares that of Lists, and Maintenance that of Reads.
	Watches     etcdserverpb.WatchClient
	Past        etcdserverpb.WatchClient
	Lists       etcdserverpb.KVClient
	Reads       etcdserverpb.KVClient
	Maintenance etcdserverpb.MaintenanceClient

	cfg       Config
	endpoints []endpoint
	all       []*grpc.ClientConn
	proxy     *grpc.ClientConn // forwarded calls of clients
	roster    *roster
	inquiry   *inquiry
	login     login
	authOff   authOff
	away      away
	situation situation
}

// New returns connections to the cluster at cfg.Endpoints. They connect when first
// used, so etcd may be unavailable. Close closes them.
func New(cfg Config) (*Conns, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	endpoints, _ := parseEndpoints(cfg.Endpoints, cfg.TLS != nil) // Validate has reported the mistakes
	c := &Conns{cfg: cfg, endpoints: endpoints, situation: situation{log: cfg.Logger}}
	c.inquiry = newInquiry(c.inquire)
	c.roster = newRoster(endpoints, c.ReadTimeout()/2, c.inquiry.start)
	for i, maxBytes := range []int{cfg.MaxResponseBytes, maxAnswer, maxAnswer, maxAnswer} {
		var more []grpc.DialOption
		if i == readConn && len(endpoints) > 1 {
			more = append(more, grpc.WithUnaryInterceptor(c.roster.time))
		}
		conn, err := dial(&cfg, endpoints, c.roster, maxBytes, more...)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.all = append(c.all, conn)
	}
	c.Watches = etcdserverpb.NewWatchClient(c.all[0])
	c.Past = etcdserverpb.NewWatchClient(c.all[1])
	c.Lists = etcdserverpb.NewKVClient(c.all[1])
	c.Reads = etcdserverpb.NewKVClient(c.all[readConn])
	c.Maintenance = etcdserverpb.NewMaintenanceClient(c.all[readConn])
	c.proxy = c.all[3]
	c.login = login{
		user: cfg.Username, password: cfg.Password, timeout: loginPatience * cfg.CallTimeout,
		auth: etcdserverpb.NewAuthClient(c.all[readConn]), turn: make(chan struct{}, 1),
	}
	return c, nil
}

// readConn is the index of the connection for small reads.
const readConn = 2

// anotherAfter bounds the time that one member of several has to answer a small read;
// then another one is asked.
const anotherAfter = time.Second

// ReadTimeout bounds one attempt of a small read.
func (c *Conns) ReadTimeout() time.Duration {
	if len(c.endpoints) > 1 {
		return min(c.cfg.CallTimeout, anotherAfter)
	}
	return c.cfg.CallTimeout
}

// CallTimeout bounds one attempt of a small call.
func (c *Conns) CallTimeout() time.Duration { return c.cfg.CallTimeout }

// maxAnswer bounds an answer other than a watch's: etcd bounds neither the bytes of a
// page nor the answer to a transaction.
const maxAnswer = math.MaxInt32

// Close closes the connections; open calls fail. It may be called
// twice.
func (c *Conns) Close() error {
	for _, conn := range c.all {
		_ = conn.Close() // its only error is that it is closed already
	}
	c.inquiry.close()
	return nil
}

// Endpoints returns the endpoints as configured, for logs.
func (c *Conns) Endpoints() string { return strings.Join(c.cfg.Endpoints, ", ") }

// Members returns the number of endpoints.
func (c *Conns) Members() int { return len(c.endpoints) }

// Token returns the token of the account at etcd, and logs in if there is no token. It
// is empty without an account, and while etcd's authentication is off.
func (c *Conns) Token(ctx context.Context) (string, error) { return c.login.token(ctx) }

// Forget drops a token that etcd no longer accepts.
func (c *Conns) Forget(token string) { c.login.forget(token) }

// Lost logs, once, that etcd does not answer, and Call logs that it answers again.
func (c *Conns) Lost(err error) { c.situation.lost(err) }

// Each calls ask for every endpoint in parallel, with a connection to that endpoint
// alone, and returns all answers and errors in the order of the endpoints.
func Each[T any](ctx context.Context, c *Conns, ask func(context.Context, *grpc.ClientConn) (T, error)) ([]T, []error) {
	answers, errs := make([]T, len(c.endpoints)), make([]error, len(c.endpoints))
	var all sync.WaitGroup
	for i, e := range c.endpoints {
		all.Go(func() {
			conn, err := dialOne(&c.cfg, e)
			if err != nil {
				errs[i] = err
				return
			}
			defer conn.Close()
			answers[i], errs[i] = ask(ctx, conn)
		})
	}
	all.Wait()
	return answers, errs
}

// WithLeader asks etcd to refuse calls and end streams while the member has no leader
// (v3rpc/interceptor.go).
func WithLeader(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
}

// Call makes a read-only call. It tries one endpoint after the other until one answers,
// with a new token when the old one has expired. Each attempt is bounded by timeout.
func (c *Conns) Call(ctx context.Context, deed string, timeout time.Duration, do func(context.Context) error) error {
	return c.call(ctx, deed, timeout, "", do)
}

// call is Call with a foreign token; "": with the token of the account.
func (c *Conns) call(ctx context.Context, deed string, timeout time.Duration, foreign string, do func(context.Context) error) error {
	var err error
	for range len(c.endpoints) + 2 {
		err = c.attempt(ctx, timeout, foreign, do)
		switch {
		case err == nil:
			c.situation.back()
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", deed, ctx.Err())
		case errors.Is(err, errAttempt), foreign == "" && isToken(err), IsUnavailable(err):
			continue
		}
		c.situation.back() // etcd is available, and refuses
		return fmt.Errorf("%s: %w", deed, err)
	}
	if isToken(err) {
		return fmt.Errorf("%s: %w", deed, err)
	}
	c.situation.lost(err)
	return Unavailable(deed, err)
}

// errAttempt reports that one endpoint did not answer in time.
var errAttempt = errors.New("no answer in time")

func (c *Conns) attempt(ctx context.Context, timeout time.Duration, foreign string, do func(context.Context) error) (err error) {
	token := foreign
	if token == "" {
		if token, err = c.login.token(ctx); err != nil {
			return err
		}
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = do(WithLeader(WithToken(within, token)))
	if isToken(err) {
		c.login.forget(token) // no effect on a foreign token
	}
	if err != nil && (within.Err() != nil || wire.IsTimeout(err)) && ctx.Err() == nil {
		return fmt.Errorf("%w (%v): %w", errAttempt, timeout, err)
	}
	return err
}
