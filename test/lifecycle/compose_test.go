package lifecycle

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// compose has the parts of compose.yaml that these tests use.
type compose struct {
	Services map[string]struct {
		Command     []string          `yaml:"command"`
		Environment map[string]string `yaml:"environment"`
		Healthcheck struct {
			Test []string `yaml:"test"`
		} `yaml:"healthcheck"`
	} `yaml:"services"`
}

// compose.yaml starts a working cluster: its three etcds and three nodes run as processes, each
// with a separate address and name, with the settings and the certificates of the file, and
// Prometheus' settings reach the metrics of every node. Docker itself, the images and Grafana are
// not tested.
func TestComposeStartsACluster(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skipf("it needs openssl, for certificates.sh: %v", err)
	}
	network := newNetwork(t)
	etcd, err := etcdtest.Binary(t.Context())
	must(t, err)
	bin := t.TempDir()
	must(t, command(t.Context(), nil, "go", "build", "-o", bin, "github.com/shardwatch/shardwatch/cmd/cachenode", "github.com/shardwatch/shardwatch/cmd/cachectl"))
	c := read[compose](t, "../../compose.yaml")
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "certificates"), 0o755))
	must(t, command(t.Context(), nil, "../../deploy/compose/certificates.sh", filepath.Join(dir, "certificates")))

	hosts := map[string]*host{}
	for name := range c.Services {
		if strings.HasPrefix(name, "etcd-") || strings.HasPrefix(name, "cachenode-") {
			h, err := network.newHost(t.Context())
			must(t, err)
			t.Cleanup(h.remove)
			network.name(name, []string{h.ip})
			hosts[name] = h
		}
	}
	if len(hosts) != 6 {
		t.Fatalf("compose.yaml has %d services that are etcds and nodes, want 6", len(hosts))
	}
	for name, h := range hosts {
		s := c.Services[name]
		program, args := filepath.Join(bin, "cachenode"), s.Command
		if strings.HasPrefix(name, "etcd-") { // its image has no entry point
			program, args = etcd, s.Command[1:]
		}
		start(t, name, filepath.Join(dir, name+".log"), within(dir, name, s.Environment), h.command(program, args...))
	}
	nodes := []string{"cachenode-0", "cachenode-1", "cachenode-2"}
	for _, name := range nodes {
		s := c.Services[name]
		if len(s.Healthcheck.Test) < 3 || s.Healthcheck.Test[0] != "CMD" || s.Healthcheck.Test[1] != "cachectl" {
			t.Fatalf("%s: health is tested by %q", name, s.Healthcheck.Test)
		}
		healthy(t, within(dir, name, s.Environment), hosts[name].command(filepath.Join(bin, "cachectl"), s.Healthcheck.Test[2:]...))
	}
	for i, args := range [][]string{{"put", "/app/a", "1"}, {"get", "/app/a"}} {
		name := nodes[i]
		must(t, command(t.Context(), within(dir, name, c.Services[name].Environment), hosts[name].command(filepath.Join(bin, "cachectl"), args...)...))
	}
	metricsOf(t, dir, hosts)
}

// metricsOf reads the metrics of all nodes with prometheus.yaml's settings.
func metricsOf(t *testing.T, dir string, hosts map[string]*host) {
	t.Helper()
	p := read[struct {
		Scrapes []struct {
			Job string `yaml:"job_name"`
			TLS struct {
				CA   string `yaml:"ca_file"`
				Cert string `yaml:"cert_file"`
				Key  string `yaml:"key_file"`
			} `yaml:"tls_config"`
			Static []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}](t, "../../deploy/compose/prometheus.yaml")
	scrape := p.Scrapes[0]
	if !strings.Contains(scrape.Job, "shardwatch") || len(scrape.Static) != 1 || len(scrape.Static[0].Targets) != 3 {
		t.Fatalf("prometheus.yaml scrapes %+v", p.Scrapes)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, scrape.TLS.Cert), filepath.Join(dir, scrape.TLS.Key))
	must(t, err)
	ca, err := os.ReadFile(filepath.Join(dir, scrape.TLS.CA))
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	for _, target := range scrape.Static[0].Targets {
		name, port, _ := strings.Cut(target, ":")
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, ServerName: name}}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+hosts[name].ip+":"+port+"/metrics", nil)
		must(t, err)
		answer, err := (&http.Client{Transport: transport}).Do(request)
		must(t, err)
		text, err := io.ReadAll(answer.Body)
		must(t, err)
		must(t, answer.Body.Close())
		if answer.StatusCode != http.StatusOK || !bytes.Contains(text, []byte("shardwatch_node_ready")) {
			t.Errorf("%s: %s, %d bytes", target, answer.Status, len(text))
		}
	}
}

// command returns the words of a command that runs on the host.
func (h *host) command(program string, args ...string) []string {
	return append([]string{"ip", "netns", "exec", h.space, program}, args...)
}

// within returns an environment with the volumes' paths below a directory.
func within(dir, service string, environment map[string]string) []string {
	all := os.Environ()
	for name, value := range environment {
		switch {
		case strings.HasPrefix(value, "/certificates/"):
			value = filepath.Join(dir, value)
		case value == "/data", value == "/var/lib/shardwatch":
			value = filepath.Join(dir, service)
		}
		all = append(all, name+"="+value)
	}
	return all
}

// start starts a process that ends with the test.
func start(t *testing.T, name, log string, environment, words []string) {
	t.Helper()
	file, err := os.Create(log)
	must(t, err)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environment, file, file
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		hard := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // its log has the reason
		hard.Stop()
		_ = file.Close()
		if text, err := os.ReadFile(log); t.Failed() && err == nil {
			lines := slices.Collect(bytes.Lines(text))
			t.Logf("%s:\n%s", name, bytes.Join(lines[max(0, len(lines)-20):], nil))
		}
	})
}

// healthy waits until a service's health check succeeds.
func healthy(t *testing.T, environment, words []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again := time.NewTicker(500 * time.Millisecond)
	defer again.Stop()
	for {
		err := command(ctx, environment, words...)
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// command runs a command; its error contains the output.
func command(ctx context.Context, environment []string, words ...string) error {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = environment
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, out)
	}
	return nil
}

// read reads a YAML file.
func read[T any](t *testing.T, file string) (v T) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, yaml.Unmarshal(text, &v))
	return v
}
