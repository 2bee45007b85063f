package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/freeport"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// role is the name in the nodes' certificates.
const role = "spiffe://shardwatch.test/node"

// secureEtcd is an etcd process that accepts only clients with certificates of a
// CA that it trusts.
type secureEtcd struct {
	endpoint string
	dir      string
	files    certtest.Files
	cmd      *exec.Cmd
}

func (e *secureEtcd) start(t *testing.T) {
	t.Helper()
	binary, err := etcdtest.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(t.TempDir(), "etcd.log"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	e.cmd = exec.CommandContext(t.Context(), binary, "--data-dir", e.dir, "--unsafe-no-fsync",
		"--listen-client-urls", e.endpoint, "--advertise-client-urls", e.endpoint, "--listen-peer-urls", "http://"+free(t),
		"--cert-file", e.files.Cert, "--key-file", e.files.Key, "--trusted-ca-file", e.files.CA, "--client-cert-auth")
	e.cmd.Stdout, e.cmd.Stderr = log, log
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.stop)
}

func (e *secureEtcd) stop() {
	_ = e.cmd.Process.Kill()
	_ = e.cmd.Wait()
}

// secureCluster is three nodes with TLS on every port and encrypted gossip,
// before an etcd with TLS.
type secureCluster struct {
	t    *testing.T
	ca   *certtest.CA
	next *certtest.CA // etcd also trusts it from the start, because it reads CAs only then
	etcd *secureEtcd

	client, peer, http, upstream certtest.Files // of all nodes
	keys                         string         // the file

	nodes []*secureNode
}

type secureNode struct {
	args               []string
	client, peer, http string
	raft               string
	log                *syncBuffer
	stop               func() int
}

func newSecureCluster(t *testing.T) *secureCluster {
	t.Helper()
	return newSecureClusterWith(t, func(*secureCluster, int) []string { return nil })
}

// newSecureClusterWith gives node i further arguments.
func newSecureClusterWith(t *testing.T, more func(c *secureCluster, i int) []string) *secureCluster {
	t.Helper()
	ca, next := certtest.NewCA(t, "first"), certtest.NewCA(t, "second")
	node := ca.Issue(t, "node", role)
	c := &secureCluster{
		t: t, ca: ca, next: next, keys: filepath.Join(t.TempDir(), "keys"),
		client: certtest.NewFiles(t, ca.Issue(t, "server"), ca), peer: certtest.NewFiles(t, node, ca),
		http: certtest.NewFiles(t, ca.Issue(t, "server"), ca), upstream: certtest.NewFiles(t, ca.Issue(t, "root"), ca),
		etcd: &secureEtcd{endpoint: "https://" + free(t), dir: t.TempDir(), files: certtest.NewFiles(t, ca.Issue(t, "etcd"), ca, next)},
	}
	c.encrypt(newKey())
	c.etcd.start(t)
	gossip := []string{free(t), free(t), free(t)}
	for i := range gossip {
		n := &secureNode{client: free(t), peer: free(t), raft: free(t), http: free(t)}
		n.args = []string{
			"run", "--name", fmt.Sprintf("n%d", i), "--data-dir", t.TempDir(), "--bootstrap-expect", "3", "--join", gossip[(i+1)%3], "--join", gossip[(i+2)%3],
			"--listen", n.client, "--peer-listen", n.peer, "--raft-listen", n.raft, "--gossip-listen", gossip[i], "--http-listen", n.http,
			"--etcd", c.etcd.endpoint, "--etcd-ca", c.upstream.CA, "--etcd-cert", c.upstream.Cert, "--etcd-key", c.upstream.Key,
			"--tls-cert", c.client.Cert, "--tls-key", c.client.Key, "--tls-client-ca", c.client.CA,
			"--peer-tls-cert", c.peer.Cert, "--peer-tls-key", c.peer.Key, "--peer-tls-ca", c.peer.CA,
			"--http-tls-cert", c.http.Cert, "--http-tls-key", c.http.Key, "--http-tls-client-ca", c.http.CA,
			"--gossip-key-file", c.keys, "--log-level", "debug",
		}
		n.args = append(n.args, more(c, i)...)
		c.nodes = append(c.nodes, n)
		c.start(n)
	}
	return c
}

func (c *secureCluster) start(n *secureNode) {
	ctx, cancel := context.WithCancel(context.Background())
	n.log = &syncBuffer{}
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, process{hostname: os.Hostname, stdout: n.log, stderr: n.log}, n.args)
	}()
	n.stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	c.t.Cleanup(func() {
		if code := n.stop(); code != exitDone {
			c.t.Errorf("%s: exit code %d", n.args[2], code)
		}
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", n.args[2], n.log)
		}
	})
}

func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}

