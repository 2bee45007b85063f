package kube_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/freeport"
	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

// node is a cachenode process that serves Kubernetes' API.
type node struct {
	c          *cluster
	name       string
	kube, http string // addresses
	args       []string
	bin        string       // the program; empty: built from this repository
	pages      *http.Client // client of the HTTP port if it uses TLS; nil: it does not

	mu      sync.Mutex
	process *proc.Process   // guarded by mu; nil: it is not running
	lives   []*proc.Process // guarded by mu; all processes so far
}

// free returns an address of loopback that stays free for this process: while a node or an
// apiserver is down, no client connection gets its port.
func free(t *testing.T) string {
	t.Helper()
	ports, err := freeport.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	return ports[0]
}

// built is the directory of the programs built by tests.
var built = filepath.Join(os.TempDir(), fmt.Sprintf("shardwatch-kube-%d", os.Getpid()))

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(built) // a program may be missing
	os.Exit(code)
}

// binary builds cachenode, once.
var binary = sync.OnceValues(func() (string, error) { return build("cachenode") })

// build builds a program of this repository.
func build(name string) (string, error) {
	bin := filepath.Join(built, name)
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/"+name)
	cmd.Dir = "../.." // a separate module
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return bin, nil
}

// access writes a kubeconfig with the cluster's token.
func (c *cluster) access(t *testing.T, server string) string {
	t.Helper()
	c.write(t, "node.kubeconfig", fmt.Appendf(nil, `{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: %q, certificate-authority: ca.pem}}], users: [{name: a, user: {token: %q}}]}`, server, c.token))
	return filepath.Join(c.dir, "node.kubeconfig")
}

// node starts a node, and returns once it is ready. Without further arguments it is a front proxy.
func (c *cluster) node(t *testing.T, name string, servers []string, args ...string) *node {
	t.Helper()
	return c.nodeOf(t, "", name, servers, args...)
}

// nodeOf is node with a program; empty: built from this repository.
func (c *cluster) nodeOf(t *testing.T, bin, name string, servers []string, args ...string) *node {
	t.Helper()
	files := certtest.NewFiles(t, c.ca.Issue(t, name), c.ca)
	n := &node{c: c, bin: bin, name: name, kube: free(t), http: free(t)}
	n.args = append([]string{
		"run", "--name", name, "--kube-listen", n.kube, "--http-listen", n.http, "--kubeconfig", c.access(t, servers[0]),
		"--kube-tls-cert", files.Cert, "--kube-tls-key", files.Key, "--kube-client-ca", files.CA, "--kube-server", strings.Join(servers, ","),
	}, args...)
	t.Cleanup(n.kill)
	n.start(t)
	return n
}

// proxy returns the arguments of a front proxy.
func (c *cluster) proxy(t *testing.T) []string {
	t.Helper()
	files := certtest.NewFiles(t, c.front.Issue(t, "front-proxy"), c.front)
	return []string{"--kube-proxy-cert", files.Cert, "--kube-proxy-key", files.Key}
}

func (n *node) log() string { return filepath.Join(n.c.dir, n.name+".log") }

func (n *node) start(t *testing.T) {
	t.Helper()
	bin := n.bin
	if bin == "" {
		var err error
		if bin, err = binary(); err != nil {
			t.Fatal(err)
		}
	}
	process, err := proc.Start(n.log(), bin, n.args...)
	if err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	n.process = process
	n.lives = append(n.lives, process)
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	eventually(ctx, t, n.name+" is ready", func() error {
		if err := process.Err(); err != nil {
			text, _ := os.ReadFile(n.log())
			t.Fatalf("%s has ended: %v\n%s", n.name, err, text)
		}
		_, err := n.get(ctx, "/readyz")
		return err
	})
}

