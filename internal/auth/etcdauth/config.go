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
	// Account reports whether this node has an etcd account: then etcd is expected to have authentication on.
	Account() bool
	// Authenticated reports whether authentication is on, cheaply.
	Authenticated(ctx context.Context) (bool, error)
	// AuthOff returns when the last other read began that proved that authentication is off, zero: none since
	// Authenticated found it off; and a channel that is closed when a read finds that it is on.
	AuthOff() (at time.Time, ended <-chan struct{})
	// AuthStatus reports the same as Authenticated with the revision of users and roles.
	AuthStatus(ctx context.Context) (on bool, revision uint64, err error)
	// Grants reads users and roles, not necessarily at one revision. It fails with etcdroles.ErrUnreadable if
	// our account has no right to.
	Grants(ctx context.Context) (etcdroles.Grants, error)
	// Confirm fails with etcd's error if etcd rejects the token, and with another error if etcd does not
	// answer.
	Confirm(ctx context.Context, token string) error
	// ConfirmUser is Confirm, and fails as well unless the token is user's.
	ConfirmUser(ctx context.Context, token, user string) error
}

// Config configures a Checker. Set the first three fields; Defaults gives the rest.
type Config struct {
	Etcd Etcd
	// Peers returns connections to the other nodes' peer ports; nil: there are none.
	Peers  func() []grpc.ClientConnInterface
	Logger *slog.Logger

	// Poll is the interval at which etcd is asked for changes of its users and roles: a revoked right is valid
	// for that long, plus the time to read them. If other reads prove as often that authentication is off, etcd
	// is not asked.
	Poll time.Duration
	// Reread is the interval at which users and roles are read even without a change of their revision: a
	// restored backup may have the same revision with other users.
	Reread time.Duration
	// Confirm is the interval at which etcd confirms a token in use, which also keeps the token alive at etcd.
	Confirm time.Duration
	// Patience bounds the wait of a caller for this confirmation, if etcd has accepted the token before.
	Patience time.Duration
	// PeerTimeout bounds a round of queries to the other nodes.
	PeerTimeout time.Duration
	// RefreshTimeout bounds how long a change of users or roles waits until they are read again.
	RefreshTimeout time.Duration
	// MaxTokens bounds the known tokens. A caller with a forgotten token must log in again.
	MaxTokens int
	// MaxLookups bounds the concurrent lookups of tokens new to this node.
	MaxLookups int
}

// Defaults returns the Config of a production node, without the first three fields.
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

// Validate returns all mistakes.
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
