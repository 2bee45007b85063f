package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/files/tlsconf"
	"github.com/shardwatch/shardwatch/internal/ops/config"
)

// After a renewal of the node's own certificate and its front proxy certificate, requests to an apiserver use the
// new certificates, although connections with the old certificates are open.
func TestRequestsToApiserversShowRenewedCertificates(t *testing.T) {
	ca := certtest.NewCA(t, "kubernetes")
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "apiserver").Pair}, ClientCAs: certtest.Pool(ca), ClientAuth: tls.RequireAndVerifyClientCert}
	s.StartTLS()
	defer s.Close()
	own, proxy := certtest.NewFiles(t, ca.Issue(t, "node-1"), ca), certtest.NewFiles(t, ca.Issue(t, "proxy-1"), ca)
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Appendf(nil, `current-context: here
contexts: [{name: here, context: {cluster: near, user: me}}]
clusters: [{name: near, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: me, user: {client-certificate: %q, client-key: %q}}]
`, s.URL, own.CA, own.Cert, own.Key)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config.Defaults()
	cfg.Name, cfg.Kube.Kubeconfig, cfg.Kube.Proxy = "n", file, tlsconf.Files{Cert: proxy.Cert, Key: proxy.Key}
	n := &kubeNode{cfg: cfg, log: slog.New(slog.DiscardHandler)}
	if err := n.load(); err != nil {
		t.Fatal(err)
	}
	shows := func(want ...string) {
		t.Helper()
		var got []string
		for _, transport := range n.apiservers {
			resp, err := (&http.Client{Transport: transport}).Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			name, err := io.ReadAll(resp.Body)
			if resp.Body.Close(); err != nil {
				t.Fatal(err)
			}
			got = append(got, string(name))
		}
		if !slices.Equal(got, want) {
			t.Errorf("the apiserver sees %q, want %q", got, want)
		}
	}
	shows("node-1", "proxy-1", "proxy-1")
	own.Write(t, ca.Issue(t, "node-2"))
	proxy.Write(t, ca.Issue(t, "proxy-2"))
	for _, p := range n.parts() {
		if err := p.Load(); err != nil {
			t.Fatal(err)
		}
	}
	shows("node-2", "proxy-2", "proxy-2")
}
