package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
	"github.com/shardwatch/shardwatch/internal/ops/config"
)

// kube is a node that serves Kubernetes' API, and is valid.
func kube(t *testing.T) config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := config.Defaults()
	c.Name, c.Listen.HTTP = "n", "127.0.0.1:7480"
	c.Kube.Listen, c.Kube.Kubeconfig = ":6444", file
	c.Kube.TLS = tlsconf.Files{Cert: file, Key: file}
	return c
}

func TestANodeOfKubernetesIsValidated(t *testing.T) {
	good := kube(t)
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(*config.Config)
		want   string
	}{
		{func(c *config.Config) { c.Name = "" }, "--name is empty"},
		{func(c *config.Config) { c.Kube.Listen = "6444" }, "--kube-listen \"6444\""},
		{func(c *config.Config) { c.Kube.Listen = ":7480" }, "both use port 7480"},
		{func(c *config.Config) { c.Listen.HTTP = ":7480" }, "accept it with --insecure=http"},
		{func(c *config.Config) { c.Listen.HTTP = "x" }, "--http-listen"},
		{func(c *config.Config) { c.Kube.TLS = tlsconf.Files{} }, "--kube-listen needs --kube-tls-cert"},
		{func(c *config.Config) { c.Kube.TLS.Key = "" }, "--kube-tls-key is not"},
		{func(c *config.Config) { c.Kube.Proxy.Cert = c.Kube.Kubeconfig }, "--kube-proxy-key is not"},
		{func(c *config.Config) { c.Kube.Kubeconfig = "/missing" }, "--kubeconfig: /missing"},
		{func(c *config.Config) { c.Kube.Servers = []string{"http://a"} }, "--kube-server \"http://a\""},
		{func(c *config.Config) { c.Kube.Servers = []string{"https://u:p@a"} }, "--kube-server"},
		{func(c *config.Config) { c.Kube.Preload = []string{"pods"} }, "--kube-preload \"pods\""},
		{func(c *config.Config) { c.Kube.AllowStale = 6 * time.Minute }, "--kube-allow-stale 6m0s"},
		{func(c *config.Config) { c.Kube.Delta = "no" }, `--kube-delta "no": use on or off`},
		{func(c *config.Config) { c.StatusPage = "no" }, `--status-page "no": use on, with-keys, off`},
		{func(c *config.Config) { c.Kube.Listen, c.Kube.Delta = "", "off" }, "--kube-delta is given without --kube-listen"},
		{func(c *config.Config) { c.Etcd.Endpoints = []string{"a:1"} }, "--etcd has no effect with --kube-listen"},
		{func(c *config.Config) { c.BootstrapExpect = 1 }, "--bootstrap-expect has no effect"},
		{func(c *config.Config) { c.GossipKeyFile = c.Kube.Kubeconfig }, "--gossip-key-file is given without --join"},
		{func(c *config.Config) { c.PeerTLS = c.Kube.TLS }, "--peer-tls-cert is given without --join"},
		{func(c *config.Config) { c.Join = []string{"a:1"} }, "accept it with --insecure=peer"},
		{func(c *config.Config) { c.Join = []string{"a:1"} }, "accept it with --insecure=gossip"},
		{func(c *config.Config) { c.Join, c.Listen.Peer = []string{"a:1"}, ":6444" }, "--kube-listen and --peer-listen both use port 6444"},
		{func(c *config.Config) { c.Join, c.Listen.Gossip = []string{"a:1"}, ":7401" }, "--peer-listen and --gossip-listen both use port 7401"},
		{func(c *config.Config) { c.Join = []string{"a/b"} }, "--join \"a/b\""},
		{func(c *config.Config) { c.Join, c.PeerTLS = []string{"a:1"}, c.Kube.TLS }, "nodes authenticate each other"},
		{func(c *config.Config) { c.Policy = c.Kube.Kubeconfig }, "--policy has no effect"},
		{func(c *config.Config) { c.Limits.ConnectionAge = time.Hour }, "--max-connection-age has no effect"},
		{func(c *config.Config) { c.Limits.AddressHandshakes = 0 }, "--address-handshakes has no effect"},
		{func(c *config.Config) { c.WindowBytes = 1 }, "--window-bytes"},
		{func(c *config.Config) { c.Limits.Connections = 0 }, "--max-connections"},
		{func(c *config.Config) { c.Kube.Listen = "" }, "--kubeconfig is given without --kube-listen"},
	} {
		bad := kube(t)
		c.change(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if w := good.Warnings(); len(w) != 1 || !strings.HasPrefix(w[0], "--kube-client-ca is not given") {
		t.Errorf("warnings %q", w)
	}
}

func TestPreloadedResources(t *testing.T) {
	c := config.Config{Kube: config.Kube{Preload: []string{"pods.v1", "deployments.v1.apps/json", "leases.v1.coordination.k8s.io/protobuf"}}}
	got, err := c.KubePreload()
	want := []config.Preload{{"", "v1", "pods", false}, {"apps", "v1", "deployments", true}, {"coordination.k8s.io", "v1", "leases", false}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"", "pods", "pods.", ".v1", "pods.v1.", "pods.apps", "pods.v1/cbor", "pods.v1/"} {
		c.Kube.Preload = []string{bad}
		if got, err := c.KubePreload(); err == nil {
			t.Errorf("%q is accepted as %v", bad, got)
		}
	}
}
