package etcdconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Config configures Conns. Set Endpoints and Logger; Defaults gives the rest.
type Config struct {
	// Endpoints are etcd's members: host:port, http://host:port or
	// https://host:port. Name all of them: they are used in turn.
	Endpoints []string
	// TLS returns the configuration of each new connection, which may modify it; nil:
	// no encryption, unless an endpoint has the scheme https.
	TLS func() *tls.Config
	// Username and Password are the login at an etcd with authentication.
	Username, Password string
	// ProbeKey is the key that the clock reads. It need not exist, but with
	// etcd's authentication the user must be allowed to read it: a node's user has
	// the role root, and may read any.
	ProbeKey string

	// DialTimeout bounds one attempt to connect to an endpoint.
	DialTimeout time.Duration
	// CallTimeout bounds one attempt of a small call; the next attempt goes to
	// another endpoint.
	CallTimeout time.Duration
	// KeepaliveTime is how long a busy connection may be silent before it is pinged;
	// KeepaliveTimeout bounds the wait for the answer. etcd disconnects clients that
	// ping more often than every 5 s (embed.DefaultGRPCKeepAliveMinTime), and gRPC
	// raises anything below 10 s to 10 s.
	KeepaliveTime, KeepaliveTimeout time.Duration

	// MaxResponseBytes bounds one response of a watch that is behind: etcd puts up to 1,000
	// revisions in one. A larger response is fetched in fragments.
	MaxResponseBytes int

	// Logger logs changes in the availability of etcd and of its members. Required.
	Logger *slog.Logger
	// Dialer makes connections, for simulations; nil: TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

// Defaults returns the Config of a production node, without endpoints and
// logger.
func Defaults() Config {
	return Config{
		ProbeKey:         "\x00",
		DialTimeout:      3 * time.Second,
		CallTimeout:      2 * time.Second,
		KeepaliveTime:    10 * time.Second,
		KeepaliveTimeout: 5 * time.Second,
		MaxResponseBytes: 64 << 20,
	}
}

// Validate reports every mistake.
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
		{"keepalive time", c.KeepaliveTime},
		{"keepalive timeout", c.KeepaliveTimeout},
	} {
		if d.got <= 0 {
			bad("%s: %v is not positive", d.name, d.got)
		}
	}
	if c.KeepaliveTime > 0 && c.KeepaliveTime < minKeepalive {
		bad("keepalive time: %v is below %v, and etcd cuts clients that ping more often than every 5s", c.KeepaliveTime, minKeepalive)
	}
	if c.MaxResponseBytes < minResponseBytes {
		bad("largest response: %d is below %d, and etcd's fragments can be that large", c.MaxResponseBytes, minResponseBytes)
	}
	if c.Logger == nil {
		bad("logger: missing")
	}
	return errors.Join(errs...)
}

// minKeepalive is gRPC's own bound (internal.KeepaliveMinPingTime).
const minKeepalive = 10 * time.Second

// minResponseBytes is twice the size of etcd's fragments: 1.5 MiB for a request and 0.5
// MiB of overhead (config.MaxRequestBytesWithOverhead).
const minResponseBytes = 4 << 20
