package kubernetes_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/test/compat/kubernetes/tier"
)

// missing is testkit.Missing, which is in a module that this one does not need.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("COMPAT") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// kubeAPIServer returns the path of a kube-apiserver, built from its module at
// the version in testdata/kube-apiserver; see missing.
func kubeAPIServer(t *testing.T) string {
	t.Helper()
	const module, main = "k8s.io/kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"
	const at = "testdata/kube-apiserver"
	const none = "there is no kube-apiserver here: %v\n%s"
	out, err := buildCommand(at, "list", "-m", "-f", "{{.Version}}", module).CombinedOutput()
	if err != nil {
		missing(t, none, err, out)
	}
	version := strings.TrimSpace(string(out))
	dir := install(t, fmt.Sprintf("kube-apiserver-%s-%s-%s", version, runtime.GOARCH, runtime.Version()), func(dir string) error {
		t.Logf("building kube-apiserver %s: some minutes, once", version)
		named := "-X k8s.io/component-base/version.gitVersion=" + version
		out, err := buildCommand(at, "build", "-p", "2", "-trimpath", "-ldflags", "-s -w "+named, "-o", filepath.Join(dir, "kube-apiserver"), main).CombinedOutput()
		if err != nil {
			missing(t, none, err, out)
		}
		return nil
	})
	return filepath.Join(dir, "kube-apiserver")
}

func buildCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	return cmd
}

// server is a kube-apiserver that runs until the test ends, and a client of it.
type server struct {
	url   string
	token string
	http  *http.Client
	log   string
}

// startServer runs a kube-apiserver on some endpoints of etcd's API, with flags in addition to its
// usual ones, and returns when it is ready.
func startServer(t *testing.T, bin string, endpoints []string, flags ...string) *server {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	accounts := file("accounts.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	s := &server{token: rand.Text(), log: filepath.Join(dir, "kube-apiserver.log")}
	tokens := file("tokens.csv", []byte(s.token+",compat,compat,system:masters\n"))
	_, port, err := net.SplitHostPort(freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	s.url = "https://127.0.0.1:" + port
	flags = append(flags,
		"--etcd-servers="+strings.Join(endpoints, ","),
		"--etcd-compaction-interval=20s",
		"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+dir,
		"--advertise-address=192.0.2.1", // what its leases in etcd name; nobody connects to it
		"--service-cluster-ip-range=10.96.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+accounts, "--service-account-signing-key-file="+accounts,
		"--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount",
	)
	cmd := exec.Command(bin, flags...)
	out, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	begun, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		defer out.Close()
		tier.Lasting(cmd)
		err := cmd.Start()
		begun <- err
		if err == nil {
			_ = cmd.Wait() // its log has the reason
		}
	}()
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	// It listens on loopback with a certificate that it has just created.
	s.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	t.Cleanup(func() {
		s.http.CloseIdleConnections()
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("--- kube-apiserver\n%s", s.complaints())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for {
		err := s.do(ctx, http.MethodGet, "/readyz", nil, nil)
		if err == nil {
			return s
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ended:
			t.Fatalf("kube-apiserver ended before it was ready\n%s", s.complaints())
		case <-ctx.Done():
			t.Fatalf("kube-apiserver was not ready: %v\n%s", err, s.complaints())
		}
	}
}

// complaints returns the last warnings and errors of the log.
func (s *server) complaints() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "I") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-60):], "")
}

// statusError is an unsuccessful answer.
type statusError struct {
	Code            int
	Reason, Message string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d %s: %s", e.Code, e.Reason, e.Message) }

// reasonOf returns Kubernetes' reason for a refusal, or "".
func reasonOf(err error) string {
	if status := (*statusError)(nil); errors.As(err, &status) {
		return status.Reason
	}
	return ""
}

// do sends a request and decodes the answer into the value of a pointer, or drops it if that is
// nil.
func (s *server) do(ctx context.Context, method, path string, body, into any) error {
	resp, err := s.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

// send sends a request. It fails if the answer is not a success.
func (s *server) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	status := &statusError{Code: resp.StatusCode, Message: string(text)}
	_ = json.Unmarshal(text, status) // otherwise it is not from the API, and the text is the message
	return nil, status
}

// object has the fields of any kind that these tests need.
type object struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Metadata   metadata          `json:"metadata"`
	Data       map[string]string `json:"data,omitempty"`
	// A watch's error is an object, too.
	Code    int    `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

type metadata struct {
	Name            string            `json:"name,omitempty"`
	Namespace       string            `json:"namespace,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

type list struct {
	Metadata struct {
		ResourceVersion    string `json:"resourceVersion"`
		Continue           string `json:"continue"`
		RemainingItemCount int    `json:"remainingItemCount"`
	} `json:"metadata"`
	Items []object `json:"items"`
}

// event is an event of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
type event struct {
	Type   string `json:"type"`
	Object object `json:"object"`
}

// watch is a watch that is read until its context ends.
type watch struct {
	path string

	mu     sync.Mutex
	events []event       // guarded by mu
	more   chan struct{} // closed and replaced with every event; guarded by mu
	err    error         // why it ended; guarded by mu
	ended  bool          // guarded by mu
}

// watch starts a watch. The query must contain watch=1.
func (s *server) watch(ctx context.Context, path string) (*watch, error) {
	resp, err := s.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	w := &watch{path: path, more: make(chan struct{})}
	go func() {
		defer resp.Body.Close()
		answers := json.NewDecoder(resp.Body)
		for {
			var e event
			err := answers.Decode(&e)
			w.mu.Lock()
			if err == nil {
				w.events = append(w.events, e)
			} else {
				w.err, w.ended = err, true
			}
			close(w.more)
			w.more = make(chan struct{})
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return w, nil
}

// until waits for an event and returns all events up to it.
func (w *watch) until(ctx context.Context, found func(event) bool) ([]event, error) {
	for seen := 0; ; {
		w.mu.Lock()
		events, more, ended, err := w.events, w.more, w.ended, w.err
		w.mu.Unlock()
		for ; seen < len(events); seen++ {
			if found(events[seen]) {
				return events[:seen+1], nil
			}
		}
		if ended {
			return events, fmt.Errorf("%s ended after %d events: %w", w.path, len(events), err)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return events, fmt.Errorf("%s, after %d events: %w", w.path, len(events), ctx.Err())
		}
	}
}

// end returns the error that ended the watch, or nil.
func (w *watch) end() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// metrics returns the sum of every series of a page of metrics that a filter accepts, by the
// series' name with its labels.
func metrics(ctx context.Context, t *testing.T, s *server, wanted func(series string) bool) map[string]float64 {
	t.Helper()
	resp, err := s.send(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return readMetrics(t, resp.Body, wanted)
}

func readMetrics(t *testing.T, page io.Reader, wanted func(series string) bool) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	lines := bufio.NewScanner(page)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		cut := strings.LastIndexByte(lines.Text(), ' ')
		if cut < 0 || !wanted(lines.Text()[:cut]) {
			continue
		}
		var value float64
		if _, err := fmt.Sscan(lines.Text()[cut:], &value); err != nil {
			t.Fatalf("%v in %q", err, lines.Text())
		}
		found[lines.Text()[:cut]] = value
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addrs, err := tier.FreeAddrs(1)
	if err != nil {
		t.Fatal(err)
	}
	return addrs[0]
}
