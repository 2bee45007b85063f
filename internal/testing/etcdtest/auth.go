package etcdtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/internal/testing/devetcd"
)

// Password is that of every user of tests.
const Password = "secret"

// WithJWT makes etcd issue signed tokens, which name their user, instead of
// random tokens.
func WithJWT(t TB) Option {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("a key for tests, of no use elsewhere"), 0o600); err != nil {
		t.Fatalf("write a key for tokens: %v", err)
	}
	return func(c *devetcd.Config) { c.AuthToken = "jwt,sign-method=HS256,priv-key=" + file }
}

// Permit adds a user, when there is none of that name yet, and gives it a role
// of its own name with all rights to some ranges: pairs of key and range end
// as etcd has them.
func Permit(t TB, cli *clientv3.Client, user string, ranges ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	must := func(_ any, err error) { errs = append(errs, err) }
	if _, err := cli.UserGet(ctx, user); err != nil {
		must(cli.UserAdd(ctx, user, Password))
		must(cli.RoleAdd(ctx, user))
		must(cli.UserGrantRole(ctx, user, user))
	}
	for i := 0; i+1 < len(ranges); i += 2 {
		must(cli.RoleGrantPermission(ctx, user, ranges[i], ranges[i+1], clientv3.PermissionType(clientv3.PermReadWrite)))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("permit %q: %v", user, err)
	}
}

// AuthOn turns on authentication, with a user root that has all rights, and
// returns its client.
func (s *Server) AuthOn() *clientv3.Client {
	s.t.Helper()
	cli := s.Client()
	Permit(s.t, cli, "root")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := cli.AuthEnable(ctx); err != nil {
		s.t.Fatalf("turn on etcd's authentication: %v", err)
	}
	return s.As("root")
}

// As returns a client that is logged in as user; it is closed when the test ends.
func (s *Server) As(user string) *clientv3.Client {
	s.t.Helper()
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + s.addr}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second,
		Username: user, Password: Password,
	})
	if err != nil {
		s.t.Fatalf("log in to etcd as %q: %v", user, err)
		return nil
	}
	s.t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// Token logs in at etcd and returns the token.
func (s *Server) Token(user string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := s.Client().Authenticate(ctx, user, Password)
	if err != nil {
		s.t.Fatalf("log in as %q: %v", user, err)
		return ""
	}
	return r.Token
}
