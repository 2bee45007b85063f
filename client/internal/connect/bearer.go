package connect

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tokenFor is how long a token from a file is used. Kubernetes renews the token of a
// Pod long before it expires.
const tokenFor = 10 * time.Second

// TokenFile implements client.TokenFile.
func TokenFile(name string) func() (string, error) {
	var mu sync.Mutex
	var token string
	var until time.Time
	return func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Now().Before(until) {
			return token, nil
		}
		text, err := os.ReadFile(name) //nolint:gosec // the program names it
		if err != nil {
			return "", err
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			return "", fmt.Errorf("%s is empty: it should hold a token", name)
		}
		until = time.Now().Add(tokenFor)
		return token, nil
	}
}

// bearer adds the token to every call. It is grpc's credentials.PerRPCCredentials.
type bearer struct{ token func() (string, error) }

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.token()
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity returns false: the program decides; see client.Config.Token.
func (bearer) RequireTransportSecurity() bool { return false }
