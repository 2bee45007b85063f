package etcdauth

import (
	"context"
	"sync"
	"time"

	peerv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/peer/v1"
	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
)

// Learn is called with a token that etcd has issued to user, before it is sent to the user. When it returns,
// this node knows the token, and so do the other nodes that have answered in time.
//
// The caller has only the login's answer. A client could make the node decode it differently from
// etcd, so Learn asks etcd for the user of the token.
func (g *Checker) Learn(ctx context.Context, user, token string) {
	if user == "" || token == "" || len(token) > maxToken {
		return
	}
	if err := g.cfg.Etcd.ConfirmUser(ctx, token, user); err != nil {
		if ctx.Err() == nil {
			g.cfg.Logger.Warn("etcd issued a token but does not confirm its user: requesting another one", "user", user, "error", err)
		}
		return
	}
	id := idOf(token)
	g.remember(id, user)
	request := &peerv1.ShareTokenRequest{TokenSha256: id[:], User: user}
	g.ask(ctx, func(ctx context.Context, peer peerv1.PeerServiceClient) bool {
		_, _ = peer.ShareToken(ctx, request) // a node that misses this asks when it first sees the token
		return false
	})
}

// Share is called by another node with the user of a token that etcd has issued.
func (g *Checker) Share(tokenSHA256 []byte, user string) {
	if id, ok := sharedID(tokenSHA256); ok && user != "" {
		g.remember(id, user)
	}
}

// remember stores the user of a token that etcd has just issued. etcd must still confirm it at its first use
// here, unless etcd is unavailable.
func (g *Checker) remember(id tokenID, user string) {
	g.tokens.put(id, holder{user: user, taken: time.Now()})
	g.refused.drop(id)
}

// Identify returns the user of a token, for another node; "": this node has not seen the login. It ignores
// claims of tokens, because the other node can read them itself.
func (g *Checker) Identify(tokenSHA256 []byte) (user string) {
	if id, ok := sharedID(tokenSHA256); ok {
		if h, ok := g.tokens.get(id); ok && !h.claimed {
			return h.user
		}
	}
	return ""
}

func sharedID(b []byte) (id tokenID, ok bool) {
	if len(b) != len(id) {
		return id, false
	}
	return tokenID(b), true
}

// askUser asks the other nodes for the user of a token.
func (g *Checker) askUser(ctx context.Context, id tokenID) (user string) {
	request := &peerv1.IdentifyTokenRequest{TokenSha256: id[:]}
	var mu sync.Mutex // for user
	g.ask(ctx, func(ctx context.Context, peer peerv1.PeerServiceClient) bool {
		r, err := peer.IdentifyToken(ctx, request)
		if err != nil || r.GetUser() == "" {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		user = r.GetUser()
		return true
	})
	return user
}

// Rights returns the known read rights of etcd's users, for another node.
func (g *Checker) Rights() *peerv1.ReadRightsResponse {
	now := g.rights.Load()
	out := &peerv1.ReadRightsResponse{Known: now.denied == nil, Authentication: now.on, Revision: now.revision}
	if now.denied != nil {
		return &peerv1.ReadRightsResponse{}
	}
	for user, roles := range now.grants.Users {
		out.Users = append(out.Users, &peerv1.UserRights{Name: user, Roles: roles})
	}
	for role, permissions := range now.grants.Roles {
		r := &peerv1.RoleRights{Name: role}
		for _, p := range permissions {
			if p.Read {
				r.Permissions = append(r.Permissions, &peerv1.ReadPermission{Key: []byte(p.Key), RangeEnd: []byte(p.RangeEnd)})
			}
		}
		out.Roles = append(out.Roles, r)
	}
	return out
}

// newer reports whether r is more recent than than (nil: none): it has a later revision of users and roles, or
// authentication is on only in r.
func newer(r, than *peerv1.ReadRightsResponse) bool {
	switch {
	case than == nil:
		return true
	case r.GetAuthentication() != than.GetAuthentication():
		return r.GetAuthentication()
	}
	return r.GetRevision() > than.GetRevision()
}

// askRights requests the read rights of etcd's users from other nodes, and returns the newest; nil: no node
// knows them.
func (g *Checker) askRights(ctx context.Context) *known {
	var mu sync.Mutex // for best
	var best *peerv1.ReadRightsResponse
	g.ask(ctx, func(ctx context.Context, peer peerv1.PeerServiceClient) bool {
		r, err := peer.ReadRights(ctx, &peerv1.ReadRightsRequest{})
		if err != nil || !r.GetKnown() {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		if newer(r, best) {
			best = r
		}
		return false
	})
	switch {
	case best == nil:
		return nil
	case !best.GetAuthentication():
		return &known{}
	}
	grants := etcdroles.Grants{Users: make(map[string][]string), Roles: make(map[string][]etcdroles.Permission)}
	for _, u := range best.GetUsers() {
		grants.Users[u.GetName()] = u.GetRoles()
	}
	for _, r := range best.GetRoles() {
		for _, p := range r.GetPermissions() {
			grants.Roles[r.GetName()] = append(grants.Roles[r.GetName()], etcdroles.Permission{Key: string(p.GetKey()), RangeEnd: string(p.GetRangeEnd()), Read: true})
		}
	}
	return &known{on: true, revision: best.GetRevision(), grants: grants, table: grants.Table()}
}

// ask calls do with all other nodes concurrently, and returns when all have answered, do has returned true, or
// the time is up.
func (g *Checker) ask(ctx context.Context, do func(context.Context, peerv1.PeerServiceClient) bool) {
	if g.cfg.Peers == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.PeerTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, conn := range g.cfg.Peers() {
		all.Go(func() {
			if do(ctx, peerv1.NewPeerServiceClient(conn)) {
				cancel()
			}
		})
	}
	all.Wait()
}
