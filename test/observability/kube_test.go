package observability_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/freeport"
	"github.com/shardwatch/shardwatch/internal/testing/nodetest"
	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

// A node that serves Kubernetes' API exports every metric of its alerts and its dashboard, and
// those of docs/kubernetes.md, from its start: before an apiserver answers, which is when alerts
// are needed. test/kube compares the document with a node that serves clients.
func TestNodesBeforeApiserversExportTheirMetrics(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts a node")
	}
	k, dir := kinds()[1], t.TempDir()
	ports, err := freeport.Take(5)
	if err != nil {
		t.Fatal(err)
	}
	bin, err := nodetest.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ca := certtest.NewCA(t, "kube")
	files, access := certtest.NewFiles(t, ca.Issue(t, "kube"), ca), filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(access, fmt.Appendf(nil, `{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: "https://%s", certificate-authority: %q}}], users: [{name: a, user: {token: a}}]}`, ports[4], files.CA), 0o600); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "node.log")
	node, err := proc.Start(log, bin, "run", "--name", "a", "--kubeconfig", access, "--kube-preload", "pods.v1",
		"--kube-listen", ports[0], "--http-listen", ports[1], "--peer-listen", ports[2], "--gossip-listen", ports[3], "--join", ports[3],
		"--kube-tls-cert", files.Cert, "--kube-tls-key", files.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Kill)
	for {
		exported, err := metricsAt(t.Context(), ports[1])
		if err == nil {
			for name, of := range inUse(t, k) {
				if exported[name] == nil && !slices.Contains(foreign(), name) {
					t.Errorf("%s of %s: nodes do not export it", name, of)
				}
			}
			return
		}
		select { // it listens soon
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
		}
		if ended := node.Err(); ended != nil || t.Context().Err() != nil {
			text, _ := os.ReadFile(log) // the rest says what is wrong, too
			t.Fatalf("%v, %v\n%s", err, ended, text)
		}
	}
}

// inUse returns the metrics of the files about a kind of nodes, and where they are.
func inUse(t *testing.T, k kind) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name := range k.documented(t) {
		if strings.HasPrefix(name, "shardwatch_kube_") {
			out[name] = k.docs
		}
	}
	for _, a := range alerts(t, k.alerts) {
		for _, name := range metricsOf(a.Expr) {
			out[name] = a.Alert
		}
	}
	for _, p := range dashboardOf(t, k.dashboard).Panels {
		for _, target := range p.Targets {
			for _, name := range metricsOf(target.Expr) {
				out[name] = p.Title
			}
		}
	}
	return out
}
