package etcdauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
)

// Etcd is the part of etcd that a Checker uses; internal/etcd implements it.
type Etcd interface {
	// Account reports whether we have an account at etcd: authentication is to be
	// expected there.
	Account() bool
	// Authenticated reports whether authentication is on, cheaply.
	Authenticated(ctx context.Context) (bool, error)
	// AuthOff returns when the last other read began that proved that authentication is off, zero:
	// none has since Authenticated has found so; and a channel that is closed when one finds that it
	// is on.
	AuthOff() (at time.Time, ended <-chan struct{})
	// AuthStatus reports the same as Authenticated with the revision of users and roles.
	AuthStatus(ctx context.Context) (on bool, revision uint64, err error)
	// Grants reads users and roles, which may be of different times. It fails
	// with etcdroles.ErrUnreadable when our account may not.
	Grants(ctx context.Context) (etcdroles.Grants, error)
	// Confirm fails with etcd's own error when etcd does not take the token, and
	// with another one when etcd does not say.
	Confirm(ctx context.Context, token string) error
	// ConfirmUser is Confirm for a token that claims to be user's.
	ConfirmUser(ctx context.Context, token, user string) error
}

// Config configures a Checker. Set the parts; Defaults gives the rest.
type Config struct {
	Etcd Etcd
	// Peers returns ways to the other nodes' peer ports; nil: there are none.
	Peers  func() []grpc.ClientConnInterface
	Logger *slog.Logger

	// Poll is how often etcd is asked whether its users or roles have changed:
	// a revoked right still holds for that long, plus the time to read them. While other reads
	// prove as often that authentication is off, etcd is not asked.
	Poll time.Duration
	// Reread is how often users and roles are read though etcd says that they
	// have not changed: a backup that was restored may be at the same revision
	// with others.
	Reread time.Duration
	// Confirm is how often etcd is asked whether it still takes a token that is
	// in use. It keeps the token alive there, too.
	Confirm time.Duration
	// Patience is how long a caller is held up for that, when etcd has taken the
	// token before.
	Patience time.Duration
	// PeerTimeout bounds a round of questions to the other nodes.
	PeerTimeout time.Duration
	// RefreshTimeout bounds how long a change of users or roles is held up until
	// they were read again.
	RefreshTimeout time.Duration
	// MaxTokens bounds the number of remembered tokens. A caller with a forgotten token must log
	// in again.
	MaxTokens int
	// MaxLookups bounds the tokens that are being looked up at a time: those
	// that are new to this node.
	MaxLookups int
}

// Defaults returns the Config of a production node, without its parts.
func Defaults() Config {
	return Config{
		Poll:        2 * time.Second,
		Reread:      10 * time.Minute,
		Confirm:     time.Minute,
		Patience:    time.Second,
		PeerTimeout: 500 * time.Millisecond,

		RefreshTimeout: 5 * time.Second,
		MaxTokens:      100_000,
		MaxLookups:     64,
	}
}

// Validate names every mistake.
func (c *Config) Validate() error {
	var errs []error
	if c.Etcd == nil {
		errs = append(errs, errors.New("etcd: missing"))
	}
	for _, d := range []struct {
		name string
		got  time.Duration
	}{
		{"poll interval", c.Poll},
		{"rereading interval", c.Reread},
		{"confirmation interval", c.Confirm},
		{"patience", c.Patience},
		{"peer timeout", c.PeerTimeout},
		{"refresh timeout", c.RefreshTimeout},
	} {
		if d.got <= 0 {
			errs = append(errs, fmt.Errorf("%s: %v is not positive", d.name, d.got))
		}
	}
	if c.MaxTokens < 2 {
		errs = append(errs, fmt.Errorf("tokens: %d is below 2", c.MaxTokens))
	}
	if c.MaxLookups < 1 {
		errs = append(errs, fmt.Errorf("lookups: %d is below 1", c.MaxLookups))
	}
	return errors.Join(errs...)
}
