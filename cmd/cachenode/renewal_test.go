package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// newAlone starts a single node whose client and HTTP ports have the certificates
// in files.
func newAlone(t *testing.T, files certtest.Files, more ...string) (*secureCluster, *secureNode) {
	t.Helper()
	n := &secureNode{client: free(t), http: free(t)}
	n.args = append([]string{
		"run", "--name", "alone", "--data-dir", t.TempDir(), "--bootstrap-expect", "1", "--etcd", etcdtest.Start(t).Endpoint(),
		"--listen", n.client, "--peer-listen", free(t), "--raft-listen", free(t), "--gossip-listen", free(t), "--http-listen", n.http,
		"--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-client-ca", files.CA,
		"--http-tls-cert", files.Cert, "--http-tls-key", files.Key, "--http-tls-client-ca", files.CA,
	}, more...)
	c := &secureCluster{t: t, nodes: []*secureNode{n}}
	c.start(n)
	c.ready()
	return c, n
}

// A client with certificate files survives the renewal of its certificate and its
// CA: when the node restarts with new certificates, the client and its watch
// continue. If a file is broken, the client uses the previous content and reports that.
func TestAClientFollowsItsFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("runs etcd and a node, and waits for files to be read")
	}
	first, second := certtest.NewCA(t, "first"), certtest.NewCA(t, "second")
	const name = "shardwatch.internal" // the node is dialled by its address
	server := certtest.NewFiles(t, first.Issue(t, "server", name), first)
	c, n := newAlone(t, server)
	restart := func() {
		t.Helper()
		if code := n.stop(); code != exitDone {
			t.Fatalf("exit code %d", code)
		}
		c.start(n)
		c.ready()
	}

	mine := certtest.NewFiles(t, first.Issue(t, "client"), first)
	config := client.Config{
		Endpoints: []string{n.client}, RetryFor: 2 * time.Minute,
		TLSFiles: client.TLSFiles{CA: mine.CA, Cert: mine.Cert, Key: mine.Key, ServerName: name},
	}
	var log syncBuffer
	config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	cl, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cl.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	w := cl.Watch(ctx, client.Key("/a"))
	<-w.Started()
	write := func(value string) {
		t.Helper()
		_, err := cl.Get(ctx, "/a") // retried until there is a connection; a write is sent once
		if err == nil {
			_, err = cl.Put(ctx, "/a", []byte(value))
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, &log)
		}
		for u, err := range w.Updates() {
			if err != nil {
				t.Fatal(err)
			}
			if u.Kind == client.KindBatch {
				if got := string(u.Events[0].KV.Value); got != value {
					t.Fatalf("saw %q, want %q", got, value)
				}
				return
			}
		}
	}
	write("at first")

	// Both sides change at once: neither side accepts the other's old certificate.
	for _, f := range []certtest.Files{server, mine} {
		f.Write(t, second.Issue(t, "again", name))
		f.Trust(t, second)
	}
	restart()
	write("with other certificates")
	if !strings.Contains(log.String(), "msg=reloaded what=TLSFiles") {
		t.Errorf("the reload is not logged:\n%s", &log)
	}

	if err := os.WriteFile(mine.CA, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.eventually("the broken file is reported", func() bool { return cl.Stats().TLSError != nil })
	restart()
	write("with those of before")
	if text := log.String(); !strings.Contains(text, "reload failed: the previous contents stay in use") || !strings.Contains(text, mine.CA+" holds no PEM certificate") {
		t.Errorf("the reload is not logged:\n%s", text)
	}
	mine.Trust(t, second)

	config.TLSFiles.ServerName, config.RetryFor = "another.internal", time.Nanosecond
	wrong, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = wrong.Close() }()
	if _, err := wrong.Get(ctx, "/a"); !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "another.internal") {
		t.Errorf("a node with another name: %v", err)
	}
}

// The policy decides whether clients need a certificate, also after a reload:
// clients with a token need none.
func TestAReloadAddsAndRemovesTokens(t *testing.T) {
	if testing.Short() {
		t.Skip("runs etcd and a node")
	}
	ca := certtest.NewCA(t, "ca")
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	write := func(file, text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file+"~", []byte(text), 0o600), os.Rename(file+"~", file)); err != nil { // so that a partial file is never read
			t.Fatal(err)
		}
	}
	const rules = "roles:\n  all: [{verbs: [read, watch, write], all: true}]\nidentities:\n  - {match: [authenticated], roles: [all]}\n"
	write(policy, rules)
	// The public key of RFC 7517, appendix A.1.
	write(filepath.Join(dir, "jwks.json"), `{"keys": [{"kty": "EC", "crv": "P-256", "kid": "1", "alg": "ES256",
		"x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}`)
	c, n := newAlone(t, certtest.NewFiles(t, ca.Issue(t, "server"), ca), "--policy", policy)
	for _, step := range []struct {
		policy string
		line   string // logged after the reload
		may    bool   // clients without a certificate connect
	}{
		{"tokens: {issuer: https://us, audience: shardwatch, keys: jwks.json}\n" + rules, "msg=reloaded what=policy", true},
		{"tokens: {}\n", "reload failed", true},
		{rules, "msg=reloaded what=policy", false},
	} {
		before := strings.Count(n.log.String(), step.line)
		write(policy, step.policy)
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		c.eventually(step.line, func() bool { return strings.Count(n.log.String(), step.line) > before })
		if err := admitted(n.client, certtest.Leaf{}, ca); (err == nil) != step.may {
			t.Errorf("without a certificate, with the policy\n%s: %v, may connect: %t", step.policy, err, step.may)
		}
		if err := admitted(n.client, ca.Issue(t, "someone"), ca); err != nil {
			t.Errorf("a client with a certificate: %v", err)
		}
	}
}
