package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
)

// held is a TLS connection that a client holds open, speaking a protocol; "": raft's.
func held(t *testing.T, address, protocol string, l certtest.Leaf, ca *certtest.CA) *tls.Conn {
	t.Helper()
	cfg := &tls.Config{RootCAs: certtest.Pool(ca), MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{l.Pair}}
	if protocol != "" {
		cfg.NextProtos = []string{protocol}
	}
	c, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ends waits until the other side ends the connection.
func ends(t *testing.T, what string, c *tls.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, c); os.IsTimeout(err) {
		t.Errorf("%s: the connection stays open", what)
	}
}

// reread makes the node read its files, and returns when it has logged line.
func (c *secureCluster) reread(n *secureNode, line string) {
	c.t.Helper()
	before := strings.Count(n.log.String(), line)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		c.t.Fatal(err)
	}
	c.eventually(line, func() bool { return strings.Count(n.log.String(), line) > before })
}

// opened is the live connections of one client: watches of both APIs.
type opened struct {
	native *client.Watcher
	cl     *client.Client
	etcd   *clientv3.Client
}

func (c *secureCluster) opened(ctx context.Context, l certtest.Leaf, ca *certtest.CA) opened {
	c.t.Helper()
	o := opened{cl: c.dial(l, ca)}
	o.native = o.cl.Watch(ctx, client.Key("/a"))
	<-o.native.Started()
	var err error
	o.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{"https://" + c.nodes[0].client}, TLS: trusting(l, ca), DialTimeout: time.Minute, Logger: zap.NewNop()})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = o.etcd.Close() })
	if r := <-o.etcd.Watch(ctx, "/a", clientv3.WithCreatedNotify()); !r.Created {
		c.t.Fatalf("etcd's watch: %v", r.Err())
	}
	return o
}

// goesOn checks that a watch receives the next change on its existing connection.
func (c *secureCluster) goesOn(ctx context.Context, o opened, value string) {
	c.t.Helper()
	if _, err := o.cl.Put(ctx, "/a", []byte(value)); err != nil {
		c.t.Fatal(err)
	}
	for u, err := range o.native.Updates() {
		if err != nil {
			c.t.Fatal(err)
		}
		if u.Kind == client.KindBatch {
			if got := string(u.Events[0].KV.Value); got != value {
				c.t.Errorf("saw %q, want %q", got, value)
			}
			break
		}
	}
	if r := o.cl.Stats().Resumes; r > 0 {
		c.t.Errorf("another client's watch was resumed %d times", r)
	}
}

