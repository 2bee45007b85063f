package compat_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if nodeDir != "" {
		_ = os.RemoveAll(nodeDir)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// everything reports whether the long tests run: make compat.
func everything() bool { return os.Getenv("COMPAT") != "" }

// target is a server of etcd's API: an etcd, or cache nodes in front of one. It belongs to the
// test, and is empty.
type target struct {
	name string // "etcd" or "tier"
	etcd *etcdtest.Process
	tier *nodetest.Cluster // nil: plain etcd
}

func targets() []string { return []string{"etcd", "tier"} }

// rootPassword is the password of etcd's root if authentication is on.
const rootPassword = "secret"

// start runs a target until the test ends.
func start(t testing.TB, name string, auth bool) *target {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	g := &target{name: name, etcd: etcdtest.StartProcess(t)}
	if auth {
		enableAuth(ctx, t, g.etcd.Endpoint())
	}
	if name == "etcd" {
		return g
	}
	bin, err := cachenode()
	if err != nil {
		t.Fatal(err)
	}
	cfg := nodetest.Config{Binary: bin, Dir: t.TempDir(), Etcd: g.etcd.Endpoint()}
	if auth {
		file := filepath.Join(cfg.Dir, "password")
		if err := os.WriteFile(file, []byte(rootPassword), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.Args = []string{"--etcd-user", "root", "--etcd-password-file", file}
	}
	if g.tier, err = nodetest.Start(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(g.tier.Logs(3000))
		}
		g.tier.Stop()
	})
	return g
}

// cachenode is built once for all tests.
var (
	nodeDir   string // set by cachenode
	cachenode = sync.OnceValues(func() (bin string, err error) {
		if nodeDir, err = os.MkdirTemp("", "shardwatch-compat-"); err != nil {
			return "", err
		}
		return nodetest.Build(context.Background(), nodeDir)
	})
)

// endpoints returns the addresses for clients, host:port.
func (g *target) endpoints() []string {
	if g.tier == nil {
		return []string{g.etcd.Endpoint()}
	}
	return g.tier.Endpoints()
}

// restart kills and restarts the clients' servers one after the other, three in all. During each
// restart, while clients have lost their connection and etcd answers, it calls write.
func (g *target) restart(ctx context.Context, write func() error) error {
	if g.tier == nil {
		for range 3 {
			if err := errors.Join(g.etcd.Kill(), g.etcd.Start(ctx), write()); err != nil {
				return err
			}
		}
		return nil
	}
	for _, n := range g.tier.Nodes {
		n.Kill()
		if err := errors.Join(write(), n.Start(), g.tier.WaitReady(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// connect returns a client, which the test closes.
func connect(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

func enableAuth(ctx context.Context, t testing.TB, endpoint string) {
	t.Helper()
	cli := connect(t, endpoint)
	_, errUser := cli.UserAdd(ctx, "root", rootPassword)
	_, errRole := cli.UserGrantRole(ctx, "root", "root")
	_, errOn := cli.AuthEnable(ctx)
	for _, err := range []error{errUser, errRole, errOn} {
		if err != nil && !strings.Contains(err.Error(), "already exists") {
			t.Fatal(err)
		}
	}
}
