package etcd

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

func as(t *testing.T, s *etcdtest.Server, user string) *Client {
	t.Helper()
	cfg := testConfig(s.Endpoint())
	if user != "" {
		cfg.Username, cfg.Password = user, etcdtest.Password
	}
	return newClient(t, cfg)
}

func TestAuthStatus(t *testing.T) {
	s := etcdtest.Start(t)
	account, none := as(t, s, "root"), as(t, s, "")
	status := func(want bool) (revision uint64) {
		t.Helper()
		for name, c := range map[string]*Client{"account": account, "no account": none} {
			on, err := c.Authenticated(t.Context())
			if err != nil || on != want {
				t.Errorf("%s: authenticated: %v, %v", name, on, err)
			}
			if on, revision, err = c.AuthStatus(t.Context()); err != nil || on != want || revision == 0 {
				t.Errorf("%s: status: %v, revision %d, %v", name, on, revision, err)
			}
		}
		return revision
	}
	status(false)
	root := s.AuthOn()
	before := status(true)
	etcdtest.Permit(t, root, "ann", "/a/", "/a0")
	after := status(true)
	if after <= before {
		t.Errorf("the auth revision went from %d to %d with a new user, want a higher one", before, after)
	}
	if _, err := root.AuthDisable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status(false) <= after {
		t.Error("the auth revision did not grow when authentication was turned off")
	}
	s.Stop()
	if _, err := none.Authenticated(t.Context()); !errors.Is(err, etcdconn.ErrUnavailable) {
		t.Errorf("Authenticated without etcd: %v", err)
	}
	if _, _, err := none.AuthStatus(t.Context()); !errors.Is(err, etcdconn.ErrUnavailable) || errors.Is(err, etcdroles.ErrUnreadable) {
		t.Errorf("AuthStatus without etcd: %v", err)
	}
}

