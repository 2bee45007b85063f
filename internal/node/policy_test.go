package node_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// policed is a node with a policy, whose clients have certificates or tokens.
type policed struct {
	*cluster
	ca     *certtest.CA
	signer jose.Signer
	file   string
	audit  logs
}

const policyHead = `
tokens: {issuer: https://us, audience: shardwatch, keys: jwks.json}
roles:
  web: [{verbs: [read, watch, write], prefixes: [/web/]}]
  reader: [{verbs: [read], all: true}]
  operator: [{verbs: [operator:read, operator:write]}]
identities:
  - {match: ["cn:ops"], roles: [operator]}
  - {match: ["uri:spiffe://prod/reader"], roles: [reader]}
`

const webMay = `  - {match: ["cn:web", "sub:web"], roles: [web], limits: {watches: 3}}
`

func startPoliced(t *testing.T, text string, changes ...func(*node.Config)) *policed {
	t.Helper()
	p := newPoliced(t, text, changes...)
	p.etcd = etcdtest.Start(t)
	p.nodes[0].start()
	p.ready()
	return p
}

func newPoliced(t *testing.T, text string, changes ...func(*node.Config)) *policed {
	t.Helper()
	p := &policed{ca: certtest.NewCA(t, "test")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err == nil {
		p.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p.file = filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(filepath.Join(dir, "jwks.json"), keys, 0o600); err != nil {
		t.Fatal(err)
	}
	p.write(t, text)
	p.cluster = newCluster(t, 1, 1, func(c *node.Config) {
		shards(2, 1)(c)
		c.Policy, c.Audit = p.file, slog.New(slog.NewTextHandler(&p.audit, nil))
		c.ClientTLS = &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{p.ca.Issue(t, "node").Pair},
			ClientCAs: certtest.Pool(p.ca), ClientAuth: tls.VerifyClientCertIfGiven,
		}
		for _, change := range changes {
			change(c)
		}
	})
	return p
}

func (p *policed) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// who identifies a caller.
type who struct {
	name  string   // of the certificate; "": none
	names []string // further names
	token string
	// impatient: reads are tried once.
	impatient bool
}

func (p *policed) tls(w who) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: certtest.Pool(p.ca)}
	if w.name != "" {
		c.Certificates = []tls.Certificate{p.ca.Issue(p.t, w.name, w.names...).Pair}
	}
	return c
}

// show returns a callback that presents the certificate whatever CAs the server requests.
func show(pair tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
}

func (p *policed) token(subject string, ends time.Duration) string {
	p.t.Helper()
	token, err := jwt.Signed(p.signer).Claims(jwt.Claims{
		Issuer: "https://us", Subject: subject, Audience: jwt.Audience{"shardwatch"}, Expiry: jwt.NewNumericDate(time.Now().Add(ends)),
	}).Serialize()
	if err != nil {
		p.t.Fatal(err)
	}
	return token
}

func (p *policed) native(w who) *client.Client {
	p.t.Helper()
	c := client.Config{Endpoints: []string{p.nodes[0].clients}, TLS: p.tls(w), RetryFor: patience, Silence: patience} // there is no other node
	if w.token != "" {
		c.Token = func() (string, error) { return w.token, nil }
	}
	if w.impatient {
		c.RetryFor = time.Millisecond
	}
	cl, err := client.New(c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cl.Close() })
	return cl
}

func (p *policed) etcdV3(w who) *clientv3.Client {
	p.t.Helper()
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + p.nodes[0].clients}, TLS: p.tls(w), Token: w.token, DialTimeout: patience, Logger: zap.NewNop(),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// beginWatch begins a watch of a prefix and ends it, and returns the refusal. It does
// not use clientv3's watcher, which may block forever if it is closed while it receives
// a refusal (v3.7.3, watch.go: addSubstream closes a substream without run).
func beginWatch(ctx context.Context, cli *clientv3.Client, prefix string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := etcdserverpb.NewWatchClient(cli.ActiveConnection()).Watch(ctx)
	if err != nil {
		return err
	}
	create := &etcdserverpb.WatchCreateRequest{Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix))}
	if err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	m, err := stream.Recv()
	if err == nil && m.GetCanceled() {
		err = errors.New(m.GetCancelReason())
	}
	return err
}

