package etcdauth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/auth/etcdroles"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// raw is etcd's API without clientv3: requests are sent unchanged.
func raw(t *testing.T, s *etcdtest.Server) etcdserverpb.KVClient {
	t.Helper()
	conn, err := grpc.NewClient(s.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return etcdserverpb.NewKVClient(conn)
}

// signed returns a token with an invalid signature.
func signed(payload string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + part([]byte(payload)) + "." + part([]byte("signature"))
}

// For any metadata of a call, the result of a read equals etcd's result.
func TestVerdictsAreEtcds(t *testing.T) {
	for _, kind := range []string{"simple", "jwt"} {
		t.Run(kind, func(t *testing.T) {
			var options []etcdtest.Option
			if kind == "jwt" {
				options = append(options, etcdtest.WithJWT(t))
			}
			s := etcdtest.Start(t, options...)
			root := s.AuthOn()
			for _, user := range []string{"ann", "bob", "cid"} {
				etcdtest.Permit(t, root, user, "k", "")
			}
			g := start(t, quick(account(t, s, "root")))
			settled(t, g, true)
			direct := raw(t, s)
			login := func(user string) string {
				token := s.Token(user)
				g.Learn(t.Context(), user, token)
				return token
			}
			compare := func(what string, pairs ...string) {
				t.Helper()
				follows(t, g, s)
				for _, key := range []string{"k", "other"} {
					user, got := g.Caller(calling(t, pairs...))
					if got == nil {
						got = g.MayRead(user, kv.Single(key))
					}
					ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs(pairs...))
					_, want := direct.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(key)})
					if status.Code(got) != status.Code(want) || status.Convert(got).Message() != status.Convert(want).Message() {
						t.Errorf("%s, %q: got %v, etcd returns %v", what, key, got, want)
					}
				}
			}
			ann, bob, cid, boss := login("ann"), login("bob"), login("cid"), login("root")
			for range 2 { // the second time from memory
				compare("no token")
				compare("an empty token", "token", "")
				compare("a token that is none", "token", "x")
				compare("a token like a simple one", "token", "abcdefghijklmnop.1")
				compare("a token like a signed one", "token", signed(`{"username":"root","revision":100,"exp":9999999999}`))
				compare("a token that is far too long", "token", strings.Repeat("x", 10_000))
				compare("ann", "token", ann)
				compare("ann, as bearer", "token", "Bearer "+ann)
				compare("ann, as authorization", "authorization", ann)
				compare("ann, as a bearer's authorization", "authorization", "Bearer "+ann)
				compare("ann first", "token", ann, "token", boss)
				compare("ann before the other name", "token", ann, "authorization", boss)
				compare("root", "token", boss)
			}
			// etcd decides which requests change users or roles, and which tokens a change invalidates.
			_, err := root.UserChangePassword(t.Context(), "ann", "another")
			if err != nil {
				t.Fatal(err)
			}
			compare("after a new password", "token", ann)
			compare("after another's new password", "token", bob)
			bob = login("bob")
			compare("logged in again", "token", bob)
			if _, err := root.UserRevokeRole(t.Context(), "bob", "bob"); err != nil {
				t.Fatal(err)
			}
			compare("without the role", "token", bob)
			if _, err := root.UserDelete(t.Context(), "cid"); err != nil {
				t.Fatal(err)
			}
			compare("deleted", "token", cid)
			compare("root at the end", "token", boss)
		})
	}
}

