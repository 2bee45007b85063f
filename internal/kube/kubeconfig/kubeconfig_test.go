package kubeconfig

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shardwatch/shardwatch/internal/edge/rawconn"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
)

// server answers with the common name of the caller's certificate and its token.
func server(t *testing.T, ca *certtest.CA) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, cert := range r.TLS.PeerCertificates {
			fmt.Fprint(w, cert.Subject.CommonName)
		}
		fmt.Fprint(w, " ", r.Header.Get("Authorization"))
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "apiserver").Pair}, ClientCAs: certtest.Pool(ca), ClientAuth: tls.VerifyClientCertIfGiven}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// asks returns the caller's identity as the server sees it for an account.
func asks(t *testing.T, a *Account) string {
	t.Helper()
	transport := Transport(a.TLS)
	defer transport.CloseIdleConnections()
	return asksOver(t, a, transport)
}

// asksOver is asks over a given transport.
func asksOver(t *testing.T, a *Account, transport http.RoundTripper) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.Server, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if a.Token != nil {
		token, err := a.Token()
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.ProtoMajor != 2 {
		t.Fatalf("%s: %v", resp.Proto, err)
	}
	return strings.TrimSpace(string(text))
}

func put(t *testing.T, name string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const config = `apiVersion: v1
kind: Config
current-context: here
contexts:
- {name: there, context: {cluster: far, user: far}}
- {name: here, context: {cluster: near, user: me}}
clusters:
- {name: far, cluster: {server: "https://192.0.2.1", insecure-skip-tls-verify: true}}
- {name: near, cluster: {server: %q, %s}}
users:
- {name: me, user: {%s}}
`

func TestCertificatesAndTokensOfFilesAndData(t *testing.T) {
	ca := certtest.NewCA(t, "kubernetes")
	url, leaf, dir := server(t, ca), ca.Issue(t, "tier"), t.TempDir()
	put(t, filepath.Join(dir, "ca.pem"), ca.PEM)
	put(t, filepath.Join(dir, "tier.pem"), leaf.Cert)
	put(t, filepath.Join(dir, "tier.key"), leaf.Key)
	put(t, filepath.Join(dir, "token"), []byte("one\n"))
	inline := base64.StdEncoding.EncodeToString
	for name, c := range map[string]struct{ cluster, user, want string }{
		"files":         {"certificate-authority: ca.pem", "client-certificate: tier.pem, client-key: tier.key", "tier"},
		"data":          {"certificate-authority-data: " + inline(ca.PEM), "client-certificate-data: " + inline(leaf.Cert) + ", client-key-data: " + inline(leaf.Key), "tier"},
		"token":         {"certificate-authority: ca.pem", "token: abc", "Bearer abc"},
		"tokenFile":     {"certificate-authority: ca.pem", "tokenFile: token, token: abc", "Bearer one"},
		"both":          {"certificate-authority: ca.pem", "client-certificate: tier.pem, client-key: tier.key, token: abc", "tier Bearer abc"},
		"absolute path": {"certificate-authority: " + filepath.Join(dir, "ca.pem"), "token: abc", "Bearer abc"},
		"server name":   {"certificate-authority: ca.pem, tls-server-name: localhost", "token: abc", "Bearer abc"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := Load(put(t, filepath.Join(dir, "config"), fmt.Appendf(nil, config, url, c.cluster, c.user)))
			if err != nil {
				t.Fatal(err)
			}
			if got := asks(t, a); got != c.want {
				t.Errorf("the server saw %q, want %q", got, c.want)
			}
		})
	}
}