// Both APIs refuse what the policy does not allow, to every caller, and serve
// what it allows.
func TestThePolicyHoldsAtBothAPIs(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, policyHead+webMay)
	if _, err := p.etcd.Client().Put(within(t), "/other/1", "x"); err != nil {
		t.Fatal(err)
	}
	foreign := certtest.NewCA(t, "another").Issue(t, "web")
	if _, err := tls.Dial("tcp", p.nodes[0].clients, &tls.Config{RootCAs: certtest.Pool(p.ca), GetClientCertificate: show(foreign.Pair), MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("a certificate of another CA is accepted")
	}
	type able struct{ read, readAll, watch, watchAll, write, admin bool }
	for name, c := range map[string]struct {
		who
		able
		unknown bool
	}{
		"a certificate":      {who: who{name: "web"}, able: able{read: true, watch: true, write: true}},
		"a token":            {who: who{token: p.token("web", time.Hour)}, able: able{read: true, watch: true, write: true}},
		"a token counts":     {who: who{name: "ops", token: p.token("web", time.Hour)}, able: able{read: true, watch: true, write: true}},
		"a URI":              {who: who{name: "x", names: []string{"spiffe://prod/reader"}}, able: able{read: true, readAll: true}},
		"an administrator":   {who: who{name: "ops"}, able: able{admin: true}},
		"another name":       {who: who{name: "webb"}},
		"nobody":             {},
		"a token of another": {who: who{token: p.token("ann", time.Hour)}},
		"an expired token":   {who: who{token: p.token("web", -time.Hour), impatient: true}, unknown: true},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			ctx := within(t)
			cl, cli := p.native(c.who), p.etcdV3(c.who)
			verdict := func(what string, err error, allowed bool) {
				t.Helper()
				denied := errors.Is(err, client.ErrDenied) || err != nil && strings.Contains(err.Error(), "etcdserver: permission denied: the policy does not let ")
				unknown := err != nil && strings.Contains(err.Error(), "the token has expired")
				if allowed && err != nil || !allowed && !c.unknown && !denied || c.unknown && !unknown {
					t.Errorf("%s: %v", what, err)
				}
			}
			_, err := cl.Get(ctx, "/web/1")
			verdict("get", err, c.read)
			_, err = cli.Get(ctx, "/web/1")
			verdict("etcd: get", err, c.read)
			var listed error
			for _, err := range cl.List(ctx, client.Range{}).All() {
				listed = err
			}
			verdict("list of all", listed, c.readAll)
			_, err = cli.Get(ctx, "\x00", clientv3.WithFromKey())
			verdict("etcd: list of all", err, c.readAll)

			watch := func(r client.Range) error {
				w := cl.Watch(ctx, r, client.WithState())
				defer w.Close()
				if c.unknown { // the watch waits for another token
					testkit.Succeeds(t, "the watch is refused", func() error {
						if w.Stats().LastError == nil {
							return errors.New("the watch has no error")
						}
						return nil
					})
					return w.Stats().LastError
				}
				_, err := w.Next(ctx)
				return err
			}
			verdict("watch", watch(client.Prefix("/web/")), c.watch)
			verdict("watch of all", watch(client.Range{}), c.watchAll)
			etcdWatch := func(key string) error { return beginWatch(ctx, cli, key) }
			if !c.unknown { // etcd's client would retry forever
				verdict("etcd: watch", etcdWatch("/web/"), c.watch)
				verdict("etcd: watch of all", etcdWatch("/"), c.watchAll)
			}

			_, err = cl.Put(ctx, "/web/2", []byte("x"))
			verdict("put", err, c.write)
			_, _, err = cl.Delete(ctx, client.Prefix("/"))
			verdict("delete all", err, false)
			_, err = cli.Put(ctx, "/web/2", "x")
			verdict("etcd: put", err, c.write)
			_, err = cli.Put(ctx, "/other/1", "x")
			verdict("etcd: put elsewhere", err, false)
			_, err = cli.Delete(ctx, "/web/2")
			verdict("etcd: delete", err, c.write)
			_, err = cli.Txn(ctx).If(clientv3.Compare(clientv3.Version("/web/3"), "=", 0)).Then(clientv3.OpPut("/web/3", "x")).Else(clientv3.OpGet("/web/3")).Commit()
			verdict("etcd: txn", err, c.write)
			for what, txn := range map[string]clientv3.Txn{
				"compare": cli.Txn(ctx).If(clientv3.Compare(clientv3.Version("/other/1"), "=", 0)),
				"get":     cli.Txn(ctx).Else(clientv3.OpGet("/other/1")),
				"put":     cli.Txn(ctx).Then(clientv3.OpPut("/other/1", "x")),
				"nested":  cli.Txn(ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpDelete("/web/", clientv3.WithFromKey())}, nil)),
			} {
				_, err := txn.Commit()
				verdict("etcd: txn elsewhere: "+what, err, c.readAll && (what == "get" || what == "compare"))
			}
			lease, err := cli.Grant(ctx, 60)
			verdict("etcd: lease", err, c.write)
			if err == nil {
				_, err = cli.Put(ctx, "/web/leased", "x", clientv3.WithLease(lease.ID))
				verdict("etcd: put with lease", err, true)
				_, err = cli.Revoke(ctx, lease.ID)
				verdict("etcd: revoke", err, true)
			}
			_, err = cli.Compact(ctx, 1)
			if c.admin && errors.Is(err, rpctypes.ErrCompacted) {
				err = nil
			}
			verdict("etcd: compact", err, c.admin)
			_, err = cli.AlarmList(ctx)
			verdict("etcd: alarms", err, c.admin)
			_, err = cli.Leases(ctx)
			verdict("etcd: leases", err, c.admin)

			_, err = admin.New(cl).ClusterStatus(ctx, time.Second)
			verdict("status of the cluster", err, c.admin)
		})
	}
	log := p.audit.tail(1 << 20)
	for _, want := range []string{"msg=refused", "audit.identity=", "audit.client=127.0.0.1:", "the policy does not let "} { // the log drops part of a flood
		if !strings.Contains(log, want) {
			t.Errorf("the audit log does not contain %q", want)
		}
	}
}

