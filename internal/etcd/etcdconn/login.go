package etcdconn

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
)

// loginPatience is the number of call timeouts that a login may take: etcd checks
// passwords with bcrypt, which is slow to prevent guessing.
const loginPatience = 5

// login keeps a token of etcd's authentication. It fetches the token at the first use,
// and again when etcd has dropped it.
type login struct {
	user, password string // no user: no token
	timeout        time.Duration
	auth           etcdserverpb.AuthClient
	turn           chan struct{} // held while logging in
	current        atomic.Pointer[string]
}

// token returns the current token, or logs in. The token of an etcd without
// authentication is empty.
func (l *login) token(ctx context.Context) (string, error) {
	if l.user == "" {
		return "", nil
	}
	if t := l.current.Load(); t != nil {
		return *t, nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if t := l.current.Load(); t != nil {
		return *t, nil
	}
	within, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	r, err := l.auth.Authenticate(within, &etcdserverpb.AuthenticateRequest{Name: l.user, Password: l.password})
	token := r.GetToken()
	switch {
	case Is(err, rpctypes.ErrGRPCAuthNotEnabled):
		token = ""
	case err != nil && within.Err() != nil && ctx.Err() == nil:
		return "", fmt.Errorf("log in to etcd as %q: %w (%v): %w", l.user, errAttempt, l.timeout, err)
	case err != nil:
		return "", fmt.Errorf("log in to etcd as %q: %w", l.user, err)
	}
	l.current.Store(&token)
	return token, nil
}

// forget drops token, so that the next caller logs in.
func (l *login) forget(token string) {
	if t := l.current.Load(); t != nil && *t == token {
		l.current.CompareAndSwap(t, nil)
	}
}

// WithToken adds a token to a call; empty: none.
func WithToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
}
