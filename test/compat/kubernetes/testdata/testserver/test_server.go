// Package testserver replaces k8s.io/apiserver's package of this name, which starts etcd for its
// storage tests. This one puts a tier of cache nodes in front of that etcd if SHARDWATCH_TIER names
// their program, and returns a client of the tier.
package testserver

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"

	"github.com/shardwatch/shardwatch/test/compat/kubernetes/tier"
)

const startLimit = time.Minute

// NewTestConfig returns the configuration of an etcd, which a test may change before it passes it
// to RunEtcd.
func NewTestConfig(t testing.TB) *embed.Config {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(t.TempDir(), "etcd")
	cfg.UnsafeNoFsync = true
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger(t, "etcd"))
	client, peer := freeURL(t), freeURL(t)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	return cfg
}

// RunEtcd runs an etcd, and the tier in front of it, until the test ends, and returns a client that
// records its reads.
func RunEtcd(t testing.TB, cfg *embed.Config) *kubernetes.Client {
	t.Helper()
	if cfg == nil {
		cfg = NewTestConfig(t)
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		t.Fatal(err)
	case <-time.After(startLimit):
		t.Fatalf("etcd was not ready within %v", startLimit)
	}
	endpoints := e.Server.Cluster().ClientURLs()
	if program := os.Getenv("SHARDWATCH_TIER"); program != "" {
		endpoints = runTier(t, program, cfg)
	}
	tls, err := cfg.ClientTLSInfo.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	// It is not closed: stores of tests use it in goroutines that outlive the test.
	client, err := kubernetes.New(clientv3.Config{Endpoints: endpoints, TLS: tls, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	calls := storagetesting.NewKubernetesRecorder(client.Kubernetes)
	client.KV = storagetesting.NewKVRecorder(client.KV, calls)
	client.Kubernetes = calls
	return client
}

// runTier runs cache nodes with the test's settings for its etcd.
func runTier(t testing.TB, program string, etcd *embed.Config) (endpoints []string) {
	t.Helper()
	args := strings.Fields(os.Getenv("SHARDWATCH_TIER_ARGS"))
	if every := etcd.WatchProgressNotifyInterval; every > 0 {
		args = append(args, "--watch-progress-notify-interval", every.String())
	}
	at := etcd.ListenClientUrls[0]
	if tls := etcd.ClientTLSInfo; at.Scheme == "https" {
		args = append(args,
			"--etcd-ca", tls.TrustedCAFile, "--etcd-cert", tls.CertFile, "--etcd-key", tls.KeyFile,
			"--tls-cert", tls.CertFile, "--tls-key", tls.KeyFile, "--tls-client-ca", tls.TrustedCAFile)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	nodes, err := tier.Start(ctx, tier.Config{Binary: program, Dir: t.TempDir(), Etcd: at.String(), Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("SHARDWATCH_TIER_LOGS") != "" {
			t.Log(nodes.Logs(3000))
		}
		nodes.Stop()
	})
	return nodes.Endpoints(at.Scheme)
}

// logger hides all messages but errors.
func logger(t testing.TB, name string) *zap.Logger {
	return zaptest.NewLogger(t, zaptest.Level(zapcore.ErrorLevel)).Named(name)
}

func freeURL(t testing.TB) url.URL {
	t.Helper()
	addrs, err := tier.FreeAddrs(1)
	if err != nil {
		t.Fatal(err)
	}
	// By name, as in the certificates of tests.
	return url.URL{Scheme: "http", Host: strings.Replace(addrs[0], "127.0.0.1", "localhost", 1)}
}
