package authz_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// shows is credentials whose handshake returns a result that a test chooses.
type shows struct {
	credentials.TransportCredentials
	info credentials.AuthInfo
	err  error
}

func (s *shows) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return raw, s.info, s.err
}

// A client is identified only by a verified certificate.
func TestAnUnverifiedCertificateNamesNoIdentity(t *testing.T) {
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: "ops"}}
	r := start(t, granting("/a/", ""), nil)
	for what, c := range map[string]struct {
		info credentials.AuthInfo
		want string
	}{
		"verified":     {credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}}, "cn:ops"},
		"shown":        {credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}}, "anonymous"},
		"no chain":     {credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}}, "anonymous"},
		"without info": {nil, "anonymous"},
	} {
		shown := authz.ShownBy(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: c.info}))
		if shown != strings.TrimPrefix(c.want, "anonymous") {
			t.Errorf("%s: shown by %q", what, shown)
		}
		_, near := net.Pipe()
		_, told, err := r.a.Credentials(&shows{info: c.info}).ServerHandshake(near)
		if err != nil {
			t.Fatal(err)
		}
		caller, err := r.a.Caller(peer.NewContext(t.Context(), &peer.Peer{Addr: near.RemoteAddr(), AuthInfo: told}))
		if err != nil || caller.Name() != c.want {
			t.Errorf("%s: %s, %v", what, caller.Name(), err)
		}
	}
	broken := errors.New("no certificate")
	if _, info, err := r.a.Credentials(&shows{err: broken}).ServerHandshake(nil); !errors.Is(err, broken) || info != nil {
		t.Errorf("after a handshake that failed: %v, %v", info, err)
	}
	if inner := insecure.NewCredentials(); (*authz.Authorizer)(nil).Credentials(inner) != inner {
		t.Error("Credentials changes the credentials without a policy")
	}
}

// An Authorizer refuses calls of connections that it did not accept, or that have ended.
func TestACallOfAnotherOrOfNoConnectionIsRefused(t *testing.T) {
	r, other := start(t, granting("/a/", ""), nil), start(t, granting("/a/", ""), nil)
	ctx, gone := other.connect()
	defer gone()
	refused := func(what string, ctx context.Context, says string) {
		t.Helper()
		if _, err := r.a.Caller(ctx); !errors.As(err, new(*kv.UnauthenticatedError)) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("of another port", ctx, "did not arrive through the client port")
	refused("of no handshake", peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{}}), "did not arrive through the client port")
	ctx, gone = r.connect()
	gone()
	refused("of a connection that has ended", ctx, "has ended")
	if s := r.a.Status(); s.Unauthenticated != 0 || s.Identities != 0 {
		t.Errorf("%+v", s)
	}
	ctx, gone = r.connect()
	defer gone()
	refused("of a token that has ended", with(ctx, "token", r.token("ann", -time.Hour)), "has expired")
	if s := r.a.Status(); s.Unauthenticated != 1 {
		t.Errorf("%d tokens were refused, want 1", s.Unauthenticated)
	}
	// Several callers use one connection, one after the other.
	for range 2 {
		for token, want := range map[string]string{r.token("ann", time.Hour): "sub:ann", r.token("bob", time.Hour): "sub:bob"} {
			if c := r.caller(with(ctx, "token", token)); c.Name() != want {
				t.Errorf("%s is taken for %s", want, c.Name())
			}
		}
	}
}

// A policy without tokens accepts none, and forwards them to etcd unchanged.
func TestTokensAreForTheirIssuer(t *testing.T) {
	r := start(t, granting("/a/", ""), nil)
	ctx, gone := r.connect()
	defer gone()
	ours := r.token("ann", time.Hour)
	both := with(ctx, "token", ours, "authorization", "Bearer "+ours, "other", "x")
	left := func(a *authz.Authorizer, ctx context.Context) int {
		md, _ := metadata.FromIncomingContext(a.Forward(ctx))
		return len(md)
	}
	if !r.a.TakesTokens() || left(r.a, both) != 1 || left(r.a, with(ctx, "token", "abc.12")) != 1 {
		t.Errorf("takes tokens: %v, %d of its tokens are forwarded", r.a.TakesTokens(), left(r.a, both)-1)
	}
	if got := r.a.Files(); len(got) != 2 || !strings.HasSuffix(got[0], "policy.yaml") || !strings.HasSuffix(got[1], "jwks.json") {
		t.Errorf("files: %v", got)
	}
	r.mount(strings.Replace(strings.TrimPrefix(granting("/a/", ""), tokens), "sub:ann", "cn:ann", 1), "")
	if err := r.a.Reload(); err != nil {
		t.Fatal(err)
	}
	if r.a.TakesTokens() || left(r.a, both) != 3 || len(r.a.Files()) != 1 || r.caller(both).Name() != "anonymous" {
		t.Errorf("a policy without tokens: takes tokens %v, %d forwarded, files %v", r.a.TakesTokens(), left(r.a, both), r.a.Files())
	}
	var none *authz.Authorizer
	if none.TakesTokens() || none.Files() != nil || left(none, both) != 3 {
		t.Error("without a policy tokens are accepted, or not forwarded")
	}
	if p, err := authz.Check(r.a.Files()[0]); err != nil || p == nil {
		t.Errorf("checked: %v", err)
	}
}

