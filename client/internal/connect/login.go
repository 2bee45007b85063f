package connect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
)

// Login gets a token of etcd's authentication through any node, and keeps it: it is
// valid at all nodes. Without a user it does nothing.
type Login struct {
	user     string
	password func() (string, error)
	turn     chan struct{} // held while logging in

	mu    sync.Mutex
	known bool      // guarded by mu
	token string    // "": etcd's authentication is off; guarded by mu
	at    time.Time // when it was got; guarded by mu
	wrong refusal   // guarded by mu
}

// refusal is a password that etcd rejected: it is not sent again before a time, because
// checking a password is expensive for etcd.
type refusal struct {
	password string
	err      error // nil: none was rejected
	times    int
	until    time.Time
}

// NewLogin returns a login of a user that calls password each time; user "": it does nothing.
func NewLogin(user string, password func() (string, error)) *Login {
	return &Login{user: user, password: password, turn: make(chan struct{}, 1)}
}

// options returns the options that add the token to the calls of a connection.
func (l *Login) options() []grpc.DialOption {
	if l.user == "" {
		return nil
	}
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, err := l.carry(ctx, method, conn)
			if err != nil {
				return err
			}
			return call(ctx, method, req, reply, conn, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			ctx, err := l.carry(ctx, method, conn)
			if err != nil {
				return nil, err
			}
			return open(ctx, desc, conn, method, opts...)
		}),
	}
}

// carry adds the token to the calls that etcd's authentication applies to.
func (l *Login) carry(ctx context.Context, method string, conn *grpc.ClientConn) (context.Context, error) {
	if !needsToken(method) {
		return ctx, nil
	}
	token, err := l.get(ctx, conn)
	if err != nil || token == "" {
		return ctx, err
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token), nil
}

// needsToken reports whether etcd's authentication applies to a call: to all but the
// login and the health check.
func needsToken(method string) bool {
	return method != etcdserverpb.Auth_Authenticate_FullMethodName && method != healthgrpc.Health_Check_FullMethodName
}

// Ready logs in at the node if necessary, within timeout. It fails with
// [outcome.ErrLogin] if another call was logging in all that time.
func (l *Login) Ready(ctx context.Context, conn *grpc.ClientConn, timeout time.Duration) error {
	if l.user == "" {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, outcome.ErrSlow)
	defer cancel()
	_, err := l.get(ctx, conn)
	return err
}

// get returns the token, or logs in at the node.
func (l *Login) get(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	if token, ok := l.kept(); ok {
		return token, nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		err := context.Cause(ctx)
		if errors.Is(err, outcome.ErrSlow) { // the attempt timed out; its node was not asked
			err = outcome.ErrLogin
		}
		return "", fmt.Errorf("log in as %q: %w", l.user, err)
	}
	if token, ok := l.kept(); ok {
		return token, nil
	}
	password, err := l.password()
	if err != nil {
		return "", fmt.Errorf("log in as %q: %w (%w)", l.user, outcome.ErrUnauthenticated, err)
	}
	if err := l.refused(password); err != nil {
		return "", err
	}
	r, err := etcdserverpb.NewAuthClient(conn).Authenticate(ctx, &etcdserverpb.AuthenticateRequest{Name: l.user, Password: password})
	if err != nil && !errors.Is(err, rpctypes.ErrGRPCAuthNotEnabled) {
		return "", l.failed(password, fmt.Errorf("log in as %q: %w", l.user, err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.token, l.at, l.wrong = true, r.GetToken(), time.Now(), refusal{}
	return l.token, nil
}

// refused returns the error of a password that etcd rejected recently.
func (l *Login) refused(password string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong.err != nil && l.wrong.password == password && time.Now().Before(l.wrong.until) {
		return l.wrong.err
	}
	return nil
}

// failed records that a password was rejected, if err reports that.
func (l *Login) failed(password string, err error) error {
	if !errors.Is(outcome.Judge(err).Err, outcome.ErrUnauthenticated) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong.password != password {
		l.wrong = refusal{password: password}
	}
	l.wrong.err, l.wrong.until = err, time.Now().Add(retry.Penalty(l.wrong.times+1))
	l.wrong.times++
	return err
}

func (l *Login) kept() (token string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token, l.known
}

// Again records that a node rejected the token of a call that began at a time: the token
// is dropped, unless it is newer. It reports whether another one can be requested.
func (l *Login) Again(began time.Time) bool {
	if l.user == "" {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.Before(began) {
		l.known = false
	}
	return true
}

// PasswordFile implements client.PasswordFile.
func PasswordFile(name string) func() (string, error) {
	return func() (string, error) {
		text, err := os.ReadFile(name) //nolint:gosec // the program names it
		if err != nil {
			return "", err
		}
		password := strings.TrimRight(string(text), "\r\n")
		if password == "" {
			return "", fmt.Errorf("%s is empty: it should hold a password", name)
		}
		return password, nil
	}
}
