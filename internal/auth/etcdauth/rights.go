package etcdauth

import (
	"context"
	"errors"
	"sync"
	"time"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// known is the state of etcd's authentication. It is immutable.
type known struct {
	denied error // set: the reason why all reads are denied
	on     bool
	// If on: the revision of users and roles, their content, and the table derived from them.
	revision uint64
	grants   etcdroles.Grants
	table    *etcdroles.Table
	at       time.Time // time of reading
}

// errUnknown returns the error of every call before etcd has answered.
func errUnknown() error {
	return wire.Status(&kv.UnavailableError{
		Why: kv.EtcdUnavailable, RetryAfter: soon,
		Detail: "etcd has not reported yet whether its authentication is on",
	})
}

// unreadable is the advice for operators, in the log and in errors.
const unreadable = "etcd's authentication is on, and this node cannot read etcd's users and roles: --etcd-user must name a user with the role root"

// Reread updates the read rights of users from etcd, as of a moment after the call. Concurrent calls share one
// look. If etcd does not answer, or ctx ends, the known rights stay.
func (g *Checker) Reread(ctx context.Context) {
	asked := g.begun()
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return
	}
	if g.begun() > asked { // another call has looked since
		return
	}
	g.mu.Lock()
	g.looks++
	g.mu.Unlock()
	g.look(ctx)
}

// begun returns the number of looks begun so far.
func (g *Checker) begun() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.looks
}

// Refresh is Reread, here and at the other nodes, after a change of users or roles through this node. It
// returns when this node has read them, and each other node has, too, or has not answered within
// Config.PeerTimeout.
func (g *Checker) Refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.RefreshTimeout)
	defer cancel()
	var told sync.WaitGroup
	told.Go(func() {
		g.ask(ctx, func(ctx context.Context, peer peerv1.PeerServiceClient) bool {
			_, _ = peer.RereadRights(ctx, &peerv1.RereadRightsRequest{}) // a node that misses this looks within Config.Poll
			return false
		})
	})
	g.Reread(ctx)
	told.Wait()
}

// look asks etcd for changes. Without an answer, the rights stay. The caller holds the turn.
func (g *Checker) look(ctx context.Context) {
	before := g.rights.Load()
	if !before.on {
		// The cheap query suffices: this node has no users that could be outdated.
		switch on, err := g.cfg.Etcd.Authenticated(ctx); {
		case err != nil:
			g.trouble(ctx, err)
			return
		case !on:
			g.heard(true)
			g.set(&known{})
			return
		}
	}
	on, revision, err := g.cfg.Etcd.AuthStatus(ctx)
	switch {
	case errors.Is(err, etcdroles.ErrUnreadable):
		g.deny(0, err)
		return
	case err != nil:
		g.trouble(ctx, err)
		return
	}
	g.heard(true)
	switch {
	case !on:
		g.set(&known{})
	case !before.on || revision != before.revision || time.Since(before.at) > g.cfg.Reread:
		g.read(ctx, revision)
	}
}

// read replaces the rights with those of etcd's current users and roles, whose revision was read just before.
func (g *Checker) read(ctx context.Context, revision uint64) {
	var last *etcdroles.Grants
	for {
		at := time.Now()
		grants, err := g.cfg.Etcd.Grants(ctx)
		on, after := true, revision
		if err == nil {
			on, after, err = g.cfg.Etcd.AuthStatus(ctx)
		}
		switch {
		case errors.Is(err, etcdroles.ErrUnreadable):
			g.deny(revision, err)
		case err != nil:
			g.trouble(ctx, err)
		case !on:
			g.set(&known{})
		case after == revision:
			g.set(&known{on: true, revision: revision, grants: grants, table: grants.Table(), at: at})
		case last != nil:
			// They change faster than they can be read. Rights in both readings are safe to grant. As the
			// revision is outdated, the next look reads them again.
			grants = grants.Common(*last)
			g.set(&known{on: true, revision: revision, grants: grants, table: grants.Table(), at: at})
		default:
			last, revision = &grants, after
			continue
		}
		return
	}
}

// deny denies all reads: authentication is on, but the rights are unreadable. It retries only after the
// revision has changed.
func (g *Checker) deny(revision uint64, err error) {
	g.heard(true)
	if before := g.rights.Load(); before.on && before.denied != nil {
		if before.revision == revision {
			return
		}
	} else {
		g.cfg.Logger.Warn(unreadable+"; all reads are denied", "error", err)
	}
	g.set(&known{on: true, revision: revision, denied: wire.Denied(unreadable), at: time.Now()})
}

// trouble records that etcd did not answer (etcd's client logs it). If the rights are unknown, it asks the
// other nodes.
func (g *Checker) trouble(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	g.heard(false)
	g.cfg.Logger.Debug("etcd does not report its users' rights", "error", err)
	if before := g.rights.Load(); before.denied != nil && !before.on {
		g.borrow(ctx)
	}
}

// set replaces the known rights and notifies all waiters.
func (g *Checker) set(now *known) {
	before := g.rights.Swap(now)
	switch {
	case now.denied == nil && now.on && (before.denied != nil || !before.on):
		g.cfg.Logger.Info("etcd's authentication is on: reads need a token, and the right to read", "users", now.table.Users(), "auth_revision", now.revision)
	case now.denied == nil && !now.on && before.on:
		g.cfg.Logger.Info("etcd's authentication is off: every client may read all keys")
	}
	if before.on || now.on || before.denied != nil {
		g.changed.Notify()
	}
}

// borrow uses the rights that another node has read.
func (g *Checker) borrow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.PeerTimeout)
	defer cancel()
	if now := g.askRights(ctx); now != nil {
		g.cfg.Logger.Info("etcd does not answer: its users' rights come from another node", "authentication", now.on, "auth_revision", now.revision)
		g.set(now)
	}
}
