package policy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
)

// issuer signs tokens.
type issuer struct {
	t      *testing.T
	name   string
	signer jose.Signer
	set    jose.JSONWebKeySet
}

func newIssuer(t *testing.T, name, kid string) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{t, name, signer, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: kid, Algorithm: "ES256", Use: "sig"}}}}
}

func (i *issuer) sign(change func(*jwt.Claims)) string {
	i.t.Helper()
	c := jwt.Claims{
		Issuer: i.name, Subject: "ann", Audience: jwt.Audience{"shardwatch"},
		Expiry: jwt.NewNumericDate(now.Add(time.Hour)), IssuedAt: jwt.NewNumericDate(now),
	}
	if change != nil {
		change(&c)
	}
	token, err := jwt.Signed(i.signer).Claims(c).Serialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return token
}

func (i *issuer) keys() *policy.Keys {
	i.t.Helper()
	data, err := json.Marshal(i.set)
	if err != nil {
		i.t.Fatal(err)
	}
	keys, err := policy.ParseKeys("jwks.json", data)
	if err != nil {
		i.t.Fatal(err)
	}
	return keys
}

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestTokens(t *testing.T) {
	us, other := newIssuer(t, "https://us", "1"), newIssuer(t, "https://us", "1")
	nobody := newIssuer(t, "https://us", "2")
	tokens := &policy.Tokens{Issuer: "https://us", Audience: "shardwatch"}
	good := us.sign(nil)
	for name, c := range map[string]struct {
		token string
		want  string // "": accepted
	}{
		"good":                {good, ""},
		"just expired":        {us.sign(func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(now.Add(-time.Second)) }), ""},
		"expired":             {us.sign(func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(now.Add(-time.Hour)) }), "has expired, at 2026-01-02T02:04:05Z"},
		"not yet":             {us.sign(func(c *jwt.Claims) { c.NotBefore = jwt.NewNumericDate(now.Add(time.Hour)) }), "not valid yet"},
		"without an end":      {us.sign(func(c *jwt.Claims) { c.Expiry = nil }), "never expires"},
		"for others":          {us.sign(func(c *jwt.Claims) { c.Audience = jwt.Audience{"https://api"} }), `another audience than "shardwatch"`},
		"without an audience": {us.sign(func(c *jwt.Claims) { c.Audience = nil }), "another audience"},
		"of others":           {us.sign(func(c *jwt.Claims) { c.Issuer = "https://them" }), "was not issued by"},
		"without a subject":   {us.sign(func(c *jwt.Claims) { c.Subject = "" }), "names no subject"},
		"another key":         {other.sign(nil), "not signed by a known key"},
		"an unknown key":      {nobody.sign(nil), "not signed by a known key"},
		"cut short":           {good[:len(good)-4], "not signed by a known key"},
		"etcd's":              {"abcdefgh.12", "is not a JWT"},
		"without a signer":    {"eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL3VzIn0.", "is not a JWT"},
		"huge":                {good + strings.Repeat("x", 20_000), "at most"},
	} {
		subject, ends, err := tokens.Verify(c.token, us.keys(), now)
		if c.want == "" {
			if err != nil || subject != "sub:ann" || ends.Before(now) {
				t.Errorf("%s: %q, %v, %v", name, subject, ends, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), c.token) {
			t.Errorf("%s: the token is in the error", name)
		}
	}
	for token, want := range map[string]bool{good: true, us.sign(func(c *jwt.Claims) { c.Issuer = "x" }): false, "abc.12": false, other.sign(nil): true} {
		if got := tokens.Ours(token); got != want {
			t.Errorf("recognized as the issuer's: %v, want %v", got, want)
		}
	}
}

func TestInvalidKeysAreRejected(t *testing.T) {
	for text, want := range map[string]string{
		"x":            "jwks.json: is not a JSON Web Key Set",
		`{"keys": []}`: "jwks.json: keys: the list is empty",
		`{"keys": [{"kty": "oct", "k": "AAAA", "kid": "1"}]}`: "jwks.json: keys[0]: want a public key",
		`{"keys": [{"kty": "EC", "crv": "P-256", "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}`: "jwks.json: keys[0].kid: is needed",
		`{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1"}]}`: "is not a JSON Web Key Set",
	} {
		if _, err := policy.ParseKeys("jwks.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL3VzIn0.")
	f.Fuzz(func(t *testing.T, token string) {
		tokens := &policy.Tokens{Issuer: "https://us", Audience: "shardwatch"}
		_ = tokens.Ours(token)
		if _, _, err := tokens.Verify(token, &policy.Keys{}, now); err == nil {
			t.Error("accepted without a key")
		}
	})
}
