package authz_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/auth/authz"
	"github.com/shardwatch/shardwatch/internal/auth/policy"
	"github.com/shardwatch/shardwatch/internal/control/mapchange"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an Authorizer with a policy in a directory as Kubernetes mounts a Secret: the files are links through
// one link, which is replaced.
type rig struct {
	t      *testing.T
	a      *authz.Authorizer
	dir    string
	writes int
	signer jose.Signer
	keys   string
}

const tokens = "tokens: {issuer: https://us, audience: shardwatch, keys: jwks.json}\n"

// granting returns a policy in which any client may read a prefix, and ann is an administrator.
func granting(prefix, more string) string {
	return tokens + more + fmt.Sprintf(`
roles:
  r: [{verbs: [read, watch], prefixes: [%s]}]
  admin: [{verbs: [operator:write]}]
identities:
  - {match: [anonymous, authenticated], roles: [r]}
  - {match: ["sub:ann"], roles: [admin]}
`, prefix)
}

func start(t *testing.T, text string, change func(*authz.Config)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err == nil {
		r.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	r.keys = string(keys)
	r.mount(text, r.keys)
	for _, name := range []string{"policy.yaml", "jwks.json"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	c := authz.Defaults()
	c.File = filepath.Join(r.dir, "policy.yaml")
	if change != nil {
		change(&c)
	}
	if r.a, err = authz.New(c); err != nil {
		t.Fatal(err)
	}
	return r
}

// mount replaces the files, all at once.
func (r *rig) mount(text, keys string) {
	r.t.Helper()
	r.writes++
	name := fmt.Sprintf("..%d", r.writes)
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(r.dir, name), 0o700))
	must(os.WriteFile(filepath.Join(r.dir, name, "policy.yaml"), []byte(text), 0o600))
	must(os.WriteFile(filepath.Join(r.dir, name, "jwks.json"), []byte(keys), 0o600))
	must(os.Symlink(name, filepath.Join(r.dir, "..tmp")))
	must(os.Rename(filepath.Join(r.dir, "..tmp"), filepath.Join(r.dir, "..data")))
}

// connect returns the context of calls on a new connection, and a function that ends it.
func (r *rig) connect() (ctx context.Context, gone func()) {
	r.t.Helper()
	far, near := net.Pipe()
	conn, info, err := r.a.Credentials(insecure.NewCredentials()).Clone().ServerHandshake(near)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = far.Close() })
	return peer.NewContext(context.Background(), &peer.Peer{Addr: near.RemoteAddr(), AuthInfo: info}), func() { _ = conn.Close() }
}

// certified returns the context of calls on a new connection with a certificate.
func (r *rig) certified(name string) context.Context {
	r.t.Helper()
	_, near := net.Pipe()
	shown := credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: name}}}}}}
	_, told, err := r.a.Credentials(&shows{info: shown}).ServerHandshake(near)
	if err != nil {
		r.t.Fatal(err)
	}
	return peer.NewContext(r.t.Context(), &peer.Peer{Addr: near.RemoteAddr(), AuthInfo: told})
}

// token returns a token of subject that expires after a time.
func (r *rig) token(subject string, ends time.Duration) string {
	r.t.Helper()
	token, err := jwt.Signed(r.signer).Claims(jwt.Claims{
		Issuer: "https://us", Subject: subject, Audience: jwt.Audience{"shardwatch"}, Expiry: jwt.NewNumericDate(time.Now().Add(ends)),
	}).Serialize()
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

func with(ctx context.Context, pairs ...string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs(pairs...))
}

