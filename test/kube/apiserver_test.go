package kube_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/kube/kubeconfig"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

var apiserverVersion = flag.String("apiserver", "1.36", "version of kube-apiserver in the tests: 1.36 or 1.37")

// apiserverModule returns the directory of the module from which kube-apiserver and kubectl are
// built.
func apiserverModule(t *testing.T) string {
	t.Helper()
	from, ok := map[string]string{
		"1.36": "../compat/kubernetes/testdata/kube-apiserver", // which that suite shares
		"1.37": "testdata/kube-apiserver-1.37",
	}[*apiserverVersion]
	if !ok {
		t.Fatalf("there is no -apiserver %s", *apiserverVersion)
	}
	return from
}

// kubernetesProgram returns the path of kube-apiserver or kubectl, in the version of -apiserver.
func kubernetesProgram(t *testing.T, program string) string {
	t.Helper()
	return builtOnce(t, apiserverModule(t), program, func(version string) []string {
		return []string{"build", "-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=" + version, kubernetesModule + "/cmd/" + program}
	})
}

const kubernetesModule = "k8s.io/kubernetes"

// builtOnce returns the path of a program that the go command builds from a module with Kubernetes'
// dependencies, with arguments for their version. Short tests do not build it, and skip.
func builtOnce(t *testing.T, from, program string, args func(version string) []string) string {
	t.Helper()
	goCommand := func(args ...string) string {
		out, err := goOutput(from, args...)
		switch {
		case err == nil:
		case testing.Short():
			t.Skipf("there is no %s here: %v", program, err)
		default:
			t.Fatalf("there is no %s here: %v", program, err)
		}
		return out
	}
	version := goCommand("list", "-m", "-f", "{{.Version}}", kubernetesModule)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "shardwatch", fmt.Sprintf("%s-%s-%s-%s", program, version, runtime.GOARCH, runtime.Version()))
	bin := filepath.Join(dir, program)
	if _, err := os.Stat(bin); err == nil {
		return bin
	}
	if testing.Short() {
		t.Skipf("%s has not been built, and takes minutes", program)
	}
	fillOnce(t, dir, func(part string) {
		command := args(version)
		goCommand(slices.Insert(command, 1, "-trimpath", "-o", filepath.Join(part, program))...)
	})
	return bin
}

// goOutput returns the output of the go command in a directory. Its error ends with the command's
// own errors.
func goOutput(dir string, args ...string) (string, error) {
	var complaints bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = dir, &complaints
	out, err := cmd.Output()
	if err != nil {
		text := complaints.String()
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text[max(0, len(text)-2000):])
	}
	return strings.TrimSpace(string(out)), nil
}

// A test skips with the reason why its program cannot be built.
func TestFailedBuildReportsTheReason(t *testing.T) {
	if _, err := goOutput(".", "build", "./testdata/none"); err == nil || !strings.Contains(err.Error(), "testdata/none: directory not found") {
		t.Errorf("%v", err)
	}
}