// A token from a login through one of three nodes is valid at all, and at a node that joins later.
func TestTokensAreShared(t *testing.T) {
	s := etcdtest.Start(t)
	root := s.AuthOn()
	etcdtest.Permit(t, root, "ann", "k", "")
	b, c := start(t, quick(account(t, s, "root"))), start(t, quick(account(t, s, "root")))
	dead, err := grpc.NewClient("127.0.0.1:1", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dead.Close() })
	others := peersOf(t, b, c)
	withDead := func() []grpc.ClientConnInterface { return slices.Concat(others(), []grpc.ClientConnInterface{dead}) }
	cfg := quick(account(t, s, "root"))
	cfg.Peers = withDead
	a := start(t, cfg)
	for _, g := range []*Checker{a, b, c} {
		settled(t, g, true)
	}
	token := s.Token("ann")
	a.Learn(t.Context(), "ann", token)
	for name, g := range map[string]*Checker{"a": a, "b": b, "c": c} {
		if user, err := g.Caller(calling(t, "token", token)); user != "ann" || err != nil {
			t.Errorf("%s: %q, %v", name, user, err)
		}
		if s := g.Status(); s.Lookups != 0 || s.Confirmations != 1 || s.Tokens != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	late := start(t, cfg)
	settled(t, late, true)
	if user, err := late.Caller(calling(t, "token", token)); user != "ann" || err != nil {
		t.Errorf("at the node that joined later: %q, %v", user, err)
	}
	// A valid token of etcd from a login through no node.
	direct := s.Token("ann")
	if _, err := late.Caller(calling(t, "token", direct)); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
		t.Errorf("a token from a login at etcd: %v", err)
	}
	// The refusal is cached until a login through this node.
	late.Learn(t.Context(), "ann", direct)
	if user, err := late.Caller(calling(t, "token", direct)); user != "ann" || err != nil {
		t.Errorf("after the login through the node: %q, %v", user, err)
	}
	// No user can claim another user's token.
	roots := s.Token("root")
	late.Learn(t.Context(), "ann", roots) // root's token may count for a user with fewer rights
	if user, err := late.Caller(calling(t, "token", roots)); user != "ann" || err != nil {
		t.Errorf("root's token learned as ann's: %q, %v", user, err)
	}
	anns := s.Token("ann")
	late.Learn(t.Context(), "root", anns)
	if user, err := late.Caller(calling(t, "token", anns)); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
		t.Errorf("ann's token learned as root's: %q, %v", user, err)
	}
	for _, odd := range [][]byte{nil, {1}, make([]byte, 33)} {
		b.Share(odd, "root")
		if user := b.Identify(odd); user != "" {
			t.Errorf("%x: %q", odd, user)
		}
	}
}

// A signed token names its user: no node needs to have seen its login.
func TestSignedTokens(t *testing.T) {
	s := etcdtest.Start(t, etcdtest.WithJWT(t))
	root := s.AuthOn()
	etcdtest.Permit(t, root, "ann", "k", "")
	g := start(t, quick(account(t, s, "root")))
	settled(t, g, true)
	follows(t, g, s)
	token := s.Token("ann")
	for range 2 {
		if user, err := g.Caller(calling(t, "token", token)); user != "ann" || err != nil {
			t.Errorf("%q, %v", user, err)
		}
	}
	if g.Identify(idOf(token).bytes()) != "" {
		t.Error("a token's claimed user is shared as if etcd had confirmed it")
	}
	parts := strings.Split(token, ".")
	for name, forged := range map[string]string{
		"other payload":  parts[0] + "." + strings.Split(signed(`{"username":"root","revision":100,"exp":9999999999}`), ".")[1] + "." + parts[2],
		"no signature":   parts[0] + "." + parts[1] + ".",
		"other sign":     parts[0] + "." + parts[1] + ".AAAA",
		"nothing inside": signed(``),
	} {
		if user, err := g.Caller(calling(t, "token", forged)); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
			t.Errorf("%s: %q, %v", name, user, err)
		}
	}
	s.Stop()
	if user, err := g.Caller(calling(t, "token", token)); user != "ann" || err != nil {
		t.Errorf("etcd is down: %q, %v", user, err)
	}
	if _, err := g.Caller(calling(t, "token", signed(`{"username":"ann","revision":100}`))); status.Code(err) != codes.Unavailable {
		t.Errorf("etcd is down, a new token: %v", err)
	}
}

func (id tokenID) bytes() []byte { return id[:] }

// While etcd is unavailable, tokens that it accepted before are valid, also at a node that learned of them from
// another.
func TestTokensStayValidWhileEtcdIsUnavailable(t *testing.T) {
	s := etcdtest.Start(t)
	root := s.AuthOn()
	etcdtest.Permit(t, root, "ann", "k", "")
	b := start(t, quick(account(t, s, "root")))
	cfg := quick(account(t, s, "root"))
	cfg.Peers = peersOf(t, b)
	cfg.Confirm = time.Nanosecond // always to be confirmed
	a := start(t, cfg)
	settled(t, a, true)
	settled(t, b, true)
	used, unused := s.Token("ann"), s.Token("ann")
	a.Learn(t.Context(), "ann", used)
	b.Learn(t.Context(), "ann", unused) // a does not have this token
	if _, err := a.Caller(calling(t, "token", used)); err != nil {
		t.Error(err)
	}
	s.Stop()
	for what, token := range map[string]string{"used": used, "asked for": unused} {
		for name, g := range map[string]*Checker{"a": a, "b": b} {
			if user, err := g.Caller(calling(t, "token", token)); user != "ann" || err != nil {
				t.Errorf("%s at %s: %q, %v", what, name, user, err)
			}
		}
	}
	if _, err := a.Caller(calling(t, "token", "abc.1")); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
		t.Errorf("a token that no node has: %v", err)
	}
	// etcd is back, without the user.
	s.Restart()
	if _, err := s.As("root").UserDelete(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*Checker{a, b} {
		testkit.Succeeds(t, "refused", func() error {
			if user, err := g.Caller(calling(t, "token", used)); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
				return fmt.Errorf("%q, %w", user, err)
			}
			return nil
		})
	}
}