// Changes by an administrator through etcd's API are logged, without passwords. Reads are not, and refusals
// are logged as refusals.
func TestAdministrationThroughEtcdsAPIIsLogged(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, policyHead+webMay)
	ctx := within(t)
	ops, web := p.etcdV3(who{name: "ops"}), p.etcdV3(who{name: "web"})
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: p.tls(who{name: "ops"}), DisableKeepAlives: true}}
	inJSON := func(path, body string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+p.nodes[0].clients+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		answer, err := browser.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	}
	_, putErr := web.Put(ctx, "/web/1", "x")
	_, alarmsErr := ops.AlarmList(ctx)
	_, usersErr := ops.UserList(ctx)
	_, leasesErr := ops.Leases(ctx)
	for what, err := range map[string]error{"put": putErr, "alarms": alarmsErr, "users": usersErr, "leases": leasesErr} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := web.UserAdd(ctx, "eve", "hunter2"); err == nil {
		t.Error("a client without the right adds a user")
	}
	if p.audit.count("msg=administration") != 0 || p.audit.count("msg=refused", "audit.identity=cn:web") == 0 {
		t.Errorf("audit log: %s", p.audit.tail(10_000))
	}
	for _, c := range []struct {
		do            func() error
		method, tells string
	}{
		{func() error { _, err := ops.UserAdd(ctx, "ann", "hunter2"); return err }, "Auth/UserAdd", "ann"},
		{func() error { _, err := ops.UserChangePassword(ctx, "ann", "hunter2"); return err }, "Auth/UserChangePassword", "ann"},
		{func() error { return inJSON("/v3/auth/user/add", `{"name":"bob","password":"hunter2"}`) }, "Auth/UserAdd", "bob"},
		{func() error { _, err := ops.RoleAdd(ctx, "r1"); return err }, "Auth/RoleAdd", "r1"},
		{func() error {
			_, err := ops.AlarmDisarm(ctx, &clientv3.AlarmMember{Alarm: etcdserverpb.AlarmType_NOSPACE, MemberID: 7})
			return err
		}, "Maintenance/Alarm", "DEACTIVATE"},
		{func() error { _, err := ops.Compact(ctx, 2); return err }, "KV/Compact", "revision"},
	} {
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", c.method, err)
		}
		if p.audit.count("msg=administration", "audit.identity=cn:ops", "audit.client=127.0.0.1:", c.method, c.tells, "audit.code=OK") != 1 {
			t.Errorf("%s of %s is not logged once: %s", c.method, c.tells, p.audit.tail(10_000))
		}
	}
	if err := inJSON("/v3/kv/compaction", `{"revision":"1000000"}`); err == nil {
		t.Error("a compaction at a future revision succeeds")
	}
	if p.audit.count("msg=administration", "KV/Compact", "1000000", "audit.code=OutOfRange") != 1 {
		t.Errorf("the failed compaction is not logged once: %s", p.audit.tail(10_000))
	}
	if p.audit.count("hunter2") != 0 {
		t.Errorf("a password is logged: %s", p.audit.tail(10_000))
	}
}

