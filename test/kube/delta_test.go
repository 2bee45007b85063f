package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestDeltaOff watches from a version below the windows of two nodes. The one with --kube-delta off
// answers 410 with the apiserver's reason, the other one sends the difference.
func TestDeltaOff(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	nodes := map[string]*node{}
	for _, delta := range []string{"on", "off"} {
		nodes[delta] = c.node(t, delta, []string{a.url}, append(c.proxy(t), "--window-time", "1s", "--window-bytes", "1MiB", "--kube-delta", delta, "--kube-preload", "configmaps.v1/json")...)
	}
	const path = "/api/v1/namespaces/default/configmaps"
	large := strings.Repeat("x", 40_000) // more than 1/32 of a window, which evicts it as a whole
	create := func(name string) string {
		code, _, answer := c.do(t, http.MethodPost, a.url+path, "", fmt.Sprintf(`{"metadata":{"name":%q},"data":{"large":%q}}`, name, large))
		if code != http.StatusCreated {
			t.Fatalf("%d %s", code, answer)
		}
		_, version, _ := strings.Cut(answer, `"resourceVersion":"`)
		version, _, _ = strings.Cut(version, `"`)
		return version
	}
	since := create("first")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	watch := func(delta string) (code int, answer string) {
		n++
		create(fmt.Sprintf("n-%d", n)) // older events are evicted from the windows
		code, _, answer = c.do(t, http.MethodGet, "https://"+nodes[delta].kube+path+"?watch=1&timeoutSeconds=1&resourceVersion="+since, "", "")
		return code, answer
	}
	eventually(ctx, t, "410 with off", func() error {
		if code, answer := watch("off"); code != http.StatusGone || !strings.Contains(answer, `"reason":"Expired"`) {
			return fmt.Errorf("%d %.500s", code, answer)
		}
		return nil
	})
	eventually(ctx, t, "the difference with on", func() error {
		if code, answer := watch("on"); code != http.StatusOK || !strings.Contains(answer, `"name":"n-1"`) {
			t.Fatalf("with on: %d %.500s", code, answer)
		}
		text, err := nodes["on"].get(ctx, "/metrics")
		for _, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "shardwatch_kube_differences_total") && strings.Contains(line, `"continued"`) && !strings.HasSuffix(line, " 0") {
				return nil
			}
		}
		return fmt.Errorf("the window has the version still, or %w", err)
	})
}
