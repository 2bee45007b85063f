package server

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/shardwatch/shardwatch/internal/access"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/policy"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// guard returns who is asked what callers of the service may read; nil: they
// may read everything. Other nodes have asked for their clients.
func (s *cacheService) guard() Guard {
	if s.local {
		return nil
	}
	return s.srv.cfg.Guard
}

// permit fails unless the caller of ctx may read all of r, by the policy and at
// etcd.
func (s *cacheService) permit(ctx context.Context, r kv.Range) (*access.Caller, error) {
	caller, err := s.caller(ctx)
	if err == nil {
		err = caller.May(ctx, policy.Read, r)
	}
	if g := s.guard(); err == nil && !open(g, r) {
		var user string
		if user, err = s.srv.user(ctx); err == nil {
			err = g.MayRead(user, r)
		}
		err = native(err)
		s.srv.cfg.Audit.Refused(ctx, user, err)
	}
	return caller, err
}

// user returns whom etcd knows the caller of ctx as; there is a guard. Tokens of
// the policy's issuer are not for etcd.
func (s *Server) user(ctx context.Context) (string, error) {
	return s.cfg.Guard.Caller(s.cfg.Access.Forward(ctx))
}

// look fails unless the caller of ctx may see the shard map, the members and their
// status. A name that the policy knows will do, also while etcd is away; without one the
// caller must be a user of etcd's, while etcd's authentication is on. It returns that
// user; "": none was needed.
func (s *Server) look(ctx context.Context, caller *access.Caller) (user string, err error) {
	g := s.cfg.Guard
	if g == nil || caller.Named() || g.MayLook("") == nil {
		return "", nil
	}
	if user, err = s.user(ctx); err == nil {
		err = g.MayLook(user)
	}
	err = native(err)
	s.cfg.Audit.Refused(ctx, user, err)
	return user, err
}

// open reports whether every client may read r: etcd's authentication is off.
func open(g Guard, r kv.Range) bool { return g == nil || g.MayRead("", r) == nil }

// native returns an error of the guard's, which are etcd's, as our own API has
// it.
func native(err error) error {
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

// permit fails unless the watch may be opened. From then on recheck looks after
// it. It may wait for etcd.
func (w *watch) permit(ctx context.Context) error {
	g := w.s.guard
	if g == nil {
		return nil
	}
	caller := ""
	if !open(g, w.rng) {
		var err error
		if caller, err = w.s.srv.user(ctx); err != nil {
			err = native(err)
			w.s.srv.cfg.Audit.Refused(ctx, "", err)
			return err
		}
	}
	w.caller.Store(&caller) // before it is asked: whatever changes behind that, recheck sees
	err := native(g.MayRead(caller, w.rng))
	w.s.srv.cfg.Audit.Refused(ctx, caller, err)
	return err
}

// recheck ends the watches whose callers have lost the right to them, whenever
// rights have changed, until ctx ends.
func (s *Server) recheck(ctx context.Context) {
	for {
		changed := s.cfg.Guard.Changed() // before they are asked: nothing is missed
		s.mu.Lock()
		streams := make([]*stream, 0, len(s.streams))
		for st := range s.streams {
			streams = append(streams, st)
		}
		s.mu.Unlock()
		for _, st := range streams {
			if st.guard == nil {
				continue
			}
			for _, w := range st.list() {
				if caller := w.caller.Load(); caller != nil {
					if err := st.guard.MayRead(*caller, w.rng); err != nil && !wire.IsUnavailable(err) {
						w.end(ended(native(err), nil))
					}
				}
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