// caller returns the caller of ctx.
func (r *rig) caller(ctx context.Context) *authz.Caller {
	r.t.Helper()
	c, err := r.a.Caller(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func TestWithoutAPolicyEveryCallIsAllowed(t *testing.T) {
	var a *authz.Authorizer
	c, err := a.Caller(t.Context())
	if err != nil || c != nil {
		t.Fatal(c, err)
	}
	_, called := c.Call()
	_, listed := c.List(1 << 40)
	for _, err := range []error{
		c.May(t.Context(), policy.OperatorWrite, kv.Range{}), c.MaySome(t.Context(), policy.Write), c.Known(t.Context()), called, listed,
		c.Watch(), c.Create(), c.WaitCreate(t.Context()), a.Reload(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	c.WatchesEnded(1)
	if a.Changed() != nil || !c.Allows(policy.Write, kv.Range{}) || c.Name() != "" {
		t.Error("a nil Authorizer or Caller restricts or names a caller")
	}
	if s := a.Status(); s.Identities != 0 || len(s.Denied) != int(policy.Verbs) {
		t.Errorf("got %+v", s)
	}
}

func TestIdentityOfACaller(t *testing.T) {
	r := start(t, granting("/a/", ""), nil)
	ctx, gone := r.connect()
	defer gone()
	ann := r.token("ann", time.Hour)
	for name, c := range map[string]struct {
		pairs []string
		want  string // the name; after a "!", a part of the error
	}{
		"nobody":               {nil, "anonymous"},
		"a token":              {[]string{"authorization", "Bearer " + ann}, "sub:ann"},
		"small letters":        {[]string{"authorization", "bearer " + ann}, "sub:ann"},
		"where etcd's is":      {[]string{"token", ann}, "sub:ann"},
		"beside etcd's":        {[]string{"token", "abc.12", "authorization", "Bearer " + ann}, "sub:ann"},
		"no bearer":            {[]string{"authorization", "Basic " + ann}, "anonymous"},
		"etcd's":               {[]string{"token", "abc.12"}, "anonymous"},
		"expired":              {[]string{"authorization", "Bearer " + r.token("ann", -time.Hour)}, "!has expired"},
		"expired beside other": {[]string{"authorization", "Bearer " + r.token("ann", -time.Hour), "token", ann}, "!has expired"},
		"with another's end":   {[]string{"authorization", "Bearer " + ann[:len(ann)-10] + "AAAAAAAAAA"}, "!not signed"},
	} {
		caller, err := r.a.Caller(with(ctx, c.pairs...))
		if says, bad := strings.CutPrefix(c.want, "!"); bad {
			if !errors.As(err, new(*kv.UnauthenticatedError)) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || caller.Name() != c.want {
			t.Errorf("%s: %s, %v", name, caller.Name(), err)
		}
	}
	// A token without the issuer's claim is ignored: the certificate counts.
	certified := r.certified("ops")
	part := base64.RawURLEncoding.EncodeToString
	unsigned := part([]byte(`{"alg":"none"}`)) + "." + part([]byte(`{"iss":"https://us","sub":"ann","aud":"shardwatch","exp":9999999999}`)) + "."
	foreign, err := jwt.Signed(r.signer).Claims(jwt.Claims{Issuer: "https://them", Subject: "ann", Audience: jwt.Audience{"shardwatch"}}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{
		"": "cn:ops", unsigned: "cn:ops", foreign: "cn:ops", r.token(strings.Repeat("ann", 8<<10), time.Hour): "cn:ops", ann: "sub:ann",
	} {
		if caller, err := r.a.Caller(with(certified, "authorization", "Bearer "+token)); err != nil || caller.Name() != want {
			t.Errorf("with a certificate and %.200s: %s, %v, want %s", token, caller.Name(), err, want)
		}
	}
	if _, err := r.a.Caller(with(certified, "token", ann[:len(ann)-10]+"AAAAAAAAAA")); !errors.As(err, new(*kv.UnauthenticatedError)) {
		t.Errorf("with a certificate and a forged token: %v", err)
	}
	// A call without a handshake is refused.
	if _, err := r.a.Caller(t.Context()); !errors.As(err, new(*kv.UnauthenticatedError)) {
		t.Errorf("a call without a handshake: %v", err)
	}
	// Only etcd's own tokens are forwarded to etcd, not those of the policy's issuer.
	md, _ := metadata.FromIncomingContext(r.a.Forward(with(ctx, "token", "abc.12", "authorization", "Bearer "+ann)))
	if len(md.Get("authorization")) != 0 || len(md.Get("token")) != 1 {
		t.Errorf("forwarded: %v", md)
	}
}

// A token is refused after its expiry.
func TestATokenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, granting("/a/", ""), nil)
		ctx, gone := r.connect()
		defer gone()
		ctx = with(ctx, "authorization", "Bearer "+r.token("ann", time.Minute))
		r.caller(ctx)
		time.Sleep(2 * time.Minute)
		if _, err := r.a.Caller(ctx); !errors.As(err, new(*kv.UnauthenticatedError)) {
			t.Errorf("got %v", err)
		}
	})
}

// Rights follow the file; a file with mistakes changes nothing.
func TestReload(t *testing.T) {
	r := start(t, granting("/a/", ""), nil)
	ctx, gone := r.connect()
	defer gone()
	c := r.caller(ctx)
	may := func(key string) bool { return c.Allows(policy.Read, kv.Single(key)) }
	if !may("/a/1") || may("/b/1") {
		t.Fatal("the rights differ from the policy file")
	}
	changed := r.a.Changed()
	if err := r.a.Reload(); err != nil { // nothing has changed
		t.Fatal(err)
	}
	for name, bad := range map[string][2]string{
		"policy": {"roles: 1\n", r.keys},
		"keys":   {granting("/b/", ""), "{}"},
	} {
		r.mount(bad[0], bad[1])
		err := r.a.Reload()
		if err == nil || !strings.Contains(err.Error(), name) && !strings.Contains(err.Error(), "jwks.json") {
			t.Errorf("%s: %v", name, err)
		}
		if !may("/a/1") || may("/b/1") {
			t.Errorf("%s: the policy has changed", name)
		}
	}
	select {
	case <-changed:
		t.Error("notified without a change")
	default:
	}
	r.mount(granting("/b/", ""), r.keys)
	if err := r.a.Reload(); err != nil {
		t.Fatal(err)
	}
	<-changed
	if may("/a/1") || !may("/b/1") {
		t.Error("the old policy still applies to the caller")
	}
	r.mount(granting("/b/", ""), strings.Replace(r.keys, `"kid":"1"`, `"kid":"2"`, 1))
	if err := r.a.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.a.Caller(with(ctx, "authorization", "Bearer "+r.token("ann", time.Hour))); err == nil {
		t.Error("a token of a removed key is accepted")
	}
}

func TestLimits(t *testing.T) {
	r := start(t, granting("/a/", "limits: {connections: 2, streams: 2, watches: 2, list_bytes: 100}\n"), nil)
	limited := func(what string, err error) {
		t.Helper()
		var l *kv.LimitError
		if !errors.As(err, &l) || l.RetryAfter <= 0 || !strings.Contains(l.Limit, what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx, gone := r.connect()
	second, secondGone := r.connect()
	third, thirdGone := r.connect()
	defer thirdGone()
	c, same := r.caller(ctx), r.caller(second)
	_, err := r.a.Caller(third)
	limited("connections", err)
	if name := r.caller(with(third, "token", r.token("ann", time.Hour))).Name(); name != "sub:ann" {
		t.Errorf("got %s", name) // another identity has separate limits
	}
	done, err := c.Call()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := same.Call(); err != nil {
		t.Fatal(err)
	}
	_, err = c.Call()
	limited("streams", err)
	done()
	if _, err := same.Call(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(c.Watch(), same.Watch()); err != nil {
		t.Error(err)
	}
	limited("watches", c.Watch())
	c.WatchesEnded(2)
	if err := c.Watch(); err != nil {
		t.Error(err)
	}
	listed, err := c.List(1000) // a single list may be larger
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.List(1)
	limited("list_bytes", err)
	listed()
	if _, err = c.List(50); err != nil {
		t.Error(err)
	}
	gone()
	secondGone()
	secondGone()
	if _, err := r.a.Caller(third); err != nil {
		t.Errorf("after two connections have ended: %v", err)
	}
	s := r.a.Status()
	for _, l := range []string{"connections", "streams", "watches", "list_bytes"} {
		if s.Limited[l] != 1 {
			t.Errorf("%s: counted %d", l, s.Limited[l])
		}
	}
}

func TestCreatesPerSecond(t *testing.T) {
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
		var l *kv.LimitError
		if err := c.Create(); !errors.As(err, &l) || l.RetryAfter <= 0 {
			t.Fatalf("got %v", err)
		}
		began := time.Now()
		for range 5 { // etcd's clients wait
			if err := c.WaitCreate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took < 900*time.Millisecond || took > 1100*time.Millisecond {
			t.Errorf("five creates took %v, want about 1s", took)
		}
		// A reconnect does not reset the limits, and a reload applies at once.
		gone()
		ctx, gone = r.connect()
		defer gone()
		c = r.caller(ctx)
		if err := c.Create(); !errors.As(err, &l) {
			t.Errorf("after a reconnect: %v", err)
		}
		r.mount(granting("/a/", "limits: {creates_per_second: 0}\n"), r.keys)
		if err := r.a.Reload(); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if err := c.Create(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// An identity with many refusals waits for each refusal. Other identities and its allowed calls do not wait.
func TestRefusalsAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, tokens+"limits: {streams: 3}\nroles: {r: [{verbs: [read], prefixes: [/a/]}]}\nidentities: [{match: [\"sub:ann\", \"sub:bob\"], roles: [r]}]\n", func(c *authz.Config) { c.RefusalsPerSecond = 20 })
		ctx, gone := r.connect()
		defer func() { gone() }()
		as := func(subject string) *authz.Caller {
			return r.caller(with(ctx, "authorization", "Bearer "+r.token(subject, time.Hour)))
		}
		refused := func(ctx context.Context, c *authz.Caller, times int, want time.Duration) {
			t.Helper()
			began := time.Now()
			for range times {
				c.Refused(ctx)
			}
			if took := time.Since(began).Round(time.Millisecond); took != want {
				t.Errorf("%d refusals took %v, want %v", times, took, want)
			}
		}
		ann, bob := as("ann"), as("bob")
		refused(t.Context(), ann, 2, 0) // the burst: a tenth of a second's refusals
		refused(t.Context(), ann, 20, time.Second)
		refused(t.Context(), bob, 1, 0)
		gone()
		ctx, gone = r.connect()
		ann = as("ann")
		refused(t.Context(), ann, 1, 50*time.Millisecond) // a reconnect does not reset the rate

		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		refused(short, ann, 1, 10*time.Millisecond)
		refused(t.Context(), ann, 1, 40*time.Millisecond) // the abandoned call uses no token of the rate
		for range 3 {
			if _, err := ann.Call(); err != nil {
				t.Fatal(err)
			}
		}
		refused(t.Context(), ann, 10, 0) // at the limit of open calls
		if n := r.a.Status().Delayed; n != 23 {
			t.Errorf("%d refusals were delayed, want 23", n)
		}
		(*authz.Caller)(nil).Refused(t.Context())
	})
}

// The identities with separate counts are bounded; all other identities share one set of limits.
func TestIdentitiesAreBounded(t *testing.T) {
	r := start(t, granting("/a/", ""), func(c *authz.Config) { c.MaxIdentities = 2 })
	arrive := func(name string) (gone func()) {
		ctx, gone := r.connect()
		r.caller(with(ctx, "token", r.token(name, time.Hour)))
		return gone
	}
	gone := arrive("a")
	defer arrive("b")()
	defer arrive("c")()
	defer arrive("d")()
	if s := r.a.Status(); s.Identities != 2 || s.Shared != 2 {
		t.Errorf("%d identities have separate counts, %d share", s.Identities, s.Shared)
	}
	gone()
	defer arrive("e")() // a has left, and makes room
	if s := r.a.Status(); s.Identities != 2 || s.Shared != 2 {
		t.Errorf("%d identities have separate counts, %d share", s.Identities, s.Shared)
	}
}

// A connection can carry any number of identities one after the other, as with a proxy of the JSON API; the number
// of busy identities is bounded.
func TestIdentitiesOfOneConnectionMakeRoom(t *testing.T) {
	const atATime = 1000
	r := start(t, granting("/a/", "limits: {connections: 1}\n"), nil)
	ctx, gone := r.connect()
	defer gone()
	call := func(name string) (func(), error) {
		c, err := r.a.Caller(with(ctx, "token", r.token(name, time.Hour)))
		if err != nil {
			return nil, err
		}
		return c.Call()
	}
	for i := range atATime + 1 {
		done, err := call(fmt.Sprintf("early%d", i))
		if err != nil {
			t.Fatalf("after %d identities: %v", i, err)
		}
		done()
	}
	for i := range atATime {
		if _, err := call(fmt.Sprintf("busy%d", i)); err != nil {
			t.Fatalf("with %d busy identities: %v", i, err)
		}
	}
	if _, err := call("more"); !errors.As(err, new(*kv.LimitError)) {
		t.Errorf("with more than %d busy identities: %v", atATime, err)
	}
}

// Refusals are recorded with identity and request; suppressed ones are counted.
func TestAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		audit := authz.NewAudit(slog.New(slog.NewJSONHandler(&out, nil)))
		r := start(t, granting("/a/", ""), func(c *authz.Config) { c.Audit = audit })
		ctx, gone := r.connect()
		defer gone()
		c := r.caller(ctx)
		const flood = 1000
		for range flood {
			if err := c.May(ctx, policy.Write, kv.Prefix("/b/")); !errors.As(err, new(*kv.DeniedError)) {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		secret := r.token("ann", -time.Hour)
		_, err := r.a.Caller(with(ctx, "authorization", "Bearer "+secret))
		if err == nil {
			t.Fatal("an expired token is accepted")
		}
		audit.Admin(ctx, "sub:ann", "/Admin/Do", `{"shard":"1"}`, nil)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) < 100 || len(lines) > 110 {
			t.Errorf("%d lines for %d refusals", len(lines), flood)
		}
		for i, want := range map[int][]string{
			0:              {`"refused"`, `"identity":"anonymous"`, `does not let anonymous write [\"/b/\", \"/b0\")`, `"client":"pipe"`},
			len(lines) - 2: {"has expired", fmt.Sprintf(`"suppressed":%d`, flood-len(lines)+2)},
			len(lines) - 1: {`"administration"`, `"identity":"sub:ann"`, `"method":"/Admin/Do"`, `"result":"done"`},
		} {
			for _, w := range want {
				if !strings.Contains(lines[i], w) {
					t.Errorf("line %d: %s: want %s", i, lines[i], w)
				}
			}
		}
		if strings.Contains(out.String(), secret) {
			t.Error("a token is in the audit log")
		}
		written, suppressed := audit.Figures()
		if written != int64(len(lines)) || written+suppressed != flood+2 {
			t.Errorf("%d written, %d suppressed", written, suppressed)
		}
	})
}

// Without a policy a certificate gives no rights, but the audit log has its name.
func TestAuditNamesTheIdentityOfTheCertificate(t *testing.T) {
	var out bytes.Buffer
	shown := credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "ops"}}}}}}
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{}, AuthInfo: shown})
	audit := authz.NewAudit(slog.New(slog.NewTextHandler(&out, nil)))
	audit.Admin(ctx, "", "/Admin/Do", "", nil)
	audit.Refused(ctx, "", &kv.DeniedError{Detail: "not you"})
	if got := strings.Count(out.String(), "identity=cn:ops "); got != 2 {
		t.Error(out.String())
	}
}

