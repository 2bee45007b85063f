package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Config is what a Client needs. Set Endpoints; Defaults gives the rest.
type Config struct {
	// Endpoints are etcd's members: host:port, http://host:port or
	// https://host:port. Name all of them: they are used in turn.
	Endpoints []string
	// TLS is asked for what encrypts each new connection, which it may change;
	// nil: nothing, unless an endpoint says https.
	TLS func() *tls.Config
	// Username and Password log in to an etcd with authentication.
	Username, Password string
	// ProbeKey is the key that the clock reads. It need not exist, but with
	// etcd's authentication the user must be allowed to read it: a node's user has
	// the role root, and may read any.
	ProbeKey string

	// DialTimeout bounds one attempt to connect to one endpoint.
	DialTimeout time.Duration
	// CallTimeout bounds one attempt of a small call; the next attempt goes to
	// another endpoint.
	CallTimeout time.Duration
	// KeepaliveTime is how long a busy connection may be silent before it is
	// pinged; KeepaliveTimeout how long the answer may take. etcd cuts clients
	// that ping more often than every 5 s (embed.DefaultGRPCKeepAliveMinTime),
	// and gRPC raises anything below 10 s to that.
	KeepaliveTime, KeepaliveTimeout time.Duration

	// PageBytes is the size of a list's page that is aimed at, PageKeys the
	// most keys in one; PageTimeout bounds one attempt to fetch it.
	PageBytes   int
	PageKeys    int
	PageTimeout time.Duration
	// MaxConcurrentLists bounds what of lists and the like is in flight; more
	// wait. See Client.SetPermits.
	MaxConcurrentLists int
	// FreeCatchUp is by how many revisions a watch may be behind etcd without a
	// permit: a long catch-up slows etcd's writes down.
	FreeCatchUp int
	// MaxHistory and MaxHistoryBytes bound the history that a Follow reads
	// behind a list, in revisions of etcd and in bytes.
	MaxHistory      int
	MaxHistoryBytes int

	// MaxResponseBytes bounds one response of a watch that is behind: etcd puts
	// up to 1,000 revisions in one. What is larger is fetched in fragments.
	MaxResponseBytes int

	// ProgressEvery is how often etcd is asked for progress while a caller
	// waits: it drops the question without a word while a watch is behind.
	// ProgressCoalesce is the shortest time between two questions, ProgressIdle
	// the longest: an idle watch must not fall behind compaction.
	ProgressEvery, ProgressCoalesce, ProgressIdle time.Duration
	// SilenceLimit is how long a watch may bring nothing at all while a caller
	// waits for progress; then Follow ends with an error.
	SilenceLimit time.Duration

	// Logger receives changes of the situation. Required.
	Logger *slog.Logger
	// Dialer makes connections, for simulations; nil: TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

// Defaults returns the Config of a production node, without endpoints and
// logger.
func Defaults() Config {
	return Config{
		ProbeKey:           "\x00",
		DialTimeout:        3 * time.Second,
		CallTimeout:        2 * time.Second,
		KeepaliveTime:      10 * time.Second,
		KeepaliveTimeout:   5 * time.Second,
		PageBytes:          4 << 20,
		PageKeys:           10_000,
		PageTimeout:        30 * time.Second,
		MaxConcurrentLists: 2,
		FreeCatchUp:        5_000,
		MaxHistory:         20_000,
		MaxHistoryBytes:    64 << 20,
		MaxResponseBytes:   64 << 20,
		ProgressEvery:      100 * time.Millisecond,
		ProgressCoalesce:   10 * time.Millisecond,
		ProgressIdle:       5 * time.Second,
		SilenceLimit:       10 * time.Second,
	}
}

// Validate names every mistake.
func (c *Config) Validate() error {
	_, errs := parseEndpoints(c.Endpoints, c.TLS != nil)
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Username == "" && c.Password != "" {
		bad("--etcd-user: a password needs a user name")
	}
	if c.Username != "" && c.Password == "" {
		bad("--etcd-user: user %q needs a password", c.Username)
	}
	if c.ProbeKey == "" {
		bad("probe key: must not be empty")
	}
	for _, d := range []struct {
		name string
		got  time.Duration
	}{
		{"dial timeout", c.DialTimeout},
		{"call timeout", c.CallTimeout},
		{"page timeout", c.PageTimeout},
		{"keepalive time", c.KeepaliveTime},
		{"keepalive timeout", c.KeepaliveTimeout},
		{"progress interval", c.ProgressEvery},
		{"progress coalescing", c.ProgressCoalesce},
		{"idle progress interval", c.ProgressIdle},
		{"silence limit", c.SilenceLimit},
	} {
		if d.got <= 0 {
			bad("%s: %v is not positive", d.name, d.got)
		}
	}
	if c.KeepaliveTime > 0 && c.KeepaliveTime < minKeepalive {
		bad("keepalive time: %v is below %v, and etcd cuts clients that ping more often than every 5s", c.KeepaliveTime, minKeepalive)
	}
	if c.ProgressCoalesce > c.ProgressEvery {
		bad("progress coalescing (%v) must not be longer than the progress interval (%v)", c.ProgressCoalesce, c.ProgressEvery)
	}
	if c.SilenceLimit <= c.ProgressEvery {
		bad("silence limit (%v) must be longer than the progress interval (%v)", c.SilenceLimit, c.ProgressEvery)
	}
	if c.PageBytes < 1 || c.PageKeys < 1 {
		bad("pages: %d bytes and %d keys: both must be at least 1", c.PageBytes, c.PageKeys)
	}
	if c.MaxResponseBytes < minResponseBytes {
		bad("largest response: %d is below %d, and etcd's fragments can be that large", c.MaxResponseBytes, minResponseBytes)
	}
	if c.MaxConcurrentLists < 1 {
		bad("concurrent lists: %d is below 1", c.MaxConcurrentLists)
	}
	if c.FreeCatchUp < 0 || c.MaxHistory < 0 || c.MaxHistoryBytes < 0 {
		bad("catch-ups without a permit (%d revisions), history behind a list (%d revisions, %d bytes): none may be below 0", c.FreeCatchUp, c.MaxHistory, c.MaxHistoryBytes)
	}
	if c.Logger == nil {
		bad("logger: missing")
	}
	return errors.Join(errs...)
}

// minKeepalive is gRPC's own bound (internal.KeepaliveMinPingTime).
const minKeepalive = 10 * time.Second

// minResponseBytes is twice the size of etcd's fragments, 1.5 MiB for a request
// and 0.5 MiB for what surrounds it (config.MaxRequestBytesWithOverhead).
const minResponseBytes = 4 << 20