// A lease can be revoked by a caller that may write all of its keys.
func TestALeaseOfAnothersKeysIsNotEnded(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, policyHead+webMay)
	etcd := p.etcd.Client()
	lease, err := etcd.Grant(within(t), 600)
	if err == nil {
		_, err = etcd.Put(within(t), "/other/1", "x", clientv3.WithLease(lease.ID))
	}
	if err != nil {
		t.Fatal(err)
	}
	web := p.etcdV3(who{name: "web"})
	const denied = "permission denied: the policy does not let cn:web %s all keys of the lease"
	if _, err := web.Revoke(within(t), lease.ID); err == nil || !strings.Contains(err.Error(), fmt.Sprintf(denied, "write")) {
		t.Errorf("revoked: %v", err)
	}
	if _, err := web.TimeToLive(within(t), lease.ID, clientv3.WithAttachedKeys()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf(denied, "read")) {
		t.Errorf("shown: %v", err)
	}
	if p.audit.count("/other/1") != 2 {
		t.Errorf("the audit log does not contain the key: %s", p.audit.tail(10_000))
	}
	if _, err := web.TimeToLive(within(t), lease.ID); err != nil {
		t.Error(err)
	}
	// The lease can neither be kept alive nor get keys that its holder cannot delete.
	key, raw := []byte("/web/1"), web.ActiveConnection()
	for what, err := range map[string]error{
		"put": func() error {
			_, err := web.Put(within(t), "/web/1", "x", clientv3.WithLease(lease.ID))
			return err
		}(),
		"nested txn": func() error {
			_, err := web.Txn(within(t)).Then(clientv3.OpTxn(nil, nil, []clientv3.Op{clientv3.OpPut("/web/1", "x", clientv3.WithLease(lease.ID))})).Commit()
			return err
		}(),
		"keep-alive": func() error {
			_, err := web.KeepAliveOnce(within(t), lease.ID)
			return err
		}(),
		"lock": func() error {
			_, err := v3lockpb.NewLockClient(raw).Lock(within(t), &v3lockpb.LockRequest{Name: []byte("/web/l"), Lease: int64(lease.ID)})
			return err
		}(),
		"campaign": func() error {
			_, err := v3electionpb.NewElectionClient(raw).Campaign(within(t), &v3electionpb.CampaignRequest{Name: []byte("/web/e"), Lease: int64(lease.ID)})
			return err
		}(),
		"proclaim": func() error {
			_, err := v3electionpb.NewElectionClient(raw).Proclaim(within(t), &v3electionpb.ProclaimRequest{Leader: &v3electionpb.LeaderKey{Name: []byte("/web/e"), Key: key, Lease: int64(lease.ID)}})
			return err
		}(),
		"resign": func() error {
			_, err := v3electionpb.NewElectionClient(raw).Resign(within(t), &v3electionpb.ResignRequest{Leader: &v3electionpb.LeaderKey{Name: []byte("/web/e"), Key: key, Lease: int64(lease.ID)}})
			return err
		}(),
	} {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf(denied, "write")) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left, err := etcd.TimeToLive(within(t), lease.ID, clientv3.WithAttachedKeys()); err != nil || len(left.Keys) != 1 {
		t.Errorf("the lease has keys %q: %v", left.Keys, err)
	}
	mine, err := web.Grant(within(t), 600)
	if err == nil {
		_, err = web.Txn(within(t)).Then(clientv3.OpPut("/web/1", "x", clientv3.WithLease(mine.ID)), clientv3.OpPut("/web/2", "x", clientv3.WithLease(mine.ID))).Commit()
	}
	if err == nil {
		_, err = web.KeepAliveOnce(within(t), mine.ID)
	}
	if err != nil {
		t.Errorf("the caller's own lease: %v", err)
	}
	// Programs that rely on leases work with allowed keys.
	session, err := concurrency.NewSession(web)
	if err != nil {
		t.Fatal(err)
	}
	if err := concurrency.NewMutex(session, "/web/lock").Lock(within(t)); err != nil {
		t.Error(err)
	}
	if err := concurrency.NewMutex(session, "/other/lock").Lock(within(t)); err == nil {
		t.Error("locked")
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

// A watch ends when the policy no longer allows it, at both APIs; other watches continue.
func TestAWatchEndsWithThePolicy(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, policyHead+webMay)
	n := p.nodes[0].node
	web, token := p.native(who{name: "web"}), p.native(who{token: p.token("web", time.Hour)})
	cli := p.etcdV3(who{name: "web"})
	ctx := within(t)
	ends := web.Watch(ctx, client.Prefix("/web/"))
	also := token.Watch(ctx, client.Prefix("/web/"))
	for _, w := range []*client.Watcher{ends, also} {
		select {
		case <-w.Started():
		case <-ctx.Done():
			t.Fatal("not started")
		}
	}
	watching := cli.Watch(ctx, "/web/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if r := <-watching; r.Err() != nil {
		t.Fatal(r.Err())
	}
	// The limit of watches applies to the identity, over both APIs: three for cn:web.
	raw, err := etcdserverpb.NewWatchClient(cli.ActiveConnection()).Watch(ctx)
	if err == nil {
		err = raw.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte("/web/x")}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if m, err := raw.Recv(); err != nil || !m.GetCreated() || m.GetCanceled() {
		t.Fatal(m, err)
	}
	if err := beginWatch(ctx, p.etcdV3(who{name: "web"}), "/web/y"); err == nil || !strings.Contains(err.Error(), "cn:web has too much open at this node: the limit is 3 (the policy's watches)") {
		t.Errorf("a fourth watch: %v", err)
	}

	p.write(t, "roles: 1\n")
	if err := n.ReloadPolicy(); err == nil {
		t.Fatal("taken")
	}
	if _, err := web.Put(ctx, "/web/1", []byte("1")); err != nil { // as before
		t.Fatal(err)
	}
	for _, w := range []*client.Watcher{ends, also} {
		for {
			u, err := w.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if u.Kind == client.KindBatch {
				break
			}
		}
	}
	p.write(t, policyHead+strings.ReplaceAll(webMay, `"cn:web", `, ""))
	if err := n.ReloadPolicy(); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = ends.Next(ctx)
	}
	if !errors.Is(err, client.ErrDenied) || !strings.Contains(err.Error(), `watch ["/web/", "/web0")`) {
		t.Errorf("ended with %v", err)
	}
	for r := range watching { // etcd's client closes the channel without the reason
		if r.Err() != nil {
			t.Errorf("etcd's watch ended with %v", r.Err())
		}
	}
	for {
		m, err := raw.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetCanceled() {
			if !strings.HasPrefix(m.GetCancelReason(), "rpc error: code = PermissionDenied desc = etcdserver: permission denied: the policy does not let ") {
				t.Errorf("etcd's raw watch ended with %q", m.GetCancelReason())
			}
			break
		}
	}
	if _, err := token.Put(ctx, "/web/1", []byte("2")); err != nil {
		t.Fatal(err)
	}
	for {
		u, err := also.Next(ctx)
		if err != nil {
			t.Fatalf("the watch with a token: %v", err)
		}
		if u.Kind == client.KindBatch {
			break
		}
	}
}