// A replaced certificate and a replaced token take effect without a restart, also on a transport with an open
// connection. A certificate without its key changes nothing.
func TestFilesAreReadAgain(t *testing.T) {
	ca := certtest.NewCA(t, "kubernetes")
	url, dir := server(t, ca), t.TempDir()
	put(t, filepath.Join(dir, "ca.pem"), ca.PEM)
	renew := func(n string) {
		leaf := ca.Issue(t, "tier-"+n)
		put(t, filepath.Join(dir, "tier.pem"), leaf.Cert)
		put(t, filepath.Join(dir, "tier.key"), leaf.Key)
		put(t, filepath.Join(dir, "token"), []byte(n))
	}
	renew("1")
	a, err := Load(put(t, filepath.Join(dir, "config"), fmt.Appendf(nil, config, url,
		"certificate-authority: ca.pem", "client-certificate: tier.pem, client-key: tier.key, tokenFile: token")))
	if err != nil {
		t.Fatal(err)
	}
	transport := NewRenewed(a.TLS, nil)
	defer func() { transport.now.Load().CloseIdleConnections() }()
	sees := func(want string) {
		t.Helper()
		if got := asksOver(t, a, transport); got != want {
			t.Errorf("the server saw %q, want %q", got, want)
		}
	}
	sees("tier-1 Bearer 1")
	renew("2")
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	sees("tier-1 Bearer 2")
	was := transport.now.Load()
	transport.Renew()
	sees("tier-2 Bearer 2")
	is := transport.now.Load()
	put(t, filepath.Join(dir, "tier.pem"), ca.Issue(t, "tier-3").Cert)
	if err := a.Reload(); err == nil {
		t.Error("a certificate without its key was accepted")
	}
	transport.Renew()
	sees("tier-2 Bearer 2")
	if now := transport.now.Load(); was == is || now != is {
		t.Error("an unchanged certificate led to new connections")
	}
	put(t, filepath.Join(dir, "token"), nil)
	if token, err := a.Token(); err == nil {
		t.Errorf("an empty file was accepted as the token %q", token)
	}
}

func TestMistakesAreErrors(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "garbage"), []byte("no certificate"))
	for _, c := range []struct{ cluster, user, want string }{
		{"insecure-skip-tls-verify: true", "token: abc", "insecure-skip-tls-verify is not supported"},
		{"proxy-url: http://192.0.2.1", "token: abc", "proxy-url is not supported"},
		{"certificate-authority: missing", "token: abc", "no such file"},
		{"certificate-authority: garbage", "token: abc", "contains no PEM certificate"},
		{"certificate-authority-data: '*'", "token: abc", "illegal base64"},
		{"extra: 1", "exec: {command: aws}", "exec, auth-provider, username and as are not supported"},
		{"extra: 1", "auth-provider: {name: gcp}", "exec, auth-provider, username and as are not supported"},
		{"extra: 1", "username: a, password: b", "exec, auth-provider, username and as are not supported"},
		{"extra: 1", "token: abc, as: root", "exec, auth-provider, username and as are not supported"},
		{"extra: 1", "client-certificate: garbage", "go together"},
		{"extra: 1", "client-certificate: garbage, client-key: garbage", "client-certificate with client-key"},
		{"extra: 1", "tokenFile: missing", "no such file"},
	} {
		_, err := Load(put(t, filepath.Join(dir, "config"), fmt.Appendf(nil, config, "https://192.0.2.1", c.cluster, c.user)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: %v, want %q", c.cluster, c.user, err, c.want)
		}
	}
	if _, err := Load(put(t, filepath.Join(dir, "config"), []byte("current-context: none"))); err == nil || !strings.Contains(err.Error(), `no context "none"`) {
		t.Errorf("a missing context: %v", err)
	}
	if _, err := Load(put(t, filepath.Join(dir, "config"), []byte("contexts: [{name: '', context: {cluster: a, user: b}}]"))); err == nil || !strings.Contains(err.Error(), `the cluster "a"`) {
		t.Errorf("a missing cluster: %v", err)
	}
}

func TestServiceAccount(t *testing.T) {
	ca := certtest.NewCA(t, "kubernetes")
	url, dir := server(t, ca), t.TempDir()
	put(t, filepath.Join(dir, "ca.crt"), ca.PEM)
	put(t, filepath.Join(dir, "token"), []byte("pod"))
	host, port, _ := strings.Cut(strings.TrimPrefix(url, "https://"), ":")
	environ := map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
	a, err := inCluster(func(name string) string { return environ[name] }, dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := asks(t, a); got != "Bearer pod" {
		t.Errorf("the server saw %q", got)
	}
	if _, err := InCluster(func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "does not run in a pod") {
		t.Errorf("outside a pod: %v", err)
	}
}

// The connections of a transport are raw, so that reads do not wake the runtime's monitor.
func TestConnectionsAreRaw(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Transport(nil).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if wrapped := rawconn.Wrap(c); wrapped != c {
		t.Errorf("the connection is a %T, want the raw connection", c)
	}
}
