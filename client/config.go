package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
)

// Config configures a client. The zero value of a field other than Endpoints stands for
// its default.
type Config struct {
	// Endpoints are host:port of some nodes, at least one. The client discovers the
	// others. A name may resolve to several addresses.
	Endpoints []string
	// Zone is the failure domain that this program runs in, as nodes name theirs
	// (cachenode --zone): of the nodes that have keys of a range, the client prefers those
	// of the zone, and uses the others while none of them serves. "": no preference.
	Zone string
	// TLS is used for every connection; nil: no TLS, unless TLSFiles is set. It is
	// never reloaded: a program that outlives its certificates uses TLSFiles instead.
	TLS *tls.Config
	// TLSFiles names the files of certificates and CAs, which are reloaded when they
	// change; the zero value: none. It excludes TLS.
	TLSFiles TLSFiles
	// Username and Password are those of an etcd user, if etcd's authentication is on:
	// every call then carries a token, which the client gets through a node and renews
	// when it expires. Without TLS the password is sent unencrypted.
	Username, Password string
	// PasswordFrom returns the password, in place of Password. It is called each time a
	// token is needed, from any goroutine; use [PasswordFile] for a password that is
	// renewed. While it fails, or etcd rejects the password, watches keep retrying, and
	// reads retry for RetryFor.
	PasswordFrom func() (string, error)
	// Token returns the bearer token (a JWT) of each call, if the policy of the nodes
	// accepts tokens; nil: none. It is called for each call, from any goroutine; use
	// [TokenFile] for tokens that are renewed. While it fails, or nodes reject the
	// token, watches keep retrying ([WatcherStats].LastError has the reason), and reads
	// retry for RetryFor. Without TLS the token is sent unencrypted.
	Token func() (string, error)
	// Dialer opens connections; nil: TCP.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	// DialOptions are added to those of the client.
	DialOptions []grpc.DialOption
	// Logger receives a message when the cluster is lost and found again, and when
	// TLSFiles are reloaded or cannot be used; nil: no log.
	Logger *slog.Logger
	// Observer is called for attempts, resumes and units; the zero value: it is not.
	Observer Observer
	// Silence is how long a node may send nothing before its watches move to another
	// node. Time in which this process does not run does not count. Nodes send a sign
	// of life three times as often. Default 1 s, at least 300 ms.
	Silence time.Duration
	// AttemptTimeout is how long one node may take to answer a read, or to
	// send the next chunk of a list. Default 4 s.
	AttemptTimeout time.Duration
	// RetryFor is how long a read is retried at one node after another. Default 10 s.
	// The context may end it earlier.
	RetryFor time.Duration
	// Buffer is how many bytes a watcher buffers for a slow consumer, besides one
	// revision or unit. Default 4 MiB.
	Buffer int
	// MaxUnit is the maximum size of one unit of a watch in bytes: a bigger one ends the
	// watch with [ErrTooBig]. The watcher buffers a whole unit. A resync has the full state
	// of the range, even if the watch did not request the state. Default 1 GiB, in which each
	// key counts 96 bytes besides its content. Negative: no limit.
	MaxUnit int
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Silence == 0 {
		c.Silence = time.Second
	}
	if c.AttemptTimeout == 0 {
		c.AttemptTimeout = 4 * time.Second
	}
	if c.RetryFor == 0 {
		c.RetryFor = 10 * time.Second
	}
	if c.Buffer == 0 {
		c.Buffer = 4 << 20
	}
	if c.MaxUnit == 0 {
		c.MaxUnit = 1 << 30
	}
	return c
}

// Validate reports every mistake in the configuration at once. It reads no files: [New] does.
func (c Config) Validate() error {
	var errs []error
	if len(c.Endpoints) == 0 {
		errs = append(errs, errors.New("no endpoints: name the host:port of at least one node"))
	}
	for _, e := range c.Endpoints {
		if _, port, err := net.SplitHostPort(e); err != nil || port == "" {
			errs = append(errs, fmt.Errorf("endpoint %q is not host:port", e))
		}
	}
	if c.TLS != nil && c.TLSFiles != (TLSFiles{}) {
		errs = append(errs, errors.New("TLS and TLSFiles exclude each other"))
	}
	if c.Password != "" && c.PasswordFrom != nil {
		errs = append(errs, errors.New("give Password or PasswordFrom, not both"))
	}
	if (c.Username == "") != (c.Password == "" && c.PasswordFrom == nil) {
		errs = append(errs, errors.New("user name and password go together"))
	}
	if c.Silence != 0 && c.Silence < 300*time.Millisecond {
		errs = append(errs, fmt.Errorf("silence (%v) must be at least 300ms: nodes give a sign of life every 100ms at most", c.Silence))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"attempt timeout", c.AttemptTimeout}, {"retry for", c.RetryFor}} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s (%v) must not be negative", d.name, d.value))
		}
	}
	if c.Buffer < 0 {
		errs = append(errs, fmt.Errorf("buffer (%d bytes) must not be negative", c.Buffer))
	}
	return errors.Join(errs...)
}