// guarded returns a guard in front of a fake etcd with authentication on.
func guarded(t *testing.T, e *fake, change func(*Config)) *Checker {
	t.Helper()
	e.on, e.revision = true, max(e.revision, 1)
	e.grants = func() (etcdroles.Grants, error) { return etcdroles.Grants{Users: map[string][]string{"ann": nil}}, nil }
	if e.owner == nil {
		e.owner = func(context.Context, string, string) error { return nil }
	}
	cfg := quick(e)
	if change != nil {
		change(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.look(t.Context())
	return g
}

// A thousand calls with one token send etcd one request.
func TestCallersShareOneConfirmation(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	e := &fake{confirm: func(context.Context, string) error {
		close(asked)
		<-answer
		return nil
	}}
	g := guarded(t, e, nil)
	g.Learn(t.Context(), "ann", "x")
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() {
			if user, err := g.Caller(calling(t, "token", "x")); user != "ann" || err != nil {
				t.Errorf("%q, %v", user, err)
			}
		})
	}
	<-asked
	close(answer)
	all.Wait()
	if n := e.count("confirm"); n != 1 {
		t.Errorf("etcd was asked %d times, want once", n)
	}
}

// If the asking caller stops waiting, another one asks, and no caller gets another caller's error.
func TestAnotherCallerAsksIfTheFirstGivesUp(t *testing.T) {
	asked := make(chan struct{}, 2)
	answer := make(chan struct{})
	e := &fake{confirm: func(ctx context.Context, _ string) error {
		asked <- struct{}{}
		select {
		case <-answer:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	g := guarded(t, e, nil)
	g.Learn(t.Context(), "ann", "x")
	ctx, cancel := context.WithCancel(calling(t, "token", "x"))
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := g.Caller(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that stopped waiting: %v", err)
		}
	})
	<-asked
	all.Go(func() {
		if user, err := g.Caller(calling(t, "token", "x")); user != "ann" || err != nil {
			t.Errorf("the other caller: %q, %v", user, err)
		}
	})
	cancel()
	<-asked
	close(answer)
	all.Wait()
}

// If a confirmation is due, one caller asks and the others continue. If it is overdue, or the users have
// changed, they wait.
func TestConfirmedAgain(t *testing.T) {
	e := &fake{confirm: func(context.Context, string) error { return nil }}
	g := guarded(t, e, func(c *Config) { c.Confirm = time.Hour })
	id := idOf("x")
	call := func() (string, error) { return g.Caller(calling(t, "token", "x")) }
	aged := func(age time.Duration) {
		g.tokens.put(id, holder{user: "ann", taken: time.Now().Add(-age), revision: g.rights.Load().revision})
	}
	for _, c := range []struct {
		name  string
		age   time.Duration
		asked int
	}{
		{"young", 30 * time.Minute, 0},
		{"due", 70 * time.Minute, 1},
		{"overdue", 100 * time.Minute, 1},
	} {
		before := e.count("confirm")
		aged(c.age)
		for range 3 {
			if user, err := call(); user != "ann" || err != nil {
				t.Errorf("%s: %q, %v", c.name, user, err)
			}
		}
		if n := e.count("confirm") - before; n != c.asked {
			t.Errorf("%s: asked %d times, want %d", c.name, n, c.asked)
		}
	}

	// A confirmation is due, and etcd answers late.
	asked, answer := make(chan struct{}), make(chan struct{})
	refused := func(context.Context, string) error {
		close(asked)
		<-answer
		return rpctypes.ErrGRPCInvalidAuthToken
	}
	e.confirm = refused
	aged(70 * time.Minute)
	var one sync.WaitGroup
	one.Go(func() {
		if _, err := call(); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
			t.Errorf("the caller that asks: %v", err)
		}
	})
	<-asked
	if user, err := call(); user != "ann" || err != nil {
		t.Errorf("a caller that does not wait: %q, %v", user, err)
	}
	close(answer)
	one.Wait()
	if _, err := call(); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
		t.Errorf("refused: %v", err)
	}

	// A young confirmation does not count after the users have changed.
	e.confirm = func(context.Context, string) error { return rpctypes.ErrGRPCAuthOldRevision }
	g.remember(id, "ann")
	aged(0)
	if _, err := call(); err != nil {
		t.Error(err)
	}
	e.mu.Lock()
	e.revision++
	e.mu.Unlock()
	g.look(t.Context())
	if _, err := call(); !errors.Is(err, rpctypes.ErrGRPCAuthOldRevision) {
		t.Errorf("after a change: %v", err)
	}
}