// fillOnce creates a directory that is complete or absent: fill fills a temporary one, which is
// renamed.
func fillOnce(t *testing.T, dir string, fill func(part string)) {
	t.Helper()
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	part, err := os.MkdirTemp(parent, filepath.Base(dir)+".part-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(part)
	fill(part)
	if err := os.Rename(part, dir); err != nil {
		if _, absent := os.Stat(dir); absent != nil { // no other run created it either
			t.Fatal(err)
		}
	}
}

// The first build for a user has no cache; if two runs build the same program, the second finds the
// directory of the first.
func TestProgramIsBuiltIntoANewCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache", "shardwatch", "program-1")
	write := func(dir, text string) {
		if err := os.WriteFile(filepath.Join(dir, "program"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fillOnce(t, dir, func(slower string) {
		fillOnce(t, dir, func(faster string) { write(faster, "faster") })
		write(slower, "slower")
	})
	if text, err := os.ReadFile(filepath.Join(dir, "program")); err != nil || string(text) != "faster" {
		t.Errorf("%q, %v", text, err)
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// cluster is an etcd and the shared files of its apiservers.
type cluster struct {
	etcd   *etcdtest.Process
	bin    string
	dir    string
	token  string // of a member of system:masters
	client *http.Client

	ca, front *certtest.CA // of clients and apiservers, and of front proxies
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{bin: kubernetesProgram(t, "kube-apiserver"), etcd: etcdtest.StartProcess(t), dir: t.TempDir(), token: rand.Text(), ca: certtest.NewCA(t, "kubernetes"), front: certtest.NewCA(t, "front-proxy")}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c.write(t, "accounts.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	c.write(t, "tokens.csv", []byte(c.token+",kube,kube,system:masters\n"))
	serving := c.ca.Issue(t, "kube-apiserver")
	c.write(t, "apiserver.pem", serving.Cert)
	c.write(t, "apiserver.key", serving.Key)
	c.write(t, "ca.pem", c.ca.PEM)
	c.write(t, "front.pem", c.front.PEM)
	c.client = &http.Client{Transport: c.transport(t)}
	return c
}

// transport returns a transport that trusts the cluster's CA, with client certificates.
func (c *cluster) transport(t *testing.T, certs ...certtest.Leaf) *http.Transport {
	t.Helper()
	secure := &tls.Config{RootCAs: certtest.Pool(c.ca)}
	for _, leaf := range certs {
		secure.Certificates = append(secure.Certificates, leaf.Pair)
	}
	transport := kubeconfig.Transport(secure)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func (c *cluster) write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// compact removes etcd's history.
func (c *cluster) compact(ctx context.Context, t *testing.T) {
	t.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{c.etcd.Endpoint()}, DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	now, err := etcd.Get(ctx, "none")
	if err == nil {
		_, err = etcd.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// apiserver is a kube-apiserver that keeps its port across restarts.
type apiserver struct {
	c     *cluster
	port  string
	url   string
	flags []string

	mu      sync.Mutex
	process *proc.Process   // guarded by mu; nil: killed
	lives   []*proc.Process // guarded by mu; all processes so far
}

// apiserver returns a kube-apiserver that runs until the test ends.
func (c *cluster) apiserver(t *testing.T, flags ...string) *apiserver {
	t.Helper()
	_, port, err := net.SplitHostPort(free(t))
	if err != nil {
		t.Fatal(err)
	}
	a := &apiserver{c: c, port: port, url: "https://127.0.0.1:" + port, flags: flags}
	t.Cleanup(a.kill)
	a.start(t)
	return a
}

// start returns once the apiserver is ready.
func (a *apiserver) start(t *testing.T) {
	t.Helper()
	c := a.c
	at := func(name string) string { return filepath.Join(c.dir, name) }
	log := at("apiserver-" + a.port + ".log")
	process, err := proc.Start(log, c.bin, append([]string{
		"--etcd-servers=" + c.etcd.Endpoint(), "--etcd-compaction-interval=0",
		"--bind-address=127.0.0.1", "--secure-port=" + a.port, "--tls-cert-file=" + at("apiserver.pem"), "--tls-private-key-file=" + at("apiserver.key"),
		"--client-ca-file=" + at("ca.pem"), "--requestheader-client-ca-file=" + at("front.pem"), "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--advertise-address=192.0.2.1", "--service-cluster-ip-range=10.96.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + at("accounts.key"), "--service-account-signing-key-file=" + at("accounts.key"),
		"--token-auth-file=" + at("tokens.csv"), "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none",
	}, a.flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.process = process
	a.lives = append(a.lives, process)
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		resp, err := c.client.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("kube-apiserver is not ready: %v", err)
		}
		if err := process.Err(); err != nil {
			text, _ := os.ReadFile(log)
			t.Fatalf("kube-apiserver has ended: %v\n%s", err, text[max(0, len(text)-4000):])
		}
	}
}

func (a *apiserver) kill() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.process != nil {
		a.process.Kill()
		a.process = nil
	}
}

// drain ends the apiserver like a rolling restart.
func (a *apiserver) drain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.process != nil {
		a.process.Interrupt()
		a.process = nil
	}
}

// cpu returns the CPU time of all its processes.
func (a *apiserver) cpu(t *testing.T) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return used(t, a.lives)
}

// used adds up the CPU time of processes.
func used(t *testing.T, all []*proc.Process) (sum time.Duration) {
	t.Helper()
	for _, p := range all {
		cpu, err := p.CPU()
		if err != nil {
			t.Fatal(err)
		}
		sum += cpu
	}
	return sum
}

// clients returns a client with the cluster's token for an API at a URL.
func (c *cluster) clients(t *testing.T, url string, change func(*rest.Config)) *kubernetes.Clientset {
	t.Helper()
	cfg := &rest.Config{Host: url, BearerToken: c.token, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.PEM}, QPS: -1}
	if change != nil {
		change(cfg)
	}
	set, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
