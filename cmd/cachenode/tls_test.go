package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/etcdtest"
)

// credentials are the PEM files of a test.
type credentials struct {
	ca, cert, key string
	pair          tls.Certificate
	pool          *x509.CertPool
}

// newCredentials makes a CA, and a certificate for 127.0.0.1 on both sides of
// a connection.
func newCredentials(t *testing.T) credentials {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		must(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	c := credentials{
		ca: write("ca.pem", "CERTIFICATE", caDER), cert: write("cert.pem", "CERTIFICATE", leafDER),
		key: write("key.pem", "PRIVATE KEY", keyDER), pool: x509.NewCertPool(),
	}
	c.pair, err = tls.LoadX509KeyPair(c.cert, c.key)
	must(err)
	parsed, err := x509.ParseCertificate(caDER)
	must(err)
	c.pool.AddCert(parsed)
	return c
}

// secureEtcd runs an etcd process that takes none but clients with our
// certificates.
func secureEtcd(t *testing.T, c credentials) (endpoint string) {
	t.Helper()
	binary, err := etcdtest.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	address := free(t)
	url := "https://" + address
	log, err := os.Create(filepath.Join(t.TempDir(), "etcd.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "--data-dir", t.TempDir(), "--unsafe-no-fsync",
		"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", "http://"+free(t),
		"--cert-file", c.cert, "--key-file", c.key, "--trusted-ca-file", c.ca, "--client-cert-auth")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return url
}

// Every connection can be encrypted: clients, nodes, voters and etcd, with
// certificates wanted on both sides; and who has none is not let in.
func TestTLSOnEveryPort(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs etcd and three nodes")
	}
	c := newCredentials(t)
	endpoint := secureEtcd(t, c)
	gossip := []string{free(t), free(t), free(t)}
	var clients, peers []string
	for i := range 3 {
		at := map[string]string{"listen": free(t), "peer-listen": free(t), "raft-listen": free(t), "gossip-listen": gossip[i], "http-listen": free(t)}
		clients, peers = append(clients, at["listen"]), append(peers, at["peer-listen"], at["raft-listen"])
		args := []string{
			"run", "--name", fmt.Sprintf("n%d", i), "--data-dir", t.TempDir(), "--bootstrap-expect", "3", "--join", gossip[(i+1)%3],
			"--etcd", endpoint, "--etcd-ca", c.ca, "--etcd-cert", c.cert, "--etcd-key", c.key,
			"--tls-cert", c.cert, "--tls-key", c.key, "--tls-client-ca", c.ca,
			"--peer-tls-cert", c.cert, "--peer-tls-key", c.key, "--peer-tls-ca", c.ca,
		}
		for flag, address := range at {
			args = append(args, "--"+flag, address)
		}
		ctx, stop := context.WithCancel(t.Context())
		var log strings.Builder
		ended := make(chan int, 1)
		go func() {
			ended <- execute(ctx, process{hostname: os.Hostname, stdout: &log, stderr: &log}, args)
		}()
		t.Cleanup(func() {
			stop()
			if code := <-ended; code != exitDone || t.Failed() {
				t.Errorf("n%d: exit code %d:\n%s", i, code, log.String())
			}
		})
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cl, err := client.New(client.Config{
		Endpoints: clients, RetryFor: time.Minute,
		TLS: &tls.Config{RootCAs: c.pool, Certificates: []tls.Certificate{c.pair}, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cl.Close() }()
	w := cl.Watch(ctx, client.Prefix("/"))
	select {
	case <-w.Started():
	case <-ctx.Done():
		t.Fatal("no watch within two minutes")
	}
	revision, err := cl.Put(ctx, "/a", []byte("b"))
	if err != nil {
		t.Fatal(err)
	}
	for u, err := range w.Updates() {
		if err != nil {
			t.Fatal(err)
		}
		if u.Kind == client.KindBatch {
			if u.Revision != revision || string(u.Events[0].KV.Value) != "b" {
				t.Fatalf("got %+v", u)
			}
			break
		}
	}
	// All three serve, so the followers had the owners' streams.
	for _, at := range clients {
		for {
			s, err := cl.Status(ctx, at)
			if err == nil && len(s.NotReady) == 0 {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%s: %+v, %v", at, s, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	for _, at := range append(clients, peers...) {
		conn, err := tls.Dial("tcp", at, &tls.Config{RootCAs: c.pool, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}})
		if err != nil {
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		// With TLS 1.3 the server's refusal comes with the first read.
		if _, err := conn.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s lets in a client without a certificate: %v", at, err)
		}
		_ = conn.Close()
	}
}

// ports are those that free has returned.
var ports sync.Map

// free returns an address that nobody listens on, that no other call returns,
// and that the system gives to no connection meanwhile: below the ports that it
// gives out, and those of other packages' tests.
func free(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+mathrand.IntN(4_000))
		if _, taken := ports.LoadOrStore(address, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}