// New keys are a change of the policy, even if the policy file is unchanged.
func TestNewKeysAreAChange(t *testing.T) {
	r := start(t, granting("/a/", ""), nil)
	changed := r.a.Changed()
	ctx, gone := r.connect()
	defer gone()
	ctx = with(ctx, "token", r.token("ann", time.Hour))
	if c := r.caller(ctx); c.Name() != "sub:ann" || c != r.caller(ctx) {
		t.Errorf("%s is looked up for each call", c.Name())
	}
	r.mount(granting("/a/", ""), strings.Replace(r.keys, `"kid":"1"`, `"kid":"2"`, 1))
	if err := r.a.Reload(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("not notified of the changed keys")
	}
	if _, err := r.a.Caller(ctx); !errors.As(err, new(*kv.UnauthenticatedError)) {
		t.Errorf("a caller with a token of a removed key: %v", err)
	}
	select {
	case <-r.a.Changed():
		t.Error("the new channel is already closed")
	default:
	}
}

// Denials are counted by verb, and reported in plain words.
func TestDenialsAreCountedByVerb(t *testing.T) {
	r := start(t, granting("/a/", ""), nil)
	ctx, gone := r.connect()
	defer gone()
	c := r.caller(ctx)
	for i, err := range []error{c.May(ctx, policy.Read, kv.Prefix("/a/")), c.MaySome(ctx, policy.Read), c.MaySome(ctx, policy.Watch), c.Known(ctx)} {
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	for want, err := range map[string]error{
		"anonymous use operator:write": c.May(ctx, policy.OperatorWrite, kv.Range{}),
		"anonymous write anything":     c.MaySome(ctx, policy.Write),
		"anonymous read [":             c.May(ctx, policy.Read, kv.Prefix("/b/")),
	} {
		if !errors.As(err, new(*kv.DeniedError)) || !strings.Contains(err.Error(), "does not let "+want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	r.mount(strings.Replace(granting("/a/", ""), "[anonymous, authenticated]", `["sub:bob"]`, 1), r.keys)
	if err := r.a.Reload(); err != nil {
		t.Fatal(err)
	}
	if err := c.Known(ctx); !errors.As(err, new(*kv.DeniedError)) || !strings.Contains(err.Error(), "do anything here") {
		t.Errorf("a caller that the policy does not name: %v", err)
	}
	if got := r.a.Status().Denied; got["operator:write"] != 1 || got["write"] != 1 || got["read"] != 2 || got["watch"] != 0 {
		t.Errorf("counted %v", got)
	}
}

// A refused create does not delay the next create.
func TestARefusedCreateCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, granting("/a/", "limits: {creates_per_second: 5}\n"), nil)
		ctx, gone := r.connect()
		defer gone()
		c := r.caller(ctx)
		for range 5 {
			if err := c.Create(); err != nil {
				t.Fatal(err)
			}
		}
		for range 20 {
			var l *kv.LimitError
			if err := c.Create(); !errors.As(err, &l) || l.RetryAfter < time.Second || l.Max != 5 {
				t.Fatalf("%+v", err)
			}
		}
		time.Sleep(200 * time.Millisecond)
		if err := c.Create(); err != nil {
			t.Errorf("when the next create is due: %v", err)
		}
		if got := r.a.Status().Limited["creates_per_second"]; got != 20 {
			t.Errorf("counted %d", got)
		}
		gave, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.WaitCreate(gave); err == nil {
			t.Error("WaitCreate succeeds with a cancelled context")
		}
		// A changed limit applies at once, in both directions.
		r.mount(granting("/a/", "limits: {creates_per_second: 2}\n"), r.keys)
		if err := r.a.Reload(); err != nil {
			t.Fatal(err)
		}
		made := 0
		for c.Create() == nil && made < 10 {
			made++
		}
		if made != 2 {
			t.Errorf("%d of 2 a second", made)
		}
	})
}