func TestGrants(t *testing.T) {
	s := etcdtest.Start(t)
	root := s.AuthOn()
	etcdtest.Permit(t, root, "ann", "/a/", "/a0", "k", "")
	etcdtest.Permit(t, root, "bob", "b", "\x00")
	for _, err := range []error{
		second(root.UserGrantRole(t.Context(), "bob", "ann")),
		second(root.UserGrantRole(t.Context(), "bob", "root")), // there is no role with this name
		second(root.RoleGrantPermission(t.Context(), "ann", "w", "", clientv3.PermissionType(clientv3.PermWrite))),
		second(root.RoleGrantPermission(t.Context(), "ann", "r", "", clientv3.PermissionType(clientv3.PermRead))),
		second(root.RoleAdd(t.Context(), "nobody's")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := as(t, s, "root").Grants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	read := func(key, end string) etcdroles.Permission {
		return etcdroles.Permission{Key: key, RangeEnd: end, Read: true}
	}
	if !maps.EqualFunc(got.Users, map[string][]string{"root": {"root"}, "ann": {"ann"}, "bob": {"ann", "bob", "root"}}, slices.Equal) {
		t.Errorf("users: %q", got.Users)
	}
	if all := got.Roles["ann"]; !slices.Equal(all, []etcdroles.Permission{read("/a/", "/a0"), read("k", ""), read("r", ""), {Key: "w"}}) {
		t.Errorf("ann: %+v", all)
	}
	if all := got.Roles["bob"]; !slices.Equal(all, []etcdroles.Permission{read("b", "\x00")}) {
		t.Errorf("bob: %+v", all)
	}
	if got.Roles["nobody's"] != nil {
		t.Error("Grants includes a role without users")
	}
	wrong := testConfig(s.Endpoint())
	wrong.Username, wrong.Password = "root", "wrong"
	for name, c := range map[string]*Client{"no account": as(t, s, ""), "not root": as(t, s, "ann"), "wrong password": newClient(t, wrong)} {
		if _, err := c.Grants(t.Context()); !errors.Is(err, etcdroles.ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.Stop()
	if _, err := as(t, s, "root").Grants(t.Context()); !errors.Is(err, etcdconn.ErrUnavailable) || errors.Is(err, etcdroles.ErrUnreadable) {
		t.Errorf("Grants without etcd: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestConfirm(t *testing.T) {
	for _, kind := range []string{"simple", "jwt"} {
		t.Run(kind, func(t *testing.T) {
			var options []etcdtest.Option
			if kind == "jwt" {
				options = append(options, etcdtest.WithJWT(t))
			}
			s := etcdtest.Start(t, options...)
			root := s.AuthOn()
			etcdtest.Permit(t, root, "ann", "/a/", "/a0")
			etcdtest.Permit(t, root, "bob")
			c := as(t, s, "")
			ctx := t.Context()
			ann, boss := s.Token("ann"), s.Token("root")
			for name, err := range map[string]error{
				"ann":        c.Confirm(ctx, ann), // ann may not read the probe
				"ann is ann": c.ConfirmUser(ctx, ann, "ann"),
				"root":       c.Confirm(ctx, boss),
				"root is":    c.ConfirmUser(ctx, boss, "root"),
				"root shows": c.ConfirmUser(ctx, boss, "ann"), // a caller with root's rights gains nothing
			} {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			for name, err := range map[string]error{
				"no token":    c.Confirm(ctx, "none"),
				"no jwt":      c.Confirm(ctx, "a.b.c"),
				"none is ann": c.ConfirmUser(ctx, "none", "ann"),
				"ann is bob":  c.ConfirmUser(ctx, ann, "bob"),
				"ann is root": c.ConfirmUser(ctx, ann, "root"),
				"root is cid": c.ConfirmUser(ctx, boss, "cid"),
			} {
				if !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := second(root.UserDelete(ctx, "ann")); err != nil {
				t.Fatal(err)
			}
			want := rpctypes.ErrGRPCInvalidAuthToken
			if kind == "jwt" { // etcd only reports that the token is older
				want = rpctypes.ErrGRPCAuthOldRevision
			}
			if err := c.Confirm(ctx, ann); !errors.Is(err, want) {
				t.Errorf("the token of a deleted user: %v, want %v", err, want)
			}
			// A token that etcd waits for is no evidence about etcd's health. When its wait ends, etcd calls the
			// token invalid, which may arrive before our call ends.
			if kind == "simple" {
				cfg := testConfig(s.Endpoint())
				cfg.CallTimeout = 100 * time.Millisecond
				log := &lines{}
				cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
				var away *kv.UnavailableError
				quick := newClient(t, cfg)
				if err := quick.Confirm(ctx, "abc.9999999999"); !errors.As(err, &away) && !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
					t.Errorf("a token of a future revision: %v", err)
				}
				if log.count("etcd is unavailable") > 0 {
					t.Error("a token of a future revision makes etcd count as unavailable")
				}
			}
			s.Stop()
			var away *kv.UnavailableError
			if err := c.Confirm(ctx, boss); !errors.As(err, &away) {
				t.Errorf("Confirm without etcd: %v", err)
			}
			if err := c.ConfirmUser(ctx, boss, "root"); !errors.As(err, &away) {
				t.Errorf("ConfirmUser without etcd: %v", err)
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if err := c.Confirm(ended, boss); !errors.Is(err, context.Canceled) {
				t.Errorf("Confirm with a cancelled context: %v", err)
			}
		})
	}
}

// frugal is an etcd member that counts the reads under each token.
type frugal struct {
	etcdserverpb.UnimplementedKVServer
	mu     sync.Mutex
	tokens map[string]int // guarded by mu
}

func (s *frugal) Range(ctx context.Context, _ *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, token := range md.Get(rpctypes.TokenFieldNameGRPC) {
		s.tokens[token]++
	}
	return &etcdserverpb.RangeResponse{}, nil
}

// Confirm uses a token at all members, so that no member expires it as idle.
func TestConfirmReachesAllMembers(t *testing.T) {
	var members []*frugal
	var endpoints []string
	for range 3 {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		m, g := &frugal{tokens: map[string]int{}}, grpc.NewServer()
		etcdserverpb.RegisterKVServer(g, m)
		ended := make(chan error, 1)
		go func() { ended <- g.Serve(l) }()
		t.Cleanup(func() { g.Stop(); <-ended })
		members, endpoints = append(members, m), append(endpoints, l.Addr().String())
	}
	c := newClient(t, testConfig(endpoints...))
	for i := 0; i < 100; i++ { // the first calls find only one or two members connected
		if err := c.Confirm(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		all := true
		for _, m := range members {
			m.mu.Lock()
			all = all && m.tokens["t"] > 0
			m.mu.Unlock()
		}
		if all {
			return
		}
	}
	t.Error("a member never got the token")
}

// While authentication is off, each read of etcd's revision proves that, once Authenticated has been called. The
// first read after authentication was turned on detects the change, and still gets its answer.
func TestReadsProveThatAuthenticationIsOff(t *testing.T) {
	for _, user := range []string{"", "root"} {
		t.Run("as "+user, func(t *testing.T) {
			s := etcdtest.Start(t)
			c := as(t, s, user)
			read := func() {
				t.Helper()
				_, err := c.Revision(t.Context())
				if on, _ := c.AuthOff(); user != "" && err != nil {
					t.Errorf("read: %v; authentication proven off at %v", err, on)
				}
			}
			proven := func(when string, want bool) {
				t.Helper()
				if at, _ := c.AuthOff(); at.IsZero() == want {
					t.Errorf("%s: authentication proven off at %v", when, at)
				}
			}
			read()
			proven("before the question", false)
			if on, err := c.Authenticated(t.Context()); on || err != nil {
				t.Fatal(on, err)
			}
			proven("by the question alone", false)
			began := time.Now()
			read()
			proven("by a read", true)
			if at, _ := c.AuthOff(); at.Before(began) {
				t.Errorf("a read begun at %v proves authentication off as of %v", began, at)
			}
			_, ended := c.AuthOff()
			root := s.AuthOn()
			select {
			case <-ended:
				t.Error("the change was detected without a read")
			default:
			}
			read()
			select {
			case <-ended:
			default:
				t.Error("a read did not detect the change")
			}
			proven("turned on", false)
			if on, err := c.Authenticated(t.Context()); !on || err != nil {
				t.Errorf("authentication is on: %v, %v", on, err)
			}
			if _, err := root.AuthDisable(t.Context()); err != nil {
				t.Fatal(err)
			}
			read()
			proven("turned off, and not asked", false)
			if on, err := c.Authenticated(t.Context()); on || err != nil {
				t.Fatal(on, err)
			}
			read()
			proven("turned off", true)
		})
	}
}
