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

// Config says how to reach a cluster. The zero value of a field other than
// Endpoints stands for its default.
type Config struct {
	// Endpoints are host:port of some nodes, at least one. The others are
	// learned. A name may resolve to several addresses.
	Endpoints []string
	// Zone is the failure domain that this program runs in, as nodes name theirs
	// (cachenode --zone): of the nodes that have keys of a range, those of the zone are
	// preferred, and the others serve while none of them does. "": none is preferred.
	Zone string
	// TLS is used for every connection; nil: no TLS, unless TLSFiles say so. What
	// it holds is what was read when it was made: a program that runs for longer
	// than its certificates are good names files instead.
	TLS *tls.Config
	// TLSFiles name the files of certificates and CAs, which are read again when
	// they change; the zero value: none. It excludes TLS.
	TLSFiles TLSFiles
	// Username and Password are etcd's, where its authentication is on: every
	// call then carries a token, got through a node and again when it expires.
	// Without TLS the password can be read on the way.
	Username, Password string
	// PasswordFrom returns the password, in place of Password. It is asked each
	// time that a token is got, from any goroutine: [PasswordFile] is for a
	// password that something else renews. While it fails, or etcd refuses the
	// password, watches keep trying and reads do for RetryFor.
	PasswordFrom func() (string, error)
	// Token returns the bearer token that a call carries, a JWT, where the nodes
	// have a policy that takes tokens; nil: calls carry none. It is asked for each
	// call, from any goroutine: [TokenFile] is for tokens that something else
	// renews. While it fails, or nodes do not take the token, watches keep trying
	// ([WatcherStats].LastError tells) and reads do for RetryFor. Without TLS the
	// token can be read on the way.
	Token func() (string, error)
	// Dialer opens connections; nil: TCP.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	// DialOptions are added to those of the client.
	DialOptions []grpc.DialOption
	// Logger hears when the cluster is lost and found again, and when TLSFiles
	// are reloaded or cannot be used; nil: no log.
	Logger *slog.Logger
	// Observer learns of attempts, resumes and units; the zero value: nothing does.
	Observer Observer
	// Silence is how long a node may say nothing before its watches move to
	// another one. Time in which this process does not run does not count. Nodes
	// are asked for a sign of life three times as often.
	// Default 1 s, at least 300 ms.
	Silence time.Duration
	// AttemptTimeout is how long one node may take to answer a read, or to
	// send the next chunk of a list. Default 4 s.
	AttemptTimeout time.Duration
	// RetryFor is how long a read is tried at one node after the other.
	// Default 10 s. The context may end it earlier.
	RetryFor time.Duration
	// Buffer is how many bytes a watcher holds for a consumer that does not
	// keep up, besides one revision or unit. Default 4 MiB.
	Buffer int
	// MaxUnit is how many bytes one unit of a watch may have: a watch that is
	// sent a bigger one ends with [ErrTooBig]. A unit is held whole, and a resync
	// is all that the range holds, also for a watch that did not ask for the
	// state. Default 1 GiB, of which keys take 96 bytes each besides their content. Negative:
	// any size.
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

// Validate names every mistake in the configuration at once. It reads no files:
// [New] does.
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
