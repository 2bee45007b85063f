package kube_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// managed waits until a cache of controller-runtime has the config maps of an apiserver, at
// their versions.
func managed(ctx context.Context, t *testing.T, all ctrlcache.Cache, set *kubernetes.Clientset) {
	t.Helper()
	list, err := set.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for i := range list.Items {
		want[list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	eventually(ctx, t, "controller-runtime's cache has all config maps", func() error {
		var held corev1.ConfigMapList
		if err := all.List(ctx, &held, client.InNamespace("default")); err != nil {
			return err
		}
		if len(held.Items) != len(want) {
			return fmt.Errorf("%d config maps, want %d", len(held.Items), len(want))
		}
		for i := range held.Items {
			if m := &held.Items[i]; want[m.Name] != m.ResourceVersion {
				return fmt.Errorf("%s at version %s, want %q", m.Name, m.ResourceVersion, want[m.Name])
			}
		}
		return nil
	})
}

// TestControllerRuntime runs a cache of controller-runtime at three nodes. The apiserver is
// restarted, each node is killed, and the cache does not list again.
func TestControllerRuntime(t *testing.T) {
	c := newCluster(t)
	behind, beside := c.apiserver(t), c.apiserver(t)
	writer := c.clients(t, beside.url, nil)
	r := rand.New(rand.NewPCG(23, 24))
	churn(t, writer, r, 40)
	nodes := c.shared(t, []string{behind.url}, []string{"a", "b", "c"}, "--drain-timeout", "5s")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var lists listing
	all, err := ctrlcache.New(&rest.Config{
		Host: balancer(t, nodes...), BearerToken: c.token, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.PEM},
		WrapTransport: lists.wrap, Dial: new(net.Dialer).DialContext,
	}, ctrlcache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- all.Start(ctx) }()
	managed(ctx, t, all, writer)
	first := lists.n.Load()
	if first == 0 {
		t.Fatal("lists are not counted")
	}
	behind.kill()
	churn(t, writer, r, 30)
	behind.start(t)
	managed(ctx, t, all, writer)
	for _, n := range nodes {
		n.kill()
		churn(t, writer, r, 30)
		managed(ctx, t, all, writer)
		n.start(t)
	}
	if again := lists.n.Load() - first; again != 0 {
		t.Errorf("%d lists again", again)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
