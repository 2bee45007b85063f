package etcdconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// invalidToken is a token that etcd never issues.
const invalidToken = "shardwatch-asks-whether-authentication-is-on"

// Account reports whether this client logs in at etcd.
func (c *Conns) Account() bool { return c.cfg.Username != "" }

// Authenticated reports whether etcd's authentication is on. It makes a linearizable
// read, which costs etcd no raft proposal: with an invalid token, only an etcd without
// authentication serves it. (Without a token, an etcd that takes names from
// certificates would use the name in the node's certificate.)
func (c *Conns) Authenticated(ctx context.Context) (bool, error) {
	err := c.as(ctx, invalidToken, c.probeOnce)
	switch {
	case err == nil:
		c.authOff.found(true)
		return false, nil
	case Is(err, rpctypes.ErrGRPCInvalidAuthToken):
		c.authOff.found(false)
		return true, nil
	}
	return false, fmt.Errorf("ask etcd whether its authentication is on: %w", err)
}

// AuthStatus reports whether etcd's authentication is on, and the revision of its users
// and roles, which every change of them raises. It costs etcd a raft proposal.
func (c *Conns) AuthStatus(ctx context.Context) (on bool, revision uint64, err error) {
	err = c.Call(ctx, "read the status of etcd's authentication", c.cfg.CallTimeout, func(ctx context.Context) error {
		r, err := c.login.auth.AuthStatus(ctx, &etcdserverpb.AuthStatusRequest{})
		on, revision = r.GetEnabled(), r.GetAuthRevision()
		return err
	})
	return on, revision, forbidden(err)
}

// readingGrants is the number of users and roles that are read at a time: each costs etcd a raft
// proposal, and concurrent proposals share their disk writes.
const readingGrants = 8

// Grants reads etcd's users and roles. It fails with etcdroles.ErrUnreadable when the
// account of this client lacks the right. They are read one by one: they belong
// together only if AuthStatus returns the same before and after.
func (c *Conns) Grants(ctx context.Context) (etcdroles.Grants, error) {
	out := etcdroles.Grants{Users: make(map[string][]string), Roles: make(map[string][]etcdroles.Permission)}
	var users []string
	err := c.Call(ctx, "read etcd's users", c.cfg.CallTimeout, func(ctx context.Context) error {
		r, err := c.login.auth.UserList(ctx, &etcdserverpb.AuthUserListRequest{})
		users = r.GetUsers()
		return err
	})
	if err != nil {
		return out, forbidden(err)
	}
	var mu sync.Mutex // for out
	err = each(ctx, users, func(ctx context.Context, user string) error {
		return c.Call(ctx, fmt.Sprintf("read etcd's user %q", user), c.cfg.CallTimeout, func(ctx context.Context) error {
			r, err := c.login.auth.UserGet(ctx, &etcdserverpb.AuthUserGetRequest{Name: user})
			if Is(err, rpctypes.ErrGRPCUserNotFound) {
				return nil // deleted meanwhile
			}
			mu.Lock()
			defer mu.Unlock()
			out.Users[user] = r.GetRoles()
			return err
		})
	})
	if err != nil {
		return out, forbidden(err)
	}
	var roles []string
	for _, of := range out.Users {
		roles = append(roles, of...)
	}
	slices.Sort(roles)
	err = each(ctx, slices.Compact(roles), func(ctx context.Context, role string) error {
		return c.Call(ctx, fmt.Sprintf("read etcd's role %q", role), c.cfg.CallTimeout, func(ctx context.Context) error {
			r, err := c.login.auth.RoleGet(ctx, &etcdserverpb.AuthRoleGetRequest{Role: role})
			if Is(err, rpctypes.ErrGRPCRoleNotFound) {
				return nil // deleted meanwhile, or the role root, which need not exist
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range r.GetPerm() {
				kind := p.GetPermType()
				out.Roles[role] = append(out.Roles[role], etcdroles.Permission{
					Key: string(p.GetKey()), RangeEnd: string(p.GetRangeEnd()),
					Read: kind == authpb.Permission_READ || kind == authpb.Permission_READWRITE,
				})
			}
			return err
		})
	})
	return out, forbidden(err)
}

// each calls do with every name, several at a time, until one fails.
func each(ctx context.Context, names []string, do func(context.Context, string) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readingGrants)
	for _, name := range names {
		g.Go(func() error { return do(ctx, name) })
	}
	return g.Wait()
}

