package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// startGuarded runs n nodes, with an account, in front of an etcd with
// authentication on.
func startGuarded(t *testing.T, n int, options ...etcdtest.Option) (c *cluster, root *clientv3.Client) {
	t.Helper()
	c = newCluster(t, n, n, shards(2, n))
	c.account, c.etcd = "root", etcdtest.Start(t, options...)
	root = c.etcd.AuthOn()
	for _, m := range c.nodes {
		m.start()
	}
	c.ready()
	return c, root
}

// etcdClient returns etcd's own client, logged in through the machines.
func (c *cluster) etcdClient(user string, at ...*machine) *clientv3.Client {
	c.t.Helper()
	cfg := clientv3.Config{Username: user, Password: etcdtest.Password, DialTimeout: patience, Logger: zap.NewNop()}
	if user == "" {
		cfg.Password = ""
	}
	for _, m := range at {
		cfg.Endpoints = append(cfg.Endpoints, "http://"+m.clients)
	}
	cli, err := clientv3.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// A change of users or roles through a node is in force there once it is
// acknowledged, and soon after at the others.
func TestRightsChangedThroughANodeHoldAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 1, shards(2, 2))
	c.account, c.etcd = "root", etcdtest.Start(t)
	for _, m := range c.nodes {
		m.start()
	}
	c.ready()
	key := "/a/1"
	c.put(key)
	m, other := c.nodes[0], c.nodes[1]
	anyone := c.etcdClient("", m)
	_, added := anyone.UserAdd(within(t), "root", etcdtest.Password)
	_, granted := anyone.UserGrantRole(within(t), "root", "root")
	_, enabled := anyone.AuthEnable(within(t))
	if err := errors.Join(added, granted, enabled); err != nil {
		t.Fatal(err)
	}
	if _, err := anyone.Get(within(t), key, clientv3.WithSerializable()); !errors.Is(err, rpctypes.ErrUserEmpty) {
		t.Errorf("authentication is on, a read without a token returns %v", err)
	}
	root := c.etcdClient("root", m)
	etcdtest.Permit(t, root, "ann", "/none", "")
	ann, elsewhere := c.etcdClient("ann", m), c.etcdClient("ann", other)
	for range 3 {
		if _, err := root.RoleGrantPermission(within(t), "ann", key, "", clientv3.PermissionType(clientv3.PermRead)); err != nil {
			t.Fatal(err)
		}
		if _, err := ann.Get(within(t), key, clientv3.WithSerializable()); err != nil {
			t.Errorf("after a grant: %v", err)
		}
		testkit.Succeeds(t, "the other node allows the read", func() error {
			_, err := elsewhere.Get(within(t), key, clientv3.WithSerializable())
			return err
		})
		if _, err := root.RoleRevokePermission(within(t), "ann", key, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := ann.Get(within(t), key, clientv3.WithSerializable()); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("after a revocation: %v", err)
		}
	}
}

// Users read through the nodes exactly the keys that etcd would let them read,
// whichever node they logged in to. A watch ends when its right does.
func TestReadsObeyEtcdsRights(t *testing.T) {
	t.Parallel()
	c, root := startGuarded(t, 3)
	etcdtest.Permit(t, root, "ann", "/a/", "/a0")
	for _, key := range []string{"/a/1", "/b/1"} {
		if _, err := root.Put(within(t), key, "x"); err != nil {
			t.Fatal(err)
		}
	}
	login := c.etcdClient("ann", c.nodes[0])
	token, err := login.Authenticate(within(t), "ann", etcdtest.Password)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.nodes {
		for name, cli := range map[string]*clientv3.Client{
			"own login": c.etcdClient("ann", m), "login elsewhere": c.withToken(token.Token, m),
		} {
			testkit.Succeeds(t, m.name+" knows ann's rights", func() error {
				_, err := cli.Get(within(t), "/a/1")
				return err
			})
			for what, want := range map[string]error{"/a/1": nil, "/b/1": rpctypes.ErrPermissionDenied} {
				if _, err := cli.Get(within(t), what); !errors.Is(err, want) {
					t.Errorf("%s, %s: %s: %v, want %v", m.name, name, what, err, want)
				}
			}
			for what, option := range map[string]clientv3.OpOption{"prefix": clientv3.WithPrefix(), "from key": clientv3.WithFromKey()} {
				_, err := cli.Get(within(t), "/a/", option)
				if (err == nil) != (what == "prefix") {
					t.Errorf("%s, %s: %s: %v", m.name, name, what, err)
				}
			}
		}
		if _, err := c.etcdClient("", m).Get(within(t), "/a/1"); !errors.Is(err, rpctypes.ErrUserEmpty) {
			t.Errorf("%s: without a token: %v", m.name, err)
		}
	}

	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	watching := login.Watch(ctx, "/a/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if r := <-watching; !r.Created {
		t.Fatalf("%+v", r)
	}
	if err := beginWatch(ctx, login, "/"); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("a watch without the right: %v", err)
	}
	revoked := time.Now()
	if _, err := root.UserRevokeRole(within(t), "ann", "ann"); err != nil {
		t.Fatal(err)
	}
	for r := range watching {
		if r.Canceled {
			t.Logf("the watch ended %v after the right was revoked", time.Since(revoked))
			if r.Err() == nil || !strings.Contains(r.Err().Error(), "permission denied") {
				t.Errorf("ended with %v", r.Err())
			}
			break
		}
	}
	for _, m := range c.nodes {
		testkit.Succeeds(t, m.name+" refuses the revoked right", func() error {
			if _, err := c.withToken(token.Token, m).Get(within(t), "/a/1"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
				return fmt.Errorf("still served: %w", err)
			}
			return nil
		})
	}
}