// encrypt writes keys to the file of gossip keys.
func (c *secureCluster) encrypt(keys ...string) {
	c.t.Helper()
	if err := os.WriteFile(c.keys, []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// files returns all certificate files of the nodes.
func (c *secureCluster) files() []certtest.Files {
	return []certtest.Files{c.client, c.peer, c.http, c.upstream}
}

// reload makes all nodes read their files, and returns when they have.
func (c *secureCluster) reload() {
	c.t.Helper()
	before := make([]int, len(c.nodes))
	for i, n := range c.nodes {
		before[i] = strings.Count(n.log.String(), "msg=reloaded what=gossip-keys")
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		c.t.Fatal(err)
	}
	for i, n := range c.nodes {
		c.eventually("reloaded", func() bool { return strings.Count(n.log.String(), "msg=reloaded what=gossip-keys") > before[i] })
	}
}

func (c *secureCluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			c.t.Fatalf("not within two minutes: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// dial returns a client whose certificate is l, and that trusts cas.
func (c *secureCluster) dial(l certtest.Leaf, cas ...*certtest.CA) *client.Client {
	c.t.Helper()
	var endpoints []string
	for _, n := range c.nodes {
		endpoints = append(endpoints, n.client)
	}
	cl, err := client.New(client.Config{Endpoints: endpoints, RetryFor: time.Minute, TLS: trusting(l, cas...)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cl.Close() })
	return cl
}

func trusting(l certtest.Leaf, cas ...*certtest.CA) *tls.Config {
	out := &tls.Config{RootCAs: certtest.Pool(cas...), MinVersion: tls.VersionTLS12}
	if l.Cert != nil {
		out.Certificates = []tls.Certificate{l.Pair}
	}
	return out
}

// ready waits until all nodes serve.
func (c *secureCluster) ready() {
	c.t.Helper()
	for _, n := range c.nodes {
		c.eventually(n.args[2]+" is ready", func() bool {
			code, _ := get("https://"+n.http+"/readyz", &tls.Config{InsecureSkipVerify: true})
			return code == http.StatusOK
		})
	}
}

func get(url string, c *tls.Config) (code int, body string) {
	transport := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = r.Body.Close() }()
	text, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(text)
}

// admitted returns why a port rejects a connection with l, which is presented
// whatever CAs the port requests; "": it accepts it. With TLS 1.3, the first read
// returns the refusal.
func admitted(address string, l certtest.Leaf, ca *certtest.CA) error {
	cfg := &tls.Config{RootCAs: certtest.Pool(ca), MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &l.Pair, nil }
	conn, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	// A server of HTTP/2 speaks first; raft waits for us.
	_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); err != nil && !os.IsTimeout(err) {
		return err
	}
	return nil
}

// Every connection is encrypted, and every port authenticates its callers: nodes at
// the peer and raft ports, clients at the client port, any client with a certificate
// at the HTTP port, where a kubelet's probes need no certificate.
func TestTLSOnEveryPort(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs etcd and three nodes")
	}
	c := newSecureCluster(t)
	c.ready()
	someone := c.ca.Issue(t, "someone", "client.internal", "spiffe://shardwatch.test/client")
	node := c.ca.Issue(t, "node", role)
	stranger := certtest.NewCA(t, "another").Issue(t, "stranger", role)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := c.dial(someone, c.ca).Put(ctx, "/a", []byte("b")); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		for port, at := range map[string]string{"client": n.client, "peer": n.peer, "raft": n.raft} {
			for _, who := range []struct {
				name string
				leaf certtest.Leaf
				may  bool
			}{
				{"a client", someone, port == "client"},
				{"a node", node, true},
				{"a client with a certificate of another CA", stranger, false},
				{"a client without a certificate", certtest.Leaf{}, false},
			} {
				if err := admitted(at, who.leaf, c.ca); (err == nil) != who.may {
					t.Errorf("%s port, %s: %v; may connect: %t", port, who.name, err, who.may)
				}
			}
		}
		for path, need := range map[string]bool{"/healthz": false, "/readyz": false, "/metrics": true} {
			want := http.StatusOK
			if need {
				want = http.StatusForbidden
			}
			if code, body := get("https://"+n.http+path, &tls.Config{InsecureSkipVerify: true}); code != want {
				t.Errorf("%s without a certificate: %d %s", path, code, body)
			}
			if code, body := get("https://"+n.http+path, trusting(someone, c.ca)); code != http.StatusOK {
				t.Errorf("%s with a certificate: %d %s", path, code, body)
			}
			if code, body := get("https://"+n.http+path, trusting(stranger, c.ca)); code == http.StatusOK && need {
				t.Errorf("%s with a certificate of another CA: %d %s", path, code, body)
			}
		}
	}
}