// forbidden adds etcdroles.ErrUnreadable to an error if our account is unknown or lacks
// the right.
func forbidden(err error) error {
	for _, known := range []error{
		rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCAuthFailed, rpctypes.ErrGRPCUserEmpty,
		rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCUserNotFound,
	} {
		if errors.Is(err, known) {
			return fmt.Errorf("%w: %w", etcdroles.ErrUnreadable, err)
		}
	}
	return err
}

// Confirm asks etcd, by a linearizable read under the token, whether it accepts the
// token. It returns nil if so, etcd's own error if not
// (rpctypes.ErrGRPCInvalidAuthToken, ErrGRPCAuthOldRevision, ErrGRPCUserEmpty), and a
// *kv.UnavailableError when etcd does not answer.
//
// Each member forgets a token that it has not seen itself for a while (by default 5
// min), even if other members know it. To keep the token valid everywhere, Confirm
// sends one read per member, and the members take them in turn.
func (c *Conns) Confirm(ctx context.Context, token string) error {
	var rest sync.WaitGroup
	defer rest.Wait()
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	for range len(c.endpoints) - 1 {
		rest.Go(func() {
			_, _ = c.Reads.Range(WithToken(within, token), // the result does not matter
				&etcdserverpb.RangeRequest{Key: []byte(c.cfg.ProbeKey), CountOnly: true, Serializable: true})
		})
	}
	err := c.as(ctx, token, c.probeOnce)
	switch {
	case err == nil, Is(err, rpctypes.ErrGRPCPermissionDenied): // etcd denies known users only
		return nil
	case refused(err) != nil:
		return refused(err)
	case ctx.Err() != nil:
		return fmt.Errorf("confirm a token: %w", ctx.Err())
	}
	return Unavailable("confirm a token", err)
}

// ConfirmUser asks etcd, under the token, whether the token belongs to user: etcd shows
// a user only to that user, and to users with the root role. It costs etcd a raft
// proposal. The errors are those of Confirm.
func (c *Conns) ConfirmUser(ctx context.Context, token, user string) error {
	err := c.as(ctx, token, func(ctx context.Context) error {
		_, err := c.login.auth.UserGet(ctx, &etcdserverpb.AuthUserGetRequest{Name: user})
		return err
	})
	switch {
	case err == nil:
		return nil
	case Is(err, rpctypes.ErrGRPCPermissionDenied), Is(err, rpctypes.ErrGRPCUserNotFound):
		return rpctypes.ErrGRPCInvalidAuthToken
	case refused(err) != nil:
		return refused(err)
	case ctx.Err() != nil:
		return fmt.Errorf("confirm the token's user: %w", ctx.Err())
	}
	return Unavailable("confirm the token's user", err)
}

// refused returns etcd's error for a token that it rejects, or nil for other errors.
func refused(err error) error {
	for _, known := range []error{rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCUserEmpty} {
		if Is(err, known) {
			return known
		}
	}
	return nil
}

// probeOnce is the cheapest linearizable read.
func (c *Conns) probeOnce(ctx context.Context) error {
	_, err := c.Header(ctx, c.Reads, 0)
	return err
}

// Header makes a linearizable read as of a revision, 0: now, and returns only the
// header: etcd answers a count of one key from its index.
func (c *Conns) Header(ctx context.Context, from etcdserverpb.KVClient, at kv.Revision, opts ...grpc.CallOption) (*etcdserverpb.ResponseHeader, error) {
	r, err := from.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(c.cfg.ProbeKey), CountOnly: true, Revision: int64(at)}, opts...)
	return r.GetHeader(), err //nolint:wrapcheck // the caller sorts it
}

// as makes a read-only call under a foreign token, at one endpoint after the other
// until one answers. It returns etcd's answer unchanged. Unlike call, it never reports
// etcd as unavailable: any client may send a token, and etcd may be slow to check it.
func (c *Conns) as(ctx context.Context, token string, do func(context.Context) error) error {
	var err error
	for range len(c.endpoints) + 1 {
		within, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
		err = do(WithLeader(WithToken(within, token)))
		late := within.Err() != nil
		cancel()
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case !late && !IsUnavailable(err):
			return err
		}
	}
	return Unavailable("no endpoint of etcd answers", err)
}
