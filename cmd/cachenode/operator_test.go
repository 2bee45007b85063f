package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/admin"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
)

// With a policy, metrics, the status page and profiles need operator:read: a certificate of
// the CA is not enough. operator:read does not allow orders.
func TestMetricsAreForOperators(t *testing.T) {
	if testing.Short() {
		t.Skip("runs etcd and a node")
	}
	ca := certtest.NewCA(t, "ca")
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	const rules = `roles:
  all: [{verbs: [read, watch, write], all: true}]
  look: [{verbs: [operator:read]}]
  order: [{verbs: [operator:write]}]
identities:
  - {match: ["cn:prometheus"], roles: [look]}
  - {match: ["cn:web"], roles: [all]}
  - {match: ["cn:robot"], roles: [order]}
`
	if err := os.WriteFile(policy, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	c, n := newAlone(t, certtest.NewFiles(t, ca.Issue(t, "server"), ca), "--policy", policy, "--pprof")
	for name, may := range map[string]bool{"prometheus": true, "web": false, "robot": false, "stranger": false, "": false} {
		var leaf certtest.Leaf
		if name != "" {
			leaf = ca.Issue(t, name)
		}
		for _, path := range []string{"/metrics", "/", "/debug/pprof/cmdline"} {
			code, body := get("https://"+n.http+path, trusting(leaf, ca))
			if (code == http.StatusOK) != may || !may && (code != http.StatusForbidden || !strings.Contains(body, "use operator:read")) {
				t.Errorf("%s for %q: %d %.200s; may: %t", path, name, code, body, may)
			}
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			if code, body := get("https://"+n.http+path, trusting(leaf, ca)); code != http.StatusOK {
				t.Errorf("%s for %q: %d %s", path, name, code, body)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for name, may := range map[string]struct{ look, order bool }{
		"prometheus": {look: true}, "robot": {order: true}, "web": {},
	} {
		cl := c.dial(ca.Issue(t, name), ca)
		verdict := func(what string, err error, may bool) {
			t.Helper()
			if may && err != nil || !may && !errors.Is(err, client.ErrDenied) {
				t.Errorf("%s by %s: %v; may: %t", what, name, err, may)
			}
		}
		_, err := admin.New(cl).ClusterStatus(ctx, 10*time.Second)
		verdict("a look at the cluster", err, may.look)
		const no = 1 << 40 // a lineage that does not exist: the order changes nothing
		if _, err = admin.New(cl).BumpLineage(ctx, no, "test", ""); errors.Is(err, client.ErrLineage) {
			err = nil
		}
		verdict("an order", err, may.order)
	}
}