// Watches that have not begun do not end, and limits are reached exactly.
func TestLimitsAreExact(t *testing.T) {
	r := start(t, granting("/a/", "limits: {watches: 3, list_bytes: 100}\n"), nil)
	ctx, gone := r.connect()
	defer gone()
	c := r.caller(ctx)
	c.WatchesEnded(0)
	for i := range 3 {
		if err := c.Watch(); err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
	}
	c.WatchesEnded(0)
	c.WatchesEnded(-1)
	var l *kv.LimitError
	if err := c.Watch(); !errors.As(err, &l) || l.Max != 3 || l.RetryAfter < time.Second {
		t.Errorf("a fourth watch: %v", err)
	}
	done, err := c.List(60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.List(41); !errors.As(err, &l) || l.Max != 100 {
		t.Errorf("101 bytes: %v", err)
	}
	more, err := c.List(40)
	if err != nil {
		t.Errorf("exactly 100 bytes: %v", err)
	}
	done()
	if _, err := c.List(61); !errors.As(err, &l) {
		t.Errorf("101 bytes after one list has ended: %v", err)
	}
	more()
	if _, err := c.List(100); err != nil {
		t.Errorf("after both lists have ended: %v", err)
	}
}

// A refused connection over the limit holds nothing: its identity makes room when the
// other connections have ended.
func TestARefusedConnectionIsForgotten(t *testing.T) {
	r := start(t, granting("/a/", "limits: {connections: 1}\n"), func(c *authz.Config) { c.MaxIdentities = 1 })
	arrive := func(name string) (func(), error) {
		ctx, gone := r.connect()
		_, err := r.a.Caller(with(ctx, "token", r.token(name, time.Hour)))
		return gone, err
	}
	first, err := arrive("a")
	if err != nil {
		t.Fatal(err)
	}
	second, err := arrive("a")
	var l *kv.LimitError
	if !errors.As(err, &l) || l.Max != 1 {
		t.Errorf("a second connection: %v", err)
	}
	first()
	second()
	third, err := arrive("b")
	if err != nil {
		t.Fatal(err)
	}
	defer third()
	if s := r.a.Status(); s.Identities != 1 || s.Shared != 0 {
		t.Errorf("%d identities have separate counts, %d share", s.Identities, s.Shared)
	}
}

// An identity that was dropped from one connection may use another one.
func TestADroppedIdentityMayUseAnotherConnection(t *testing.T) {
	const atATime = 1000
	r := start(t, granting("/a/", "limits: {connections: 1}\n"), nil)
	ctx, gone := r.connect()
	defer gone()
	enter := func(ctx context.Context, name string) *authz.Caller {
		return r.caller(with(ctx, "token", r.token(name, time.Hour)))
	}
	enter(ctx, "early")
	for i := range atATime {
		if _, err := enter(ctx, fmt.Sprintf("busy%d", i)).Call(); err != nil {
			t.Fatal(err)
		}
	}
	second, secondGone := r.connect()
	defer secondGone()
	if c := enter(second, "early"); c.Name() != "sub:early" {
		t.Errorf("got %s", c.Name())
	}
}

// Without an audit log nothing is written, and other errors are not written as refusals. The number of
// suppressed records counts from the last written record.
func TestAuditWritesRefusalsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *authz.Audit
		none.Admin(t.Context(), "ann", "/Admin/Do", "", nil)
		none.Refused(t.Context(), "ann", &kv.DeniedError{})
		if written, dropped := none.Figures(); written+dropped != 0 {
			t.Error("a nil audit log counts records")
		}
		var out bytes.Buffer
		audit := authz.NewAudit(slog.New(slog.NewTextHandler(&out, nil)))
		for _, err := range []error{nil, errors.New("broken"), context.Canceled, &kv.LimitError{}} {
			audit.Refused(t.Context(), "ann", err)
		}
		if out.Len() > 0 {
			t.Errorf("written: %s", &out)
		}
		audit.Refused(t.Context(), "ann", &kv.UnauthenticatedError{Detail: "no token"})
		for range 200 {
			audit.Refused(t.Context(), "ann", &kv.DeniedError{Detail: "no"})
		}
		time.Sleep(time.Minute)
		for range 2 {
			audit.Refused(t.Context(), "ann", &kv.DeniedError{Detail: "no"})
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		last := lines[len(lines)-2:]
		if len(lines) != 102 || !strings.Contains(lines[0], "no token") || !strings.HasSuffix(last[0], "suppressed=101") || !strings.HasSuffix(last[1], "suppressed=0") {
			t.Errorf("%d lines, the last: %q", len(lines), last)
		}
		if written, dropped := audit.Figures(); written != 102 || dropped != 101 {
			t.Errorf("%d written, %d suppressed", written, dropped)
		}
		if slices.ContainsFunc(lines, func(l string) bool { return !strings.Contains(l, `client=""`) }) {
			t.Error("a call without a peer has a client")
		}
	})
}