// All certificates, all CAs and the gossip keys are replaced, in the steps of
// docs/security.md, while a watch runs: it gets every change, and stays on its
// connection. Then etcd and a node restart, with only the new files.
func TestEverythingIsRotatedUnderAWatch(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs etcd and three nodes")
	}
	c := newSecureCluster(t)
	c.ready()
	first, second := c.ca, c.next
	old, young := first.Issue(t, "old client"), second.Issue(t, "young client")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cl := c.dial(old, first, second)
	w := cl.Watch(ctx, client.Key("/a"))
	<-w.Started()
	puts := 0
	put := func(cl *client.Client) {
		t.Helper()
		if _, err := cl.Put(ctx, "/a", fmt.Appendf(nil, "%d", puts)); err != nil {
			t.Fatal(err)
		}
		puts++
	}
	put(cl)

	keys := []string{newKey(), newKey()}
	text, err := os.ReadFile(c.keys)
	if err != nil {
		t.Fatal(err)
	}
	keys[0] = strings.TrimSpace(string(text))

	// All nodes trust both CAs.
	for _, f := range c.files() {
		f.Trust(t, first, second)
	}
	c.encrypt(keys[0], keys[1])
	c.reload()
	put(cl)
	for _, n := range c.nodes {
		if err := admitted(n.client, young, first); err != nil {
			t.Errorf("%s refuses a certificate of the second CA: %v", n.args[2], err)
		}
	}
	// All nodes get certificates of the second CA.
	c.client.Write(t, second.Issue(t, "server"))
	c.http.Write(t, second.Issue(t, "server"))
	c.peer.Write(t, second.Issue(t, "node", role))
	c.upstream.Write(t, second.Issue(t, "root"))
	c.etcd.files.Write(t, second.Issue(t, "etcd"))
	c.encrypt(keys[1], keys[0])
	c.reload()
	put(cl)
	for _, n := range c.nodes {
		if err := admitted(n.client, young, second); err != nil {
			t.Errorf("%s does not use its new certificate: %v", n.args[2], err)
		}
	}
	// No node trusts the first CA any more.
	for _, f := range c.files() {
		f.Trust(t, second)
	}
	c.encrypt(keys[1])
	c.reload()
	put(cl) // on its existing connection
	for _, n := range c.nodes {
		if err := admitted(n.client, old, second); err == nil {
			t.Errorf("%s accepts a certificate of the first CA", n.args[2])
		}
		if err := admitted(n.peer, first.Issue(t, "node", role), second); err == nil {
			t.Errorf("the peer port of %s accepts a certificate of the first CA", n.args[2])
		}
	}

	// An invalid file changes nothing.
	if err := os.WriteFile(c.client.CA, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.reload()
	if err := admitted(c.nodes[0].client, young, second); err != nil {
		t.Errorf("after an invalid CA file: %v", err)
	}
	if log := c.nodes[0].log.String(); !strings.Contains(log, "reload failed") || !strings.Contains(log, c.client.CA+":1: ") {
		t.Error("the log does not name file and line of the mistake")
	}
	_, metrics := get("https://"+c.nodes[0].http+"/metrics", trusting(young, second))
	for _, want := range []string{
		`shardwatch_config_reload_failing{what="client-tls"} 1`, `shardwatch_config_reload_failing{what="peer-tls"} 0`,
		`shardwatch_config_reload_failures_total{what="client-tls"} 1`, `shardwatch_config_last_reload_timestamp_seconds{what="gossip-keys"} `,
		`shardwatch_tls_certificate_expiry_timestamp_seconds{what="etcd-tls"} `,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	c.client.Trust(t, second)
	c.reload()

	if r := cl.Stats().Resumes; r > 0 {
		t.Errorf("the watch moved %d times", r)
	}
	next := c.dial(young, second)
	put(next)
	c.etcd.stop()
	c.etcd.files.Trust(t, second)
	c.etcd.start(t)
	c.eventually("etcd is up again", func() bool { _, err := next.Put(ctx, "/b", nil); return err == nil })
	if code := c.nodes[2].stop(); code != exitDone {
		t.Fatalf("exit code %d", code)
	}
	c.start(c.nodes[2])
	c.ready()

	n := 0
	for u, err := range w.Updates() {
		if err != nil {
			t.Fatal(err)
		}
		if u.Kind != client.KindBatch {
			continue
		}
		if got := string(u.Events[0].KV.Value); got != fmt.Sprint(n) {
			t.Fatalf("update %d is %s", n, got)
		}
		if n++; n == puts {
			break
		}
	}
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// free returns an address of this machine that only this test uses.
func free(t *testing.T) string {
	t.Helper()
	at, err := freeport.Take(1)
	if err != nil {
		t.Fatal(err)
	}
	return at[0]
}
