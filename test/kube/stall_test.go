package kube_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/kube/api"
)

// stalling is the store of a reflector, which accepts no event while it is blocked.
type stalling struct {
	cache.Store
	hold  sync.Mutex
	lists atomic.Int32
}

func (s *stalling) Add(o any) error {
	s.hold.Lock()
	defer s.hold.Unlock()
	return s.Store.Add(o)
}

func (s *stalling) Replace(all []any, version string) error {
	s.lists.Add(1)
	return s.Store.Replace(all, version)
}

// TestAStalledReflectorResumes blocks the store of a reflector until the node has ended its watch.
// The reflector resumes and does not list again.
func TestAStalledReflectorResumes(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	var held *budget.Budget
	x := c.tier(t, func(cfg *api.Config) { cfg.WriteTime, held = 300*time.Millisecond, cfg.Budget }, nil, a.url)
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the node's own server: x.url is of net/http's
	if err != nil {
		t.Fatal(err)
	}
	secure := &tls.Config{Certificates: []tls.Certificate{c.ca.Issue(t, "port").Pair}, ClientCAs: certtest.Pool(c.ca), ClientAuth: tls.VerifyClientCertIfGiven, NextProtos: []string{"h2"}}
	serving, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- x.server.Serve(serving, ln, secure, time.Second) }()
	defer func() {
		stop()
		<-served
	}()
	maps := c.clients(t, a.url, nil).CoreV1().ConfigMaps("default")
	store := &stalling{Store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	reading := c.clients(t, "https://"+ln.Addr().String(), func(cfg *rest.Config) { cfg.ContentType = "application/json" })
	lw := inPages{cache.NewListWatchFromClient(reading.CoreV1().RESTClient(), "configmaps", "default", fields.Everything())}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	running := make(chan struct{})
	go func() {
		defer close(running)
		cache.NewReflectorWithOptions(lw, &corev1.ConfigMap{}, store, cache.ReflectorOptions{}).RunWithContext(ctx)
	}()
	open := func(want bool) {
		t.Helper()
		eventually(ctx, t, fmt.Sprintf("a watch is open: %t", want), func() error {
			if n := held.Held(budget.Watches); (n > 0) != want {
				return fmt.Errorf("watches hold %d bytes", n)
			}
			return nil
		})
	}
	open(true)
	store.hold.Lock()
	const objects = 20 // 18 MB, and the reflector's connection buffers 4 MiB for a watch
	for i := range objects {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", i)}, Data: map[string]string{"large": strings.Repeat("x", 900_000)}}
		if _, err := maps.Create(ctx, m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	open(false)
	store.hold.Unlock()
	eventually(ctx, t, "the reflector has all objects", func() error {
		if n := len(store.ListKeys()); n != objects {
			return fmt.Errorf("it has %d objects", n)
		}
		return nil
	})
	if n := store.lists.Load(); n != 1 {
		t.Errorf("the reflector lists %d times", n)
	}
	cancel()
	<-running
}