// get reads a page of the HTTP port.
func (n *node) get(ctx context.Context, path string) (string, error) {
	scheme, client := "http", http.DefaultClient
	if n.pages != nil {
		scheme, client = "https", n.pages
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+n.http+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return string(text), err
}

func (n *node) take() *proc.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.process
	n.process = nil
	return p
}

func (n *node) kill() {
	if p := n.take(); p != nil {
		p.Kill()
	}
}

// cpu returns the CPU time of all its processes.
func (n *node) cpu(t *testing.T) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return used(t, n.lives)
}

// drain ends the node like a rolling restart.
func (n *node) drain() {
	if p := n.take(); p != nil {
		p.Interrupt()
	}
}

// balancer is a Service: connections go in turn to the listening nodes.
func balancer(t *testing.T, nodes ...*node) string {
	t.Helper()
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.kube)
	}
	return balance(t, addresses...)
}

// balance is a balancer of addresses.
func balance(t *testing.T, nodes ...string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		l.Close()
		all.Wait()
	})
	var turn atomic.Uint64
	forward := func(client net.Conn) {
		defer client.Close()
		first := turn.Add(1)
		for i := range nodes {
			at := nodes[(first+uint64(i))%uint64(len(nodes))]
			to, err := net.Dial("tcp", at)
			if err != nil {
				continue
			}
			defer to.Close()
			defer context.AfterFunc(ctx, func() { client.Close(); to.Close() })()
			done := make(chan struct{}, 2)
			for _, pair := range [][2]net.Conn{{client, to}, {to, client}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1]) // until one of the two closes
					done <- struct{}{}
				}()
			}
			<-done
			return
		}
	}
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { forward(client) })
		}
	})
	return "https://" + l.Addr().String()
}

// listing counts lists, and watches that begin with the state, of clients.
type listing struct{ n atomic.Int64 }

