package policy

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Keys are an issuer's public keys.
type Keys struct{ set jose.JSONWebKeySet }

// ParseKeys parses a JSON Web Key Set, as printed by `kubectl get --raw /openid/v1/jwks`. file is used in
// errors.
func ParseKeys(file string, data []byte) (*Keys, error) {
	k := &Keys{}
	if err := json.Unmarshal(data, &k.set); err != nil {
		return nil, fmt.Errorf("%s: is not a JSON Web Key Set: %w", file, err)
	}
	if len(k.set.Keys) == 0 {
		return nil, fmt.Errorf("%s: keys: the list is empty, so no token can be verified", file)
	}
	for i := range k.set.Keys {
		key := &k.set.Keys[i]
		if key.KeyID == "" {
			return nil, fmt.Errorf("%s: keys[%d].kid: is needed: tokens name their key by it", file, i)
		}
		switch key.Key.(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey:
		default:
			return nil, fmt.Errorf("%s: keys[%d]: want a public key, for RSA, ECDSA or Ed25519", file, i)
		}
	}
	return k, nil
}

// algorithms are the asymmetric ones: with a symmetric algorithm, every verifier could forge tokens.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

const (
	// maxToken bounds a token, in bytes.
	maxToken = 16 << 10
	// leeway is the tolerated difference between the issuer's clock and ours.
	leeway = 30 * time.Second
)

// Ours reports whether a token claims to be the issuer's. Other tokens, such as etcd's, are not for this
// package to check.
func (t *Tokens) Ours(token string) bool {
	if len(token) > maxToken {
		return false
	}
	parsed, err := jwt.ParseSigned(token, algorithms())
	if err != nil {
		return false
	}
	var claims jwt.Claims
	return parsed.UnsafeClaimsWithoutVerification(&claims) == nil && claims.Issuer == t.Issuer
}

// Verify returns the name of a token's holder, and when the token expires. It fails unless the issuer has
// signed the token for our audience, and the token is valid now.
func (t *Tokens) Verify(token string, keys *Keys, now time.Time) (name string, ends time.Time, err error) {
	if len(token) > maxToken {
		return "", time.Time{}, fmt.Errorf("the token has %d bytes: at most %d", len(token), maxToken)
	}
	parsed, err := jwt.ParseSigned(token, algorithms())
	if err != nil {
		return "", time.Time{}, errors.New("the token is not a JWT signed with a public-key algorithm")
	}
	var claims jwt.Claims
	if err := parsed.Claims(keys.set, &claims); err != nil {
		return "", time.Time{}, errors.New("the token is not signed by a known key of the issuer")
	}
	err = claims.ValidateWithLeeway(jwt.Expected{Issuer: t.Issuer, AnyAudience: jwt.Audience{t.Audience}, Time: now}, leeway)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return "", time.Time{}, fmt.Errorf("the token has expired, at %s", claims.Expiry.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrInvalidAudience):
		return "", time.Time{}, fmt.Errorf("the token is for another audience than %q", t.Audience)
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return "", time.Time{}, fmt.Errorf("the token was not issued by %q", t.Issuer)
	case err != nil:
		return "", time.Time{}, errors.New("the token is not valid yet")
	case claims.Expiry == nil:
		return "", time.Time{}, errors.New("the token never expires: an expiry is required")
	case claims.Subject == "":
		return "", time.Time{}, errors.New("the token names no subject")
	}
	return kindSubject + claims.Subject, claims.Expiry.Time().Add(leeway), nil
}