// If etcd hangs, a caller with an accepted token waits at most for the patience, and then no caller waits for a
// while.
func TestEtcdHangs(t *testing.T) {
	e := &fake{confirm: func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	g := guarded(t, e, func(c *Config) { c.Patience = 10 * time.Millisecond })
	g.Learn(t.Context(), "ann", "x")
	for range 3 {
		if user, err := g.Caller(calling(t, "token", "x")); user != "ann" || err != nil {
			t.Errorf("%q, %v", user, err)
		}
	}
	if n := e.count("confirm"); n != 1 {
		t.Errorf("etcd was asked %d times, want once", n)
	}
	// Unknown tokens do not make etcd count as unavailable.
	g.heard(true)
	ctx, cancel := context.WithTimeout(calling(t, "token", signed(`{"username":"ann"}`)), 10*time.Millisecond)
	defer cancel()
	if _, err := g.Caller(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if g.away() {
		t.Error("an unknown token makes etcd count as unavailable")
	}
}

// A claimed user is valid only for the users and roles at which etcd accepted the token: it may have accepted
// it while authentication was off.
func TestClaimsDoNotOutliveAChange(t *testing.T) {
	e := &fake{confirm: func(context.Context, string) error { return nil }}
	g := guarded(t, e, nil)
	token := signed(`{"username":"ann"}`)
	if user, err := g.Caller(calling(t, "token", token)); user != "ann" || err != nil {
		t.Fatalf("%q, %v", user, err)
	}
	e.confirm = func(context.Context, string) error { return errors.New("away") }
	if user, err := g.Caller(calling(t, "token", token)); user != "ann" || err != nil {
		t.Errorf("before a change: %q, %v", user, err)
	}
	e.mu.Lock()
	e.revision++
	e.mu.Unlock()
	g.look(t.Context())
	if _, err := g.Caller(calling(t, "token", token)); status.Code(err) != codes.Unavailable {
		t.Errorf("after a change: %v", err)
	}
	if e.count("owner") != 1 {
		t.Errorf("asked for the token's user %d times, want once", e.count("owner"))
	}
}

// Unknown tokens wait for each other, but do not delay known tokens; each unknown token is looked up once.
func TestUnknownTokensAreBounded(t *testing.T) {
	e := &fake{confirm: func(context.Context, string) error { return nil }}
	g := guarded(t, e, func(c *Config) { c.MaxLookups = 1 })
	g.Learn(t.Context(), "ann", "x")
	for range 100 {
		if _, err := g.Caller(calling(t, "token", "stranger")); !errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken) {
			t.Fatal(err)
		}
	}
	if n := g.Status().Lookups; n != 1 {
		t.Errorf("%d lookups", n)
	}
	g.lookups <- struct{}{} // all places are taken
	ctx, cancel := context.WithCancel(calling(t, "token", "another stranger"))
	cancel()
	if _, err := g.Caller(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if user, err := g.Caller(calling(t, "token", "x")); user != "ann" || err != nil {
		t.Errorf("%q, %v", user, err)
	}
	if e.count("confirm") != 1 {
		t.Error("etcd was asked about an unknown token")
	}
}

func BenchmarkCaller(b *testing.B) {
	e := &fake{on: true, revision: 1, confirm: func(context.Context, string) error { return nil }}
	e.owner = func(context.Context, string, string) error { return nil }
	e.grants = func() (etcdroles.Grants, error) {
		return etcdroles.Grants{
			Users: map[string][]string{"ann": {"r"}}, Roles: map[string][]etcdroles.Permission{"r": {{Key: "/a/", RangeEnd: "/a0", Read: true}}},
		}, nil
	}
	cfg := Defaults()
	cfg.Etcd = e
	g, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	g.look(b.Context())
	token := "abcdefghijklmnop.12345"
	g.Learn(b.Context(), "ann", token)
	ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs("token", token))
	r := kv.Prefix("/a/")
	for b.Loop() {
		user, err := g.Caller(ctx)
		if err == nil {
			err = g.MayRead(user, r)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