// The audit log has the address of the connection, and ignores the client's claims about its address.
func TestAuditNamesTheAddressOfTheConnection(t *testing.T) {
	from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7}
	for _, told := range [][]string{nil, {"192.0.2.2"}} {
		var out bytes.Buffer
		ctx := peer.NewContext(metadata.NewIncomingContext(t.Context(), metadata.MD{"x-forwarded-for": told}), &peer.Peer{Addr: from})
		authz.NewAudit(slog.New(slog.NewTextHandler(&out, nil))).Admin(ctx, "sub:ann", "/Admin/Do", "", nil)
		if !strings.Contains(out.String(), " client=192.0.2.1:7 ") {
			t.Errorf("%q: %s", told, out.String())
		}
	}
}

// The recorded result of a refusal is its reason, not gRPC's format.
func TestAuditRecordsResultsInPlainWords(t *testing.T) {
	for want, err := range map[string]error{
		`code=OK result=done`: nil,
		`code=FailedPrecondition result="nodes: no node would be left to hold shards"`: wire.Status(&mapchange.RefusedError{Field: "nodes", Reason: "no node would be left to hold shards"}),
		`code=PermissionDenied result="not you"`:                                       wire.Status(&kv.DeniedError{Detail: "not you"}),
		`code=Canceled result="context canceled"`:                                      context.Canceled,
		`code=Internal result="Internal: it broke"`:                                    status.Error(codes.Internal, "it broke"),
	} {
		var out bytes.Buffer
		authz.NewAudit(slog.New(slog.NewTextHandler(&out, nil))).Admin(t.Context(), "ann", "/Admin/Do", "", err)
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %swant %s", out.String(), want)
		}
	}
}

