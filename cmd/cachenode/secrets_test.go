package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// A node that logs at every level, and has received valid and invalid passwords,
// tokens, keys and values, does not reveal them in its log, its metrics or its
// configuration.
func TestSecretsStayOutOfLogs(t *testing.T) {
	e := etcdtest.Start(t)
	root := e.AuthOn()
	secrets := map[string]string{
		"root's password": "root-pass-8kq2", "a wrong password": "wrong-pass-3vx9", "a value": "value-7hd4w", "the gossip key": newKey(), "a bad gossip key": "bm90LWEta2V5LTVq",
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := root.UserChangePassword(ctx, "root", secrets["root's password"]); err != nil {
		t.Fatal(err)
	}
	ca := certtest.NewCA(t, "ca")
	server := ca.Issue(t, "server", role)
	files := certtest.NewFiles(t, server, ca)
	secrets["the private key"] = strings.Split(string(server.Key), "\n")[1]
	raw, err := base64.StdEncoding.DecodeString(secrets["the gossip key"])
	if err != nil {
		t.Fatal(err)
	}
	secrets["the gossip key's bytes"] = fmt.Sprintf("%x", raw)
	dir := t.TempDir()
	password, keys := filepath.Join(dir, "password"), filepath.Join(dir, "keys")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(password, secrets["root's password"]+"\n")
	write(keys, secrets["the gossip key"])

	at, http := free(t), free(t)
	args := []string{
		"--name", "n", "--data-dir", filepath.Join(dir, "data"), "--bootstrap-expect", "1", "--etcd", e.Endpoint(),
		"--etcd-user", "root", "--etcd-password-file", password, "--log-level", "debug",
		"--listen", at, "--peer-listen", free(t), "--raft-listen", free(t), "--gossip-listen", free(t), "--http-listen", http,
		"--tls-cert", files.Cert, "--tls-key", files.Key, "--peer-tls-cert", files.Cert, "--peer-tls-key", files.Key, "--peer-tls-ca", files.CA,
		"--gossip-key-file", keys,
	}
	log := &syncBuffer{}
	p := process{hostname: os.Hostname, stdout: log, stderr: log}
	if code := execute(ctx, p, append([]string{"config"}, args...)); code != exitDone {
		t.Fatalf("exit code %d:\n%s", code, log)
	}
	running, stop := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() { ended <- execute(running, p, append([]string{"run"}, args...)) }()
	if !awaitReady(ctx, []string{"http://" + http + "/readyz"}) {
		t.Fatalf("not ready:\n%s", log)
	}
	dial := func(password string) *client.Client {
		c, err := client.New(client.Config{
			Endpoints: []string{at}, Username: "root", Password: password, TLS: &tls.Config{RootCAs: certtest.Pool(ca)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	good, bad := dial(secrets["root's password"]), dial(secrets["a wrong password"])
	if _, err := good.Put(ctx, "/a", []byte(secrets["a value"])); err != nil {
		t.Error(err)
	}
	if _, err := good.Get(ctx, "/a"); err != nil {
		t.Error(err)
	}
	if _, err := bad.Get(ctx, "/a"); err == nil {
		t.Error("a wrong password was accepted")
	}
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: certtest.Pool(ca)})))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	login, err := etcdserverpb.NewAuthClient(conn).Authenticate(ctx, &etcdserverpb.AuthenticateRequest{Name: "root", Password: secrets["root's password"]})
	if err != nil {
		t.Fatal(err)
	}
	secrets["a token"] = login.GetToken()
	with := metadata.AppendToOutgoingContext(ctx, "token", login.GetToken())
	if _, err := etcdserverpb.NewKVClient(conn).Range(with, &etcdserverpb.RangeRequest{Key: []byte("/a")}); err != nil {
		t.Error(err)
	}

	write(keys, secrets["the gossip key"]+"\n"+secrets["a bad gossip key"])
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(log.String(), keys+":2 does not hold") {
		if ctx.Err() != nil {
			t.Fatalf("the bad key was not logged:\n%s", log)
		}
		time.Sleep(10 * time.Millisecond)
	}
	_, metrics := get("http://"+http+"/metrics", nil)
	_, _ = good.Close(), bad.Close()
	stop()
	if code := <-ended; code != exitDone {
		t.Errorf("exit code %d", code)
	}
	for name, secret := range secrets {
		for where, text := range map[string]string{"log": log.String(), "metrics": metrics} {
			for line := range strings.Lines(text) {
				if strings.Contains(line, secret) {
					t.Errorf("%s is in the %s: %s", name, where, line)
				}
			}
		}
	}
	if !strings.Contains(log.String(), "level=DEBUG") || !strings.Contains(metrics, "shardwatch_") {
		t.Error("the test needs debug logs and metrics")
	}
}
