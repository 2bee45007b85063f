package guard

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Identity is the identity of a sender, as apiservers authenticate it.
type Identity struct {
	User   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// size is the approximate memory of an identity, in bytes.
func (id *Identity) size() int64 {
	n := len(id.User) + len(id.UID)
	for _, g := range id.Groups {
		n += 16 + len(g)
	}
	for k, values := range id.Extra {
		n += 64 + len(k)
		for _, v := range values {
			n += 16 + len(v)
		}
	}
	return int64(n)
}

// Attributes describe the objects that a request reads.
type Attributes struct {
	Verb                     string // get, list or watch
	Group, Version, Resource string
	Namespace, Name          string
	// FieldSelector and LabelSelector are the text of the request.
	FieldSelector, LabelSelector string
}

// key is a hash of all inputs of a decision.
type key [sha256.Size]byte

// hashed writes strings so that different sequences of strings write different bytes.
func hashed(h hash.Hash, texts ...string) {
	var size [8]byte
	for _, text := range texts {
		binary.LittleEndian.PutUint64(size[:], uint64(len(text)))
		h.Write(size[:])
		h.Write([]byte(text))
	}
}

func keyOfToken(token string) key { return sha256.Sum256([]byte(token)) }

func keyOf(id *Identity, a *Attributes) (k key) {
	h := sha256.New()
	count := func(n int) {
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(n)) //nolint:gosec // a length
		h.Write(size[:])
	}
	hashed(h, id.User, id.UID)
	count(len(id.Groups))
	hashed(h, id.Groups...)
	count(len(id.Extra))
	for _, name := range slices.Sorted(maps.Keys(id.Extra)) {
		hashed(h, name)
		count(len(id.Extra[name]))
		hashed(h, id.Extra[name]...)
	}
	hashed(h, a.Verb, a.Group, a.Version, a.Resource, a.Namespace, a.Name, a.FieldSelector, a.LabelSelector)
	h.Sum(k[:0])
	return k
}

// ofCertificate returns the identity of a client certificate that the TLS
// handshake has verified; nil: there is none, or it has expired.
func ofCertificate(r *http.Request, now time.Time) *Identity {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	for _, cert := range r.TLS.VerifiedChains[0] {
		if now.After(cert.NotAfter) {
			return nil
		}
	}
	subject := r.TLS.VerifiedChains[0][0].Subject
	if subject.CommonName == "" {
		return nil
	}
	return &Identity{User: subject.CommonName, Groups: append(slices.Clone(subject.Organization), "system:authenticated")}
}

// bearer returns the bearer token of a request, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

type contextKey struct{}

// With returns the request with the identity of its sender.
func With(r *http.Request, id *Identity) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), contextKey{}, id))
}

// From returns the identity of a request that With has returned, or nil.
func From(r *http.Request) *Identity {
	id, _ := r.Context().Value(contextKey{}).(*Identity)
	return id
}
