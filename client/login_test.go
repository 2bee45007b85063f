package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/client/clienttest"
)

func as(user, password string) func(*client.Config) {
	return func(c *client.Config) { c.Username, c.Password = user, password }
}

// do makes one call of each kind.
func do(t testing.TB, c *client.Client) map[string]error {
	t.Helper()
	ctx := deadline(t)
	_, errGet := c.Get(ctx, "/a")
	_, errPut := c.Put(ctx, "/b", []byte("1"))
	_, _, errDelete := c.Delete(ctx, client.Key("/b"))
	var errList error
	for _, err := range c.List(ctx, client.Prefix("/")).All() {
		errList = err
	}
	w := c.Watch(ctx, client.Prefix("/"), client.WithProgress())
	defer w.Close()
	_, errWatch := w.Next(ctx)
	return map[string]error{"get": errGet, "put": errPut, "delete": errDelete, "list": errList, "watch": errWatch}
}

// A client logs in once, for all calls to all nodes, and again when its token has expired.
func TestLogin(t *testing.T) {
	cluster := start(t, clienttest.Config{Cuts: []string{"/m"}, Replicas: 1})
	cluster.Put("/a", "1")
	c := connect(t, cluster, as("ann", "secret"))
	works := func(what string, logins int) {
		t.Helper()
		for name, err := range do(t, c) {
			if err != nil {
				t.Errorf("%s: %s: %v", what, name, err)
			}
		}
		if n := cluster.Logins(); n != logins {
			t.Errorf("%s: logged in %d times, want %d", what, n, logins)
		}
	}
	works("authentication is off", 1)
	cluster.Authenticate(map[string]string{"ann": "secret"})
	works("turned on", 2)
	works("as before", 2)
	var all sync.WaitGroup
	cluster.Expire()
	for range 20 {
		all.Go(func() {
			if _, err := c.Get(deadline(t), "/a"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := cluster.Logins(); n > 4 { // a late call may use the old token
		t.Errorf("logged in %d times", n)
	}
	cluster.Authenticate(nil)
	for name, err := range do(t, c) {
		if err != nil {
			t.Errorf("authentication turned off: %s: %v", name, err)
		}
	}
}

// When the token of a stream expires, its watches continue, and new ones are opened on
// another stream with a new token.
func TestTokenOfAStreamExpires(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	cluster.Authenticate(map[string]string{"ann": "secret"})
	c := connect(t, cluster, as("ann", "secret"))
	old := c.Watch(deadline(t), client.Prefix("/"))
	waitStarted(t, old)
	cluster.Expire()
	young := c.Watch(deadline(t), client.Prefix("/"))
	waitStarted(t, young)
	revision := cluster.Put("/a", "1")
	for name, w := range map[string]*client.Watcher{"old": old, "young": young} {
		if u, err := w.Next(deadline(t)); err != nil || u.Revision != revision {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
	}
	if s := c.Stats(); s.Streams != 2 || s.Resumes != 0 || s.Connections != 1 {
		t.Errorf("%+v", s)
	}
	third := c.Watch(deadline(t), client.Prefix("/"))
	waitStarted(t, third)
	if s := c.Stats(); s.Streams != 2 {
		t.Errorf("%+v", s)
	}
}

// A login by another call may take longer than an attempt. The writes that wait for it are
// retried, because they were not sent yet.
func TestWritesOutlastASlowLogin(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 1})
	cluster.Authenticate(map[string]string{"ann": "secret"})
	const writes = 5
	var slow atomic.Bool
	var late atomic.Int64 // failed attempts
	done := make(chan struct{})
	c := connect(t, cluster, func(c *client.Config) {
		c.AttemptTimeout = time.Second
		c.Username, c.PasswordFrom = "ann", func() (string, error) {
			if slow.Load() {
				<-done
			}
			return "secret", nil
		}
		c.Observer.Attempt = func(a client.Attempt) {
			if slow.Load() && a.Err != nil && !errors.Is(a.Err, client.ErrUnauthenticated) {
				late.Add(1)
			}
		}
	})
	if _, err := c.Put(deadline(t), "/a", nil); err != nil {
		t.Fatal(err)
	}
	slow.Store(true)
	cluster.Expire()
	var all sync.WaitGroup
	defer all.Wait()
	release := sync.OnceFunc(func() { close(done) })
	defer release()
	for range writes {
		all.Go(func() {
			if _, err := c.Put(deadline(t), "/a", nil); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "the attempts of all writes but one have timed out", func() bool { return late.Load() >= writes-1 })
	release()
}

// A password that is replaced in its file is used at the next login. While the file is
// empty, errors name it.
func TestPasswordFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cluster := start(t, clienttest.Config{})
	cluster.Put("/a", "1")
	c := connect(t, cluster, func(c *client.Config) { c.Username, c.PasswordFrom = "ann", client.PasswordFile(name) })
	for _, password := range []string{"secret", "another", " with spaces "} {
		write(password + "\n")
		cluster.Authenticate(map[string]string{"ann": password})
		if _, err := c.Get(deadline(t), "/a"); err != nil {
			t.Errorf("%q: %v", password, err)
		}
	}
	write("\n")
	cluster.Expire()
	empty := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, client.ErrUnauthenticated) || !strings.Contains(err.Error(), name+" is empty") {
			t.Errorf("%s: %v", what, err)
		}
	}
	brief := connect(t, cluster, func(c *client.Config) {
		c.Username, c.PasswordFrom, c.RetryFor = "ann", client.PasswordFile(name), 100*time.Millisecond
	})
	_, err := brief.Get(deadline(t), "/a")
	empty("get", err)
	_, err = brief.Put(deadline(t), "/a", nil)
	empty("put", err)
	w := c.Watch(t.Context(), client.Prefix("/"))
	eventually(t, "the watch reports why it does not start", func() bool { return w.Stats().LastError != nil })
	empty("watch", w.Stats().LastError)
	write(" with spaces ")
	waitStarted(t, w)
}

// Without a user, with a wrong password, and without rights, all calls report the reason
// and are not retried endlessly.
func TestNotPermitted(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	cluster.Put("/a", "1")
	cluster.Authenticate(map[string]string{"ann": "secret"})
	for name, c := range map[string]*client.Client{
		"no user":        connect(t, cluster),
		"wrong password": connect(t, cluster, as("ann", "wrong")),
		"no such user":   connect(t, cluster, as("bob", "secret")),
	} {
		for what, err := range do(t, c) {
			if !errors.Is(err, client.ErrUnauthenticated) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
	}
	cluster.Deny("ann")
	for what, err := range do(t, connect(t, cluster, as("ann", "secret"))) {
		if !errors.Is(err, client.ErrDenied) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := client.New(client.Config{Endpoints: []string{"a:1"}, Username: "ann"}); err == nil {
		t.Error("accepted a user without a password")
	}
}

// The shard map requires a user. A client logs in before it follows the map, and continues
// when authentication is turned on and when its token has expired. Without a user, its
// calls report the reason.
func TestTheMapIsFollowedAsAUser(t *testing.T) {
	cluster := start(t, clienttest.Config{Cuts: []string{"/m"}, Replicas: 1})
	before := connect(t, cluster, as("ann", "secret"))
	if _, err := admin.New(before).ShardMap(deadline(t)); err != nil {
		t.Fatal(err)
	}
	follows := func(what string, c *client.Client) {
		t.Helper()
		for _, n := range cluster.Nodes()[:2] {
			cluster.SetReplicas(1, n.Name)
			eventually(t, what+": the client has the new map", func() bool { return c.Follows(1, n.Name) })
		}
	}
	cluster.Authenticate(map[string]string{"ann": "secret"})
	follows("turned on", before)
	c := connect(t, cluster, as("ann", "secret"))
	follows("logged in", c)
	cluster.Expire()
	for _, n := range cluster.Nodes() { // streams break, and restart with the old token
		n.Kill()
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	follows("expired", c)
	stranger := connect(t, cluster)
	_, errMap := admin.New(stranger).ShardMap(deadline(t))
	_, errMembers := admin.New(stranger).Members(deadline(t))
	_, errStatus := admin.New(stranger).Status(deadline(t), "")
	_, errCluster := admin.New(stranger).ClusterStatus(deadline(t), 0)
	for what, err := range map[string]error{"map": errMap, "members": errMembers, "status": errStatus, "cluster status": errCluster} {
		if !errors.Is(err, client.ErrUnauthenticated) {
			t.Errorf("%s without a user: %v", what, err)
		}
	}
}
