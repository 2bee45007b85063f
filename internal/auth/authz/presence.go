package authz

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// Credentials returns inner with connections counted by the Authorizer. For a nil Authorizer it returns inner.
func (a *Authorizer) Credentials(inner credentials.TransportCredentials) credentials.TransportCredentials {
	if a == nil {
		return inner
	}
	return &greeter{inner, a}
}

// greeter records connecting clients.
type greeter struct {
	credentials.TransportCredentials // for all but ServerHandshake
	a                                *Authorizer
}

// Clone implements credentials.TransportCredentials.
func (g *greeter) Clone() credentials.TransportCredentials {
	return &greeter{g.TransportCredentials.Clone(), g.a}
}

// ServerHandshake implements credentials.TransportCredentials.
func (g *greeter) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	p := &presence{
		AuthInfo: info, a: g.a, raw: raw, names: namesOf(info),
		usages: make(map[string]*usage), trusted: make(map[string]policy.Names),
	}
	if err := p.arrive(); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	g.a.connected.add(p)
	return &present{conn, sync.OnceFunc(p.leave)}, p, nil
}

// arrive counts a connection before its first call. If the policy accepts tokens, a connection without a
// certificate is counted with its first call, which may have a token.
func (p *presence) arrive() error {
	s := p.a.state.Load()
	if len(p.names) == 0 && s.keys != nil {
		return nil
	}
	_, err := p.enter(p.names, s)
	return err
}

// namesOf returns the names of the client's verified certificate, if any.
func namesOf(info credentials.AuthInfo) policy.Names {
	t, ok := info.(credentials.TLSInfo)
	if !ok {
		return nil
	}
	return verifiedNames(&t.State)
}

func verifiedNames(state *tls.ConnectionState) policy.Names {
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil
	}
	return policy.CertificateNames(state.VerifiedChains[0][0])
}

// present is a connection that reports its end.
type present struct {
	net.Conn
	gone func()
}

// NetConn returns the wrapped connection.
func (c *present) NetConn() net.Conn { return c.Conn }

// Close implements net.Conn.
func (c *present) Close() error {
	c.gone()
	return c.Conn.Close()
}

// presence is a connection and the identities of its calls. It is the credentials.AuthInfo of these calls.
type presence struct {
	credentials.AuthInfo
	a     *Authorizer
	raw   net.Conn
	names policy.Names // of the certificate

	last atomic.Pointer[arrival]

	mu     sync.Mutex
	usages map[string]*usage // guarded by mu; by identity; nil: connection closed
	// trusted has the names of the identities that had rights when they arrived.
	trusted map[string]policy.Names // guarded by mu; by identity, as usages
}

// arrival is the last identified caller: most calls of a connection have the same.
type arrival struct {
	tokens [2]string // as received
	state  *state
	ends   time.Time // expiry of the token; zero: none
	caller *Caller
}

// Caller returns the caller of ctx. It fails with a *kv.UnauthenticatedError if a token of the policy's issuer
// is invalid, and with a *kv.LimitError if the identity has too many connections. For a nil Authorizer the
// Caller is nil.
func (a *Authorizer) Caller(ctx context.Context) (*Caller, error) {
	if a == nil {
		return nil, nil //nolint:nilnil // nil is the caller with all rights
	}
	var p *presence
	from, ok := peer.FromContext(ctx)
	if ok {
		p, ok = from.AuthInfo.(*presence)
	}
	if !ok || p.a != a {
		return nil, &kv.UnauthenticatedError{Detail: "the call did not arrive through the client port"}
	}
	s, tokens := a.state.Load(), [2]string{}
	if s.keys != nil {
		tokens = tokensOf(ctx)
	}
	if l := p.last.Load(); l != nil && l.state == s && l.tokens == tokens && (l.ends.IsZero() || time.Now().Before(l.ends)) {
		return l.caller, nil
	}
	names, ends, err := s.identify(p.names, tokens)
	if err != nil {
		a.count.unknown.Add(1)
		a.cfg.Audit.refused(ctx, p.names.First(), err)
		return nil, err
	}
	c, err := p.enter(names, s)
	if err != nil {
		return nil, err
	}
	p.last.Store(&arrival{tokens, s, ends, c})
	return c, nil
}

