package kube_test

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestEndToEnd runs Kubernetes' own end-to-end tests of watches, chunks and streaming lists at a
// node that forwards writes. docs/kubernetes.md lists the ones that cannot run here, with the
// reasons.
func TestEndToEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes, which CI does not have")
	}
	bin := builtOnce(t, "testdata/e2e", "e2e", func(string) []string { return []string{"test", "-c", "."} })
	t.Run("fast", func(t *testing.T) {
		c := newCluster(t)
		endToEnd(t, bin, c, c.before(t), 15, `Watchers|API chunking|API Streaming|CustomResourceDefinition Watch`, `\[Slow\]`)
	})
	// A list in chunks whose version is evicted from the window between two of them. Events of
	// another object evict it; an apiserver would need 10 minutes for it.
	t.Run("expired chunks", func(t *testing.T) {
		c := newCluster(t)
		n := c.before(t, "--window-time", "10s")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		templates := c.clients(t, "https://"+n.kube, nil).CoreV1().PodTemplates("default")
		other := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}
		if _, err := templates.Create(ctx, other, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var writing sync.WaitGroup
		defer func() { cancel(); writing.Wait() }()
		writing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"turn":"%d"}}}`, i)
				if _, err := templates.Patch(ctx, "other", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
		})
		endToEnd(t, bin, c, n, 1, `should support continue listing from the last key`, `^$`)
	})
}

// before starts an apiserver and a node in front of it.
func (c *cluster) before(t *testing.T, args ...string) *node {
	t.Helper()
	a := c.apiserver(t)
	return c.node(t, "x", []string{a.url}, append(append(c.proxy(t), "--kube-serve-secrets"), args...)...)
}

var (
	specsRan    = regexp.MustCompile(`^Ran (\d+) of`)
	specsResult = regexp.MustCompile(`^(Ran |FAIL!|SUCCESS!|\[FAIL\]|• |\[sig-)`)
)

// endToEnd runs the given number of end-to-end tests, selected by two expressions. They do not wait for
// service accounts and for the end of namespaces, which need a controller.
func endToEnd(t *testing.T, bin string, c *cluster, n *node, specs int, focus, skip string) {
	t.Helper()
	c.write(t, "e2e.kubeconfig", fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: %q, certificate-authority: %q}}], users: [{name: a, user: {token: %q}}]}`, "https://"+n.kube, filepath.Join(c.dir, "ca.pem"), c.token))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-kubeconfig", filepath.Join(c.dir, "e2e.kubeconfig"), "-provider", "skeleton",
		"-e2e-verify-service-account=false", "-delete-namespace=false", "-dump-logs-on-failure=false",
		"-ginkgo.focus", focus, "-ginkgo.skip", skip, "-ginkgo.v", "-ginkgo.no-color", "-test.v", "-test.timeout=30m")
	cmd.Dir = t.TempDir()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	ran, seen := 0, ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		all.WriteString(line + "\n")
		if found := specsRan.FindStringSubmatch(line); found != nil {
			ran, _ = strconv.Atoi(found[1])
		}
		if specsResult.MatchString(line) && line != seen {
			seen = line
			t.Log(line)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, all.String())
	}
	if ran != specs {
		t.Errorf("%d end-to-end tests ran, want %d", ran, specs)
	}
}
