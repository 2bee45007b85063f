package etcdauth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
)

// maxToken bounds a token: signed ones have a few hundred bytes.
const maxToken = 8 << 10

// tokenOf returns the token of the incoming call of ctx, from the metadata where etcd expects it
// (auth/store.go, AuthInfoFromCtx); false: there is none.
func tokenOf(ctx context.Context) (string, bool) {
	for _, key := range []string{rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger} {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			return strings.TrimPrefix(values[0], "Bearer "), true
		}
	}
	return "", false
}

// claim returns the user that a signed token (JWT) claims. The claim counts only once etcd, which has the key,
// accepts the token.
func claim(token string) (user string, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || strings.ContainsAny(token, "\r\n") { // which base64 ignores
		return "", false
	}
	var payload []byte
	for i, part := range parts {
		b, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil || len(b) == 0 {
			return "", false
		}
		if i == 1 {
			payload = b
		}
	}
	var claims map[string]any // not a struct, which would accept "Username"
	if json.Unmarshal(payload, &claims) != nil {
		return "", false
	}
	user, _ = claims["username"].(string)
	return user, user != ""
}