// Forward returns ctx without bearer tokens of the policy's issuer: etcd would take them for its own.
func (a *Authorizer) Forward(ctx context.Context) context.Context {
	if a == nil {
		return ctx
	}
	tokens := a.state.Load().policy.Tokens
	if tokens == nil {
		return ctx
	}
	for i, token := range tokensOf(ctx) {
		if token == "" || !tokens.Ours(token) {
			continue
		}
		md, _ := metadata.FromIncomingContext(ctx) // a copy
		md.Delete(tokenKeys()[i])
		ctx = metadata.NewIncomingContext(ctx, md)
	}
	return ctx
}

// tokenKeys are the metadata keys of bearer tokens: HTTP's, and the one that etcd's clients use.
func tokenKeys() [2]string { return [...]string{"authorization", "token"} }

// tokensOf returns the possible bearer tokens, in the order of tokenKeys.
func tokensOf(ctx context.Context) (tokens [2]string) {
	for i, key := range tokenKeys() {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			tokens[i] = values[0]
			if scheme, token, ok := strings.Cut(values[0], " "); ok && strings.EqualFold(scheme, "Bearer") {
				tokens[i] = strings.TrimSpace(token)
			}
		}
	}
	return tokens
}

// identify returns the names of a caller: those of its token, if it is the issuer's, else those of its
// certificate.
func (s *state) identify(certificate policy.Names, tokens [2]string) (names policy.Names, ends time.Time, err error) {
	for _, token := range tokens {
		if token == "" || !s.policy.Tokens.Ours(token) {
			continue
		}
		name, ends, err := s.policy.Tokens.Verify(token, s.keys, time.Now())
		if err != nil {
			return nil, time.Time{}, &kv.UnauthenticatedError{Detail: err.Error()}
		}
		return policy.Names{name}, ends, nil
	}
	return certificate, time.Time{}, nil
}

// maxIdentities bounds the identities on one connection at a time. All clients of a proxy share one connection.
const maxIdentities = 1000

// enter counts the connection for the identity of names.
func (p *presence) enter(names policy.Names, s *state) (*Caller, error) {
	c := &Caller{a: p.a, names: names}
	id := c.resolve(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.usages == nil {
		return nil, &kv.UnauthenticatedError{Detail: "the connection has ended"}
	}
	if c.use = p.usages[id.Name]; c.use != nil {
		if id.Known() {
			p.trusted[id.Name] = names // under a policy read since
		}
		return c, nil
	}
	if len(p.usages) == maxIdentities && !p.dropLocked() {
		return nil, c.exceeded(connections, maxIdentities, comeAgain)
	}
	u := p.a.usage.join(id.Name)
	if !u.take(connections, 1, id.Limits.Connections) {
		p.a.usage.leave(u)
		return nil, c.exceeded(connections, id.Limits.Connections, comeAgain)
	}
	p.usages[id.Name], c.use = u, u
	if id.Known() {
		p.trusted[id.Name] = names
	}
	return c, nil
}

// dropLocked removes an identity without open calls, and reports whether it found one.
func (p *presence) dropLocked() bool {
	for name, u := range p.usages {
		if u.idle() {
			delete(p.usages, name)
			delete(p.trusted, name)
			u.give(connections, 1)
			p.a.usage.leave(u)
			return true
		}
	}
	return false
}

// leave releases the counts of a closed connection.
func (p *presence) leave() {
	p.a.connected.remove(p)
	p.mu.Lock()
	usages := p.usages
	p.usages = nil
	p.mu.Unlock()
	for _, u := range usages {
		u.give(connections, 1)
		p.a.usage.leave(u)
	}
}