// A call needs both the policy's and etcd's permission.
func TestThePolicyAndEtcdsRightsBothHold(t *testing.T) {
	t.Parallel()
	p := newPoliced(t, policyHead+webMay+`  - {match: ["sub:boss"], roles: [operator]}
`)
	p.account, p.etcd = "root", etcdtest.Start(t)
	root := p.etcd.AuthOn()
	etcdtest.Permit(t, root, "ann", "/web/a", "/web/b")
	etcdtest.Permit(t, root, "bob", "/", "0")
	p.nodes[0].start()
	p.ready()
	for name, c := range map[string]struct {
		user, token, key string
		native, etcd     string // what the error says; "": none
	}{
		"both":           {"ann", "", "/web/a", "", ""},
		"not at etcd":    {"ann", "", "/web/c", "etcdserver: permission denied", "etcdserver: permission denied"},
		"not the policy": {"bob", "", "/other/1", "the policy does not let cn:web read", "the policy does not let cn:web read"},
		"both tokens":    {"bob", p.token("web", time.Hour), "/web/c", "", ""},
	} {
		cfg := client.Config{
			Endpoints: []string{p.nodes[0].clients}, TLS: p.tls(who{name: "web"}), RetryFor: patience,
			Username: c.user, Password: etcdtest.Password,
		}
		if c.token != "" {
			cfg.TLS, cfg.Token = p.tls(who{}), func() (string, error) { return c.token, nil }
		}
		cl, err := client.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		says := func(what string, err error, want string) {
			t.Helper()
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %v, want %q", name, what, err, want)
			}
		}
		_, err = cl.Get(within(t), c.key)
		says("get", err, c.native)
		_ = cl.Close()
		if c.token != "" { // etcd's client sends only one token
			continue
		}
		cli, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"https://" + p.nodes[0].clients}, TLS: p.tls(who{name: "web"}), DialTimeout: patience, Logger: zap.NewNop(),
			Username: c.user, Password: etcdtest.Password,
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = cli.Get(within(t), c.key)
		says("etcd: get", err, c.etcd)
		_ = cli.Close()
	}
	// The policy's tokens do not concern etcd, and are not sent to it.
	ctx := metadata.AppendToOutgoingContext(within(t), "token", p.token("boss", time.Hour))
	conn, err := grpc.NewClient(p.nodes[0].clients, grpc.WithTransportCredentials(credentials.NewTLS(p.tls(who{}))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, memberList := etcdserverpb.NewClusterClient(conn).MemberList(ctx, &etcdserverpb.MemberListRequest{})
	admin := shardwatchv1.NewAdminServiceClient(conn)
	watchers, listWatchers := admin.ListWatchers(ctx, &shardwatchv1.ListWatchersRequest{})
	if listWatchers == nil {
		_, listWatchers = watchers.Recv()
	}
	change, changePlacement := admin.ChangePlacement(ctx, &shardwatchv1.ChangePlacementRequest{
		DryRun: true, Change: &shardwatchv1.ChangePlacementRequest_Rebalance{Rebalance: &shardwatchv1.Rebalance{}},
	})
	if changePlacement == nil {
		_, changePlacement = change.Recv()
	}
	for what, err := range map[string]error{"MemberList": memberList, "ListWatchers": listWatchers, "ChangePlacement": changePlacement} {
		if err == nil || !strings.Contains(err.Error(), "user name is empty") && !strings.Contains(err.Error(), "the call has no token") {
			t.Errorf("%s: %v, want the error of a missing etcd token", what, err)
		}
	}
}

// The JSON API obeys the policy, and answers probes without a name.
func TestTheJSONAPIObeysThePolicy(t *testing.T) {
	t.Parallel()
	p := startPoliced(t, policyHead+webMay)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: p.tls(who{}), DisableKeepAlives: true}}
	for _, c := range []struct {
		path, body, token string
		code              int
		says              string
	}{
		{"/health", "", "", http.StatusOK, `"health":"true"`},
		{"/version", "", "", http.StatusOK, `"etcdserver":"3.`},
		{"/v3/kv/range", `{"key":"L3dlYi8x"}`, "", http.StatusForbidden, "the policy does not let anonymous read"},
		{"/v3/kv/range", `{"key":"L3dlYi8x"}`, p.token("web", time.Hour), http.StatusOK, "header"},
		{"/v3/kv/put", `{"key":"L290aGVy","value":"eA=="}`, p.token("web", time.Hour), http.StatusForbidden, "the policy does not let sub:web write"},
		{"/v3/kv/range", `{"key":"L3dlYi8x"}`, p.token("web", -time.Hour), http.StatusUnauthorized, "has expired"},
	} {
		method := http.MethodPost
		if c.body == "" {
			method = http.MethodGet
		}
		r, err := http.NewRequestWithContext(within(t), method, "https://"+p.nodes[0].clients+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		answer, err := web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != c.code || !strings.Contains(string(body), c.says) {
			t.Errorf("%s %s: %d %s, %v", c.path, c.body, answer.StatusCode, body, err)
		}
	}
	if p.audit.count("audit.identity=sub:web", "audit.client=127.0.0.1:") == 0 {
		t.Errorf("the audit log does not have the address of the refused caller: %s", p.audit.tail(10_000))
	}
}
