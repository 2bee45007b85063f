package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/shardwatch/shardwatch/internal/certtest"
	"github.com/shardwatch/shardwatch/internal/etcdtest"
)

// newAlone starts a node of its own whose client and HTTP ports have the
// certificates in files.
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

// Whether clients need a certificate follows the policy, as long as a node runs:
// who may show a token needs none.
func TestTokensMayComeAndGo(t *testing.T) {
	if testing.Short() {
		t.Skip("runs etcd and a node")
	}
	ca := certtest.NewCA(t, "ca")
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	write := func(file, text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file+"~", []byte(text), 0o600), os.Rename(file+"~", file)); err != nil { // never read half
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
		line   string // of the log, when it was read
		may    bool   // somebody without a certificate connect
	}{
		{"tokens: {issuer: https://us, audience: shardwatch, keys: jwks.json}\n" + rules, "msg=reloaded what=policy", true},
		{"tokens: {}\n", "not reloaded", true},
		{rules, "msg=reloaded what=policy", false},
	} {
		before := strings.Count(n.log.String(), step.line)
		write(policy, step.policy)
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		c.eventually(step.line, func() bool { return strings.Count(n.log.String(), step.line) > before })
		if err := admitted(n.client, certtest.Leaf{}, ca); (err == nil) != step.may {
			t.Errorf("with the policy\n%s: %v, may connect: %t", step.policy, err, step.may)
		}
		if err := admitted(n.client, ca.Issue(t, "someone"), ca); err != nil {
			t.Errorf("somebody with a certificate: %v", err)
		}
	}
}
