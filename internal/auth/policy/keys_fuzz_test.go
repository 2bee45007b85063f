package policy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/shardwatch/shardwatch/internal/auth/policy"
)

// Any file of keys is refused or holds public keys, and a token signed by none of them is refused.
func FuzzParseKeys(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(set)
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"1","n":"AQAB","e":"AQAB"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":"AA"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"oct","kid":"1","k":"AA"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"EC","kid":"1","crv":"P-256","x":"AA","y":"AA","x5c":["AA"]}]}`))
	const forged = "eyJhbGciOiJFUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJodHRwczovL3VzIiwiYXVkIjoic2hhcmR3YXRjaCIsInN1YiI6IngifQ.AAAA"
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := policy.ParseKeys("jwks.json", data)
		if err != nil {
			return
		}
		tokens := &policy.Tokens{Issuer: "https://us", Audience: "shardwatch"}
		if _, _, err := tokens.Verify(forged, keys, now); err == nil {
			t.Errorf("%s: a forged token is accepted", data)
		}
	})
}
