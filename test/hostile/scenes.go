package hostile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/freeport"
)

// scene is the environment of the node under attack.
type scene uint8

const (
	// alone: an etcd shared by all rows.
	alone scene = iota
	// guarded: an etcd with authentication, which uses the common name of a certificate as its
	// user. The node's certificate names root.
	guarded
	// bereft: there were two more nodes, one with the keys under /data/. They have ended, and the
	// map cannot change: there is no majority of voters.
	bereft
	// joined: there are two more nodes, to which the attacked node hands over its shards.
	joined
)

// scene returns the scene of an attack.
func (a *Attack) scene() scene {
	switch a.Name {
	case "unauthenticated", "reader-administers":
		return guarded
	case "homeless":
		return bereft
	case "drain-unread":
		return joined
	}
	return alone
}

// root is etcd's user with all rights, ann a user that may read everything.
const (
	root     = "root"
	ann      = "ann"
	password = "secret"
)

// newGuarded starts an etcd with users, and with as many keys as one transaction can write.
func newGuarded(ctx context.Context, dir string) (_ *store, err error) {
	ca, err := certtest.MakeCA("etcd")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := pki(dir)
	errs := []error{p.write("ca.crt", ca.PEM), p.write("password", []byte(password))}
	for _, name := range []string{"etcd", root} {
		leaf, err := ca.Make(name)
		errs = append(errs, err, p.write(name+".crt", leaf.Cert), p.write(name+".key", leaf.Key))
	}
	ports, err := freeport.Take(2)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	plainURL, secureURL := "http://"+ports[0], "https://"+ports[1]
	s, err := newStore(ctx, dir, perTxn, ports[0],
		"--listen-client-urls="+plainURL+","+secureURL, "--client-cert-auth",
		"--trusted-ca-file="+p.file("ca.crt"), "--cert-file="+p.file("etcd.crt"), "--key-file="+p.file("etcd.key"))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	must := func(_ any, err error) { errs = append(errs, err) }
	for _, user := range []string{root, ann} {
		must(s.client.RoleAdd(ctx, user))
		must(s.client.UserAdd(ctx, user, password))
		must(s.client.UserGrantRole(ctx, user, user))
	}
	must(s.client.RoleGrantPermission(ctx, ann, "\x00", "\x00", clientv3.PermissionType(clientv3.PermRead)))
	must(s.client.AuthEnable(ctx))
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("make etcd's users: %w", err)
	}
	_ = s.client.Close()
	s.user, s.forNodes = root, secureURL
	s.flags = []string{"--etcd-ca", p.file("ca.crt"), "--etcd-cert", p.file("root.crt"), "--etcd-key", p.file("root.key"), "--etcd-user", root, "--etcd-password-file", p.file("password")}
	s.client, err = s.connect(ctx)
	return s, err
}

// apart returns the flags of nodes that have the keys of the crowd and of attackers in separate
// shards, each at one node.
func apart() []string {
	return []string{"--replicas", "1", "--shards", "2", "--prefix", "/crowd/", "--prefix", "/data/"}
}

// leave selects the node that serves the crowd as the site's node, and ends the others.
func (t *site) leave(ctx context.Context) error {
	cfg, err := t.tls(measures)
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{Endpoints: t.nodes.Endpoints(), TLS: cfg})
	if err != nil {
		return err
	}
	defer c.Close()
	m, err := admin.New(c).ShardMap(ctx)
	if err != nil {
		return err
	}
	owners := make(map[string]string)
	for _, s := range m.Shards {
		owners[s.Range.Start] = s.Owner()
	}
	here := owners["/crowd/"]
	if owners[everything] == here {
		return fmt.Errorf("one node has all shards: %v", owners)
	}
	for _, n := range t.nodes.Nodes {
		if n.Name == here {
			t.node = n
		} else {
			n.Kill()
		}
	}
	return nil
}

// MaxDrain bounds the time from SIGTERM to a node's end: it does not wait for clients that do not
// read, and for at most --drain-timeout, 45 s in the shipped settings.
const MaxDrain = 20 * time.Second

// drain ends the node as Kubernetes does, and returns the time until its end.
func (t *site) drain(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if err := syscall.Kill(t.node.PID(), syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("end the node: %w", err)
	}
	for t.node.PID() != 0 {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// around returns the etcd of a scene; end ends it, if it is not the shared one.
func (c *Config) around(ctx context.Context, shared *store, s scene, dir string) (_ *store, end func(), err error) {
	if s != guarded {
		return shared, func() {}, nil
	}
	own, err := newGuarded(ctx, filepath.Join(dir, "etcd"))
	if err != nil {
		return nil, nil, err
	}
	return own, own.stop, nil
}
