package native

import (
	"context"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/edge/callers"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// guard returns the checker of the callers' read rights; nil: they may read everything.
// Other nodes have already checked the rights of their clients.
func (s *service) guard() callers.EtcdAuth {
	if s.local {
		return nil
	}
	return s.api.cfg.Guard
}

// caller returns the caller of ctx, by the policy. Other nodes have
// already checked the rights of their clients.
func (s *service) caller(ctx context.Context) (*authz.Caller, error) {
	if s.local {
		return nil, nil //nolint:nilnil // nil is the caller with all rights
	}
	return s.api.cfg.Access.Caller(ctx)
}

// permit fails unless the caller of ctx may read all of r, by the policy and at
// etcd.
func (s *service) permit(ctx context.Context, r kv.Range) (*authz.Caller, error) {
	caller, err := s.caller(ctx)
	if err == nil {
		err = caller.May(ctx, policy.Read, r)
	}
	if g := s.guard(); err == nil && !callers.Open(g, r) {
		var user string
		if user, err = s.api.cfg.Callers.User(ctx); err == nil {
			err = g.MayRead(user, r)
		}
		err = callers.Error(err)
		s.api.cfg.Audit.Refused(ctx, user, err)
	}
	return caller, err
}

// permit fails unless the watch may be opened. From then on recheck checks the
// rights again when they change. It may wait for etcd.
func (w *watch) permit(ctx context.Context) error {
	g := w.s.guard
	if g == nil {
		return nil
	}
	caller := ""
	if !callers.Open(g, w.rng) {
		var err error
		if caller, err = w.s.api.cfg.Callers.User(ctx); err != nil {
			err = callers.Error(err)
			w.s.api.cfg.Audit.Refused(ctx, "", err)
			return err
		}
	}
	w.caller.Store(&caller) // before the check, so that recheck sees every later change
	err := callers.Error(g.MayRead(caller, w.rng))
	w.s.api.cfg.Audit.Refused(ctx, caller, err)
	return err
}

// recheck ends the watches whose callers have lost their read rights, at each
// change of rights until ctx ends.
func (a *API) recheck(ctx context.Context) {
	for {
		changed := a.cfg.Guard.Changed() // before the check, so that no change is missed
		for _, st := range a.allStreams() {
			if st.guard == nil {
				continue
			}
			for _, w := range st.list() {
				if caller := w.caller.Load(); caller != nil {
					if err := st.guard.MayRead(*caller, w.rng); err != nil && !wire.IsUnavailable(err) {
						w.end(ended(callers.Error(err), nil))
					}
				}
			}
		}
		if !wait.For(ctx, changed) {
			return
		}
	}
}

// enforce ends the watches that the policy no longer allows, at each change of
// the policy until ctx ends.
func (a *API) enforce(ctx context.Context) {
	for {
		changed := a.cfg.Access.Changed() // before the check, so that no change is missed
		for _, st := range a.allStreams() {
			for _, w := range st.list() {
				if st.caller.Allows(policy.Watch, w.rng) {
					continue
				}
				if err := st.caller.May(st.ctx, policy.Watch, w.rng); err != nil { // the policy may have changed back
					w.end(ended(err, nil))
				}
			}
		}
		if !wait.For(ctx, changed) {
			return
		}
	}
}