func (l *listing) wrap(inner http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		query := r.URL.Query()
		resp, err := inner.RoundTrip(r)
		if err == nil && resp.StatusCode == http.StatusOK && r.Method == http.MethodGet && (query.Get("watch") == "" || query.Get("sendInitialEvents") != "") {
			l.n.Add(1)
		}
		return resp, err
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// value returns the sum of the series with all given labels of a metric in the text of /metrics.
func value(text, name string, labels ...string) (sum float64) {
	for line := range strings.Lines(text) {
		series, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		if metric, _, _ := strings.Cut(series, "{"); metric != name {
			continue
		}
		has := true
		for _, label := range labels {
			has = has && strings.Contains(series, label)
		}
		if v, err := strconv.ParseFloat(number, 64); err == nil && has {
			sum += v
		}
	}
	return sum
}

// TestStorm runs informers at two nodes, through a balancer, while a node is killed, all apiservers
// are, and both nodes are restarted in turn. No informer lists again, and none misses an event.
func TestStorm(t *testing.T) {
	c := newCluster(t)
	behind, beside := c.apiserver(t), c.apiserver(t)
	writer := c.clients(t, beside.url, nil)
	r := rand.New(rand.NewPCG(15, 16))
	churn(t, writer, r, 40)
	follow := []string{"--kube-preload", "configmaps.v1,configmaps.v1/json", "--drain-timeout", "5s"}
	a := c.node(t, "a", []string{behind.url}, append(c.proxy(t), follow...)...)
	b := c.node(t, "b", []string{behind.url}, append(c.proxy(t), follow...)...)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	var lists listing
	all := c.informersWith(ctx, t, balancer(t, a, b), 4, func(cfg *rest.Config) { cfg.WrapTransport = lists.wrap })
	first := lists.n.Load()
	if first < int64(len(all)) {
		t.Fatalf("%d lists for %d informers: they are not counted", first, len(all))
	}
	settled := func(after string) {
		t.Helper()
		began := time.Now()
		for _, n := range all {
			n.equals(ctx, t, writer)
		}
		t.Logf("%d informers have caught up %v after: %s; lists again: %d", len(all), time.Since(began).Round(time.Millisecond), after, lists.n.Load()-first)
	}
	settled("the start")
	c.oneWatchForAll(ctx, t, behind, a, b)
	for _, fault := range []struct {
		name       string
		fail, mend func()
	}{
		{"node killed", a.kill, func() { a.start(t) }},
		{"the other node killed", b.kill, func() { b.start(t) }},
		{"apiserver killed", behind.kill, func() { behind.start(t) }},
		{"node restarted", a.drain, func() { a.start(t) }},
		{"the other node restarted", b.drain, func() { b.start(t) }},
	} {
		churn(t, writer, r, 30)
		fault.fail()
		churn(t, writer, r, 30)
		fault.mend()
		settled(fault.name)
	}
	if again := lists.n.Load() - first; again != 0 {
		t.Errorf("%d lists by %d informers in the storm", again, len(all))
	}
}

// TestANodeThatImpersonates runs a node without a front proxy's certificate, as in a managed
// cluster. Its metrics are those in docs/kubernetes.md.
func TestANodeThatImpersonates(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	n := c.node(t, "a", []string{a.url}, "--drain-timeout", "5s")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	carol := c.as(t, "https://"+n.kube, c.ca.IssueIn(t, "carol", "readers"))
	who, err := carol.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if u := who.Status.UserInfo; u.Username != "carol" || !slices.Equal(u.Groups, []string{"readers", "system:authenticated"}) {
		t.Errorf("the apiserver sees %+v", u)
	}
	if _, err := carol.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights lists: %v", err)
	}
	root := c.ca.IssueIn(t, "root", "system:masters")
	if _, err := c.as(t, "https://"+n.kube, root).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("an administrator lists: %v", err)
	}
	other := c.clients(t, "https://"+n.kube, func(cfg *rest.Config) {
		cfg.BearerToken, cfg.CertData, cfg.KeyData, cfg.Impersonate = "", root.Cert, root.Key, rest.ImpersonationConfig{UserName: "dave"}
	})
	if _, err := other.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an administrator impersonates through a node that does: %v", err)
	}
	scraped, err := n.get(ctx, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	names := func(text, before string) (names []string) {
		for line := range strings.Lines(text) {
			if rest, ok := strings.CutPrefix(line, before+"shardwatch_kube_"); ok {
				names = append(names, rest[:strings.IndexAny(rest, " `")])
			}
		}
		return names
	}
	if got, want := names(scraped, "# TYPE "), names(string(text), "| `"); !slices.Equal(got, want) {
		t.Errorf("metrics %v\nand those of docs/kubernetes.md: %v", got, want)
	}
	watch, last := c.open(ctx, t, "https://"+n.kube, root), ""
	n.drain()
	for line := range watch {
		last = line
	}
	if !strings.Contains(last, `"BOOKMARK"`) {
		t.Errorf("the watch of a drained node ended with %q, want a bookmark", last)
	}
}

// oneWatchForAll compares the number of watches at an apiserver with the nodes' feeds. A feed may
// briefly have a second watch, which shows its progress.
func (c *cluster) oneWatchForAll(ctx context.Context, t *testing.T, at *apiserver, nodes ...*node) {
	t.Helper()
	feeds, clients := 0.0, 0.0
	for _, n := range nodes {
		text, err := n.get(ctx, "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		feeds += value(text, "shardwatch_kube_resources")
		clients += value(text, "shardwatch_kube_watches")
	}
	text, err := c.clients(t, at.url, nil).RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	watches := value(string(text), "apiserver_longrunning_requests", `resource="configmaps"`, `verb="WATCH"`)
	if watches > 2*feeds || watches == 0 || feeds != float64(2*len(nodes)) {
		t.Errorf("%v watches of config maps at the apiserver for %v feeds and %v watches of clients", watches, feeds, clients)
	}
	t.Logf("%v watches of clients are %v at the apiserver", clients, watches)
}
