package callers

import (
	"context"
	"errors"
	"net"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// EtcdAuth checks callers' rights while etcd's authentication is on; see internal/auth/etcdauth.
// All methods may be called from any goroutine.
type EtcdAuth interface {
	etcdapi.EtcdAuth
	// MayAdminister fails if etcd's authentication is on and the caller does not have
	// etcd's root role.
	MayAdminister(caller string) error
	// MayLook fails if the caller may not see the shard map, the members and their
	// status: etcd's authentication is on, and the caller is not a user of etcd.
	MayLook(caller string) error
}

// Reader checks which ranges callers may read.
type Reader interface {
	MayRead(caller string, r kv.Range) error
}

// Checker checks calls by the policy and by etcd's rights. The zero Checker allows every
// call, as for other nodes.
type Checker struct {
	// Access decides clients' rights; nil: clients may do everything.
	Access *authz.Authorizer
	// Guard checks the rights of etcd's users; nil: etcd's authentication is not enforced.
	Guard EtcdAuth
	// Audit records refused calls; nil: no audit.
	Audit *authz.Audit
}

// User returns the etcd user of the caller of ctx. Guard must be set. Tokens of the policy's issuer
// are not sent to etcd.
func (c *Checker) User(ctx context.Context) (string, error) {
	return c.Guard.Caller(c.Access.Forward(ctx))
}

// MayLook fails unless the caller of ctx may see the shard map, the members and their
// status. A caller with a name in the policy may, even while etcd is unavailable. Any other
// caller must be a user of etcd while etcd's authentication is on. It returns that
// user; "": none was required.
func (c *Checker) MayLook(ctx context.Context, caller *authz.Caller) (user string, err error) {
	g := c.Guard
	if g == nil || caller.Named() || g.MayLook("") == nil {
		return "", nil
	}
	if user, err = c.User(ctx); err == nil {
		err = g.MayLook(user)
	}
	err = Error(err)
	c.Audit.Refused(ctx, user, err)
	return user, err
}

// Open reports whether every client may read r, because etcd's authentication is off.
func Open(g Reader, r kv.Range) bool { return g == nil || g.MayRead("", r) == nil }

// Error converts an error of the guard, which is etcd's own, into an error of the
// native API.
func Error(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrGRPCUserEmpty):
		return &kv.UnauthenticatedError{Detail: "etcd's authentication is on, and the call has no token: log in with etcdserverpb.Auth.Authenticate, and send the token as metadata \"token\""}
	case errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken), errors.Is(err, rpctypes.ErrGRPCAuthOldRevision):
		return &kv.UnauthenticatedError{Detail: "the token is invalid or has expired: log in again (" + rpctypes.ErrorDesc(err) + ")"}
	case wire.IsDenied(err):
		return &kv.DeniedError{Detail: rpctypes.ErrorDesc(err)}
	}
	return err
}

// Name returns the name of the caller of ctx for logs: from the policy, etcd or the
// certificate, in this order; "": no name.
func (c *Checker) Name(ctx context.Context, caller *authz.Caller) string {
	if name := caller.Name(); name != "" {
		return name
	}
	if c.Guard != nil {
		if user, err := c.User(ctx); err == nil && user != "" {
			return user
		}
	}
	return authz.ShownBy(ctx)
}

// Address returns the remote address of a call; nil: unknown.
func Address(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}