func TestAnInvalidFilePreventsTheStart(t *testing.T) {
	c := authz.Defaults()
	c.File = filepath.Join(t.TempDir(), "policy.yaml")
	if _, err := authz.New(c); err == nil || !strings.Contains(err.Error(), "policy.yaml: no such file") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(c.File, []byte(granting("/a/", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := authz.Check(c.File); err == nil || !strings.Contains(err.Error(), "policy.yaml: tokens.keys: ") || !strings.Contains(err.Error(), "jwks.json: no such file") {
		t.Errorf("got %v", err)
	}
}

// Metrics, the status page and profiles need operator:read in the current policy, by a certificate or a token.
func TestHTTPNeedsOperatorRead(t *testing.T) {
	may := func(name string) string {
		return tokens + fmt.Sprintf("roles: {r: [{verbs: [operator:read]}], w: [{verbs: [operator:write]}]}\nidentities: [{match: [%q], roles: [r]}, {match: [\"cn:robot\"], roles: [w]}]\n", name)
	}
	r := start(t, may("cn:prometheus"), nil)
	request := func(name, token string) *http.Request {
		q := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
		if name != "" {
			q.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: name}}}}}
		}
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		return q
	}
	check := func(what string, q *http.Request, want error) {
		t.Helper()
		if err := r.a.Web(q); (err == nil) != (want == nil) || want != nil && fmt.Sprintf("%T", err) != fmt.Sprintf("%T", want) {
			t.Errorf("%s: %v, want %T", what, err, want)
		}
	}
	denied, unknown := &kv.DeniedError{}, &kv.UnauthenticatedError{}
	check("the name", request("prometheus", ""), nil)
	check("another name", request("web", ""), denied)
	check("an operator without operator:read", request("robot", ""), denied)
	check("no name", request("", ""), denied)
	shown := request("prometheus", "")
	shown.TLS.PeerCertificates, shown.TLS.VerifiedChains = shown.TLS.VerifiedChains[0], nil
	check("a certificate that was not verified", shown, denied)
	check("a token that has expired", request("prometheus", r.token("prometheus", -time.Hour)), unknown)
	r.mount(may("sub:prometheus"), r.keys)
	if err := r.a.Reload(); err != nil {
		t.Fatal(err)
	}
	check("the name of before", request("prometheus", ""), denied)
	check("a token", request("", r.token("prometheus", time.Hour)), nil)
	if s := r.a.Status(); s.Unauthenticated != 1 || s.Denied["operator:read"] != 5 {
		t.Errorf("counted %+v", s)
	}
}