// Our own API enforces the same rights.
func TestOurReadsObeyEtcdsRights(t *testing.T) {
	t.Parallel()
	c, root := startGuarded(t, 3)
	etcdtest.Permit(t, root, "ann", "/a/", "/a0")
	native := func(user string) *client.Client {
		cfg := client.Config{RetryFor: patience, Username: user}
		if user != "" {
			cfg.Password = etcdtest.Password
		}
		for _, m := range c.nodes {
			cfg.Endpoints = append(cfg.Endpoints, m.clients)
		}
		cl, err := client.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cl.Close() })
		return cl
	}
	ann, nobody := native("ann"), native("")
	revision, err := ann.Put(within(t), "/a/1", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range c.nodes { // the client's next call may go to another node
		at := c.etcdClient("ann", m)
		testkit.Succeeds(t, m.name+" knows ann's rights", func() error {
			_, err := at.Get(within(t), "/a/1")
			return err
		})
	}
	for name, c := range map[string]struct {
		cl   *client.Client
		r    client.Range
		want error
	}{
		"hers":                    {ann, client.Prefix("/a/"), nil},
		"not hers":                {ann, client.Prefix("/"), client.ErrDenied},
		"from a key":              {ann, client.Range{Start: "/a/"}, client.ErrDenied},
		"no credentials":          {nobody, client.Prefix("/a/"), client.ErrUnauthenticated},
		"no credentials, one key": {nobody, client.Key("/a/1"), client.ErrUnauthenticated},
	} {
		var listed error
		for _, err := range c.cl.List(within(t), c.r).All() {
			listed = err
		}
		w := c.cl.Watch(within(t), c.r, client.FromRevision(revision.Revision))
		_, watched := w.Next(within(t))
		w.Close()
		if !errors.Is(listed, c.want) || !errors.Is(watched, c.want) {
			t.Errorf("%s: list %v, watch %v, want %v", name, listed, watched, c.want)
		}
	}
	w := ann.Watch(within(t), client.Prefix("/a/"))
	select {
	case <-w.Started():
	case <-within(t).Done():
		t.Fatal("not started")
	}
	revoked := time.Now()
	if _, err := root.UserRevokeRole(within(t), "ann", "ann"); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = w.Next(within(t))
	}
	t.Logf("the watch ended %v after the right was revoked", time.Since(revoked))
	if !errors.Is(err, client.ErrDenied) {
		t.Error(err)
	}
	if _, _, err := ann.Delete(within(t), client.Prefix("/a/")); !errors.Is(err, client.ErrDenied) {
		t.Errorf("delete: %v", err)
	}
}

// withToken is a client that sends an existing token.
func (c *cluster) withToken(token string, at *machine) *clientv3.Client {
	c.t.Helper()
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + at.clients}, Token: token, DialTimeout: patience, Logger: zap.NewNop(),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// Signed tokens end with every change of users and roles. etcd's clients then
// log in again, through the nodes as with etcd, without errors for their users.
func TestSignedTokensEndWithEachChange(t *testing.T) {
	t.Parallel()
	c, root := startGuarded(t, 1, etcdtest.WithJWT(t))
	etcdtest.Permit(t, root, "ann", "k", "")
	m := c.nodes[0]
	ann := c.etcdClient("ann", m)
	testkit.Succeeds(t, "ann's rights are known", func() error {
		_, err := ann.Get(within(t), "k")
		return err
	})
	watching := ann.Watch(within(t), "k")
	for i := range 3 {
		token, err := root.Authenticate(within(t), "ann", etcdtest.Password) // which the nodes have not seen
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.withToken(token.Token, m).Get(within(t), "k"); err != nil {
			t.Errorf("a token from a login outside the nodes: %v", err)
		}
		etcdtest.Permit(t, root, fmt.Sprintf("somebody else %d", i))
		testkit.Succeeds(t, "the old token is refused", func() error {
			if _, err := c.withToken(token.Token, m).Get(within(t), "k"); !errors.Is(err, rpctypes.ErrAuthOldRevision) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
		if _, err := ann.Get(within(t), "k"); err != nil {
			t.Errorf("after a change: %v", err)
		}
		if _, err := ann.Put(within(t), "k", "x"); err != nil {
			t.Errorf("after a change: %v", err)
		}
		if r := <-watching; len(r.Events) != 1 {
			t.Errorf("the watch: %+v, %v", r, r.Err())
		}
	}
}

// Authentication is enabled under nodes without an account: all reads end, and
// the nodes report the missing account.
func TestAuthenticationTurnedOn(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1, 1, shards(1, 1))
	c.ready()
	m := c.nodes[0]
	cli := c.etcdClient("", m)
	if _, err := cli.Get(within(t), "k"); err != nil {
		t.Fatal(err)
	}
	watching := cli.Watch(within(t), "k", clientv3.WithCreatedNotify())
	if r := <-watching; !r.Created {
		t.Fatalf("%+v", r)
	}
	root := c.etcd.AuthOn()
	on := time.Now()
	for range watching { // until it ends
	}
	t.Logf("the watch ended after %v", time.Since(on))
	if _, err := cli.Get(within(t), "k"); err == nil || !strings.Contains(err.Error(), "--etcd-user") {
		t.Errorf("a read: %v", err)
	}
	if n := c.log.count("level=WARN", "--etcd-user must name a user with the role root"); n != 1 {
		t.Errorf("the missing account was logged %d times, want once", n)
	}
	if _, err := root.AuthDisable(within(t)); err != nil {
		t.Fatal(err)
	}
	testkit.Succeeds(t, "served again", func() error {
		_, err := cli.Get(within(t), "k")
		return err
	})
}
