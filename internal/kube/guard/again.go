package guard

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"time"
)

// Again returns a request with only the parts of r that Identify needs.
func Again(r *http.Request) *http.Request {
	out := &http.Request{Header: http.Header{}, RemoteAddr: r.RemoteAddr}
	if values := r.Header["Authorization"]; len(values) > 0 {
		out.Header["Authorization"] = values
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		out.TLS = &tls.ConnectionState{VerifiedChains: r.TLS.VerifiedChains}
	}
	return out.WithContext(r.Context())
}

// Credentials distinguish the senders of requests without identifying them.
type Credentials struct {
	token string
	chain *x509.Certificate
}

// CredentialsOf returns the credentials of a request.
func CredentialsOf(r *http.Request) Credentials {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return Credentials{chain: r.TLS.VerifiedChains[0][0]}
	}
	return Credentials{token: bearer(r)}
}

// Whole returns the attributes of a request for the whole resource.
func (a *Attributes) Whole() Attributes {
	return Attributes{Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource}
}

// Remembers reports whether a recent decision lets the sender of a request read something, without
// asking apiservers: false may also mean that there is no decision.
func (g *Guard) Remembers(r *http.Request, a *Attributes) bool {
	now := time.Now()
	id := ofCertificate(r, now)
	if id == nil {
		known, at, ok := g.identities.get(keyOfToken(bearer(r)))
		if !ok || now.Sub(at) >= g.cfg.Fresh {
			return false
		}
		id = known
	}
	allowed, at, ok := g.decisions.get(keyOf(id, a))
	return ok && allowed && now.Sub(at) < g.cfg.Fresh
}