// When a certificate is revoked, its live connections end at every port, and it cannot
// open new ones; other connections continue.
func TestARevokedCertificateIsCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("runs etcd and a node")
	}
	ca := certtest.NewCA(t, "ca")
	server := certtest.NewFiles(t, ca.Issue(t, "server"), ca)
	own := certtest.NewFiles(t, ca.Issue(t, "node", role), ca)
	good, bad := ca.Issue(t, "good", role), ca.Issue(t, "bad", role)
	crl := filepath.Join(t.TempDir(), "crl.pem")
	write := func(text []byte) {
		t.Helper()
		if err := errors.Join(os.WriteFile(crl+"~", text, 0o600), os.Rename(crl+"~", crl)); err != nil {
			t.Fatal(err)
		}
	}
	write(ca.Revoke(t))
	raft, peers := free(t), free(t)
	c, n := newAlone(t, server, "--tls-client-crl", crl, "--peer-tls-crl", crl, "--http-tls-client-crl", crl,
		"--peer-tls-cert", own.Cert, "--peer-tls-key", own.Key, "--peer-tls-ca", own.CA, "--peer-listen", peers, "--raft-listen", raft)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	stays := c.opened(ctx, good, ca)
	c.opened(ctx, bad, ca)
	ports := map[string]string{"client": n.client, "peer": peers, "raft": raft}
	var conns []func()
	for what, at := range map[string][2]string{
		"gRPC": {n.client, "h2"}, "JSON": {n.client, "http/1.1"}, "peer": {peers, "h2"}, "http": {n.http, "http/1.1"},
	} {
		conn := held(t, at[0], at[1], bad, ca)
		if at[1] == "http/1.1" { // the connection is served once before it is held
			if _, err := conn.Write([]byte("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		conns = append(conns, func() { ends(t, what, conn) })
	}
	voter := held(t, raft, "", bad, ca)
	if _, err := voter.Write([]byte{0}); err != nil { // the type of an incomplete request
		t.Fatal(err)
	}
	conns = append(conns, func() { ends(t, "raft", voter) })
	c.goesOn(ctx, stays, "1")

	write(ca.Revoke(t, bad))
	c.reread(n, "msg=reloaded what=http-tls")
	for _, end := range conns {
		end()
	}
	for what, at := range ports {
		if err := admitted(at, bad, ca); err == nil {
			t.Errorf("the %s port accepts a revoked certificate", what)
		}
		if err := admitted(at, good, ca); err != nil {
			t.Errorf("the %s port refuses another certificate: %v", what, err)
		}
	}
	if code, body := get("https://"+n.http+"/metrics", trusting(bad, ca)); code == http.StatusOK {
		t.Errorf("metrics for a revoked certificate: %s", body[:100])
	}
	if code, body := get("https://"+n.http+"/metrics", trusting(good, ca)); code != http.StatusOK {
		t.Errorf("metrics for another certificate: %d %s", code, body)
	}
	c.goesOn(ctx, stays, "2")
	if !strings.Contains(n.log.String(), "is revoked") {
		t.Error("the log has no reason for a refused connection")
	}
}

// When an identity is removed from the policy, its live connections end; others continue.
func TestAnIdentityThatLeavesThePolicyIsCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("runs etcd and a node")
	}
	ca := certtest.NewCA(t, "ca")
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(who string) {
		t.Helper()
		text := "roles: {all: [{verbs: [read, watch, write], all: true}]}\nidentities: [{match: [" + who + "], roles: [all]}]\n"
		if err := errors.Join(os.WriteFile(policy+"~", []byte(text), 0o600), os.Rename(policy+"~", policy)); err != nil {
			t.Fatal(err)
		}
	}
	write(`"cn:good", "cn:bad"`)
	c, n := newAlone(t, certtest.NewFiles(t, ca.Issue(t, "server"), ca), "--policy", policy)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	good, bad := ca.Issue(t, "good"), ca.Issue(t, "bad")
	stays, leaves := c.opened(ctx, good, ca), c.opened(ctx, bad, ca)
	idle := held(t, n.client, "h2", bad, ca)
	c.goesOn(ctx, stays, "1")

	write(`"cn:good"`)
	c.reread(n, "msg=reloaded what=policy")
	ends(t, "an idle connection", idle)
	var err error
	for err == nil {
		_, err = leaves.native.Next(ctx)
	}
	if !errors.Is(err, client.ErrDenied) {
		t.Errorf("the watch ended with %v", err)
	}
	c.goesOn(ctx, stays, "2")
	c.eventually("the audit log names the connection that ended", func() bool {
		return strings.Contains(n.log.String(), "the policy leaves cn:bad no right: its connection ends")
	})
}

// With {node} in --peer-tls-allowed-san each node proves its own name to the others, and
// no node starts with the certificate of another node.
func TestNodesHaveCertificatesOfTheirOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs etcd and three nodes")
	}
	own := make([]certtest.Files, 3)
	c := newSecureClusterWith(t, func(c *secureCluster, i int) []string {
		name := fmt.Sprintf("n%d", i)
		own[i] = certtest.NewFiles(t, c.ca.Issue(t, name, name+".peers.internal"), c.ca)
		return []string{"--peer-tls-allowed-san", "{node}.peers.internal", "--peer-tls-cert", own[i].Cert, "--peer-tls-key", own[i].Key}
	})
	c.ready()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := c.dial(c.ca.Issue(t, "someone"), c.ca).Put(ctx, "/a", []byte("b")); err != nil {
		t.Fatal(err)
	}
	n := c.nodes[0]
	if code := n.stop(); code != exitDone {
		t.Fatalf("exit code %d", code)
	}
	var out syncBuffer
	args := append(slices.Clone(n.args), "--peer-tls-cert", own[1].Cert, "--peer-tls-key", own[1].Key)
	if code := execute(ctx, process{hostname: os.Hostname, stdout: &out, stderr: &out}, args); code == exitDone {
		t.Error("a node starts with the certificate of another node")
	}
	if text := out.String(); !strings.Contains(text, "must carry n0.peers.internal (--peer-tls-allowed-san)") {
		t.Errorf("the error does not name the required certificate name:\n%s", text)
	}
}
