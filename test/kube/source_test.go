package kube_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// followed is a cache of a resource.
type followed struct {
	*cache.Cache
	client *source.Client
	r      source.Resource

	mu     sync.Mutex
	lost   []string                 // guarded by mu
	others []*kv.ContradictionError // guarded by mu
}

// follow runs a cache of config maps until the test ends.
func (c *cluster) follow(t *testing.T, enc object.Encoding, servers ...string) *followed {
	t.Helper()
	return c.followOf(t, source.Resource{Version: "v1", Name: "configmaps", Encoding: enc}, servers...)
}

// followOf runs a cache of a resource until the test ends.
func (c *cluster) followOf(t *testing.T, r source.Resource, servers ...string) *followed {
	t.Helper()
	cfg := source.Defaults()
	cfg.Servers, cfg.HTTP, cfg.Token = servers, c.client, func() (string, error) { return c.token, nil }
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	client, err := source.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{client: client, r: r}
	held := cache.Defaults()
	held.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	held.Range = f.r.InNamespace("")
	held.Source = client.Source(f.r, func(_, _ kv.Revision, held []*kv.KeyValue) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, item := range held {
			f.lost = append(f.lost, string(item.Key()))
		}
	})
	held.OtherHistory = func(e *kv.ContradictionError) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.others = append(f.others, e)
	}
	f.Cache = cache.New(held)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = f.Run(ctx) // nil, once ctx ends
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return f
}

// equals waits until the cache has an apiserver's current objects, and compares the two at that
// version.
func (f *followed) equals(t *testing.T, set *kubernetes.Clientset) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want, err := set.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	version := kv.Revision(0)
	if _, err := fmt.Sscan(want.ResourceVersion, &version); err != nil {
		t.Fatal(err)
	}
	state, err := f.At(ctx, version)
	if err != nil {
		t.Fatalf("%v at version %d, progress %d: %v", f.r, version, f.Progress(), err)
	}
	byEncoding := codecs(t)
	c := byEncoding[slices.IndexFunc(byEncoding, func(c codec) bool { return c.enc == f.r.Encoding })]
	if state.Len() != len(want.Items) {
		t.Errorf("%v: %d objects, want %d", f.r, state.Len(), len(want.Items))
	}
	for i := range want.Items {
		w := &want.Items[i]
		item := state.Get(f.r.Key(w.Namespace, w.Name))
		if item == nil {
			t.Errorf("%v: %s/%s is missing", f.r, w.Namespace, w.Name)
			continue
		}
		got := c.decode(t, item.Value()).(*corev1.ConfigMap)
		got.TypeMeta = metav1.TypeMeta{}
		if !equality.Semantic.DeepEqual(got, w) {
			t.Errorf("%v: got %+v\nwant %+v", f.r, got, w)
		}
	}
}

// churn creates, changes and deletes config maps.
func churn(t *testing.T, set *kubernetes.Clientset, r *rand.Rand, writes int) {
	t.Helper()
	maps := set.CoreV1().ConfigMaps("default")
	for range writes {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", r.IntN(20)), Labels: map[string]string{"parity": fmt.Sprint(r.IntN(2))}},
			Data:       map[string]string{"value": fmt.Sprint(r.Int64())},
		}
		_, err := maps.Create(t.Context(), m, metav1.CreateOptions{})
		switch {
		case err == nil:
		case r.IntN(2) == 0:
			err = maps.Delete(t.Context(), m.Name, metav1.DeleteOptions{})
		default:
			_, err = maps.Update(t.Context(), m, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSourceSurvivesItsApiservers follows config maps in both encodings while apiservers are
// killed: it continues with another one without a list, and if none has the history, across the
// gap.
func TestSourceSurvivesItsApiservers(t *testing.T) {
	c := newCluster(t)
	a, b := c.apiserver(t), c.apiserver(t)
	throughA, throughB := c.clients(t, a.url, nil), c.clients(t, b.url, nil)
	r := rand.New(rand.NewPCG(9, 10))
	churn(t, throughA, r, 50)
	var both, alone []*followed
	for _, enc := range []object.Encoding{object.JSON, object.Protobuf} {
		both = append(both, c.follow(t, enc, a.url, b.url))
		alone = append(alone, c.follow(t, enc, a.url))
	}
	all := append(slices.Clone(both), alone...)
	for _, f := range all {
		f.equals(t, throughA)
	}
	churn(t, throughB, r, 100)
	for _, f := range all {
		f.equals(t, throughA)
		if s := f.Status(); s.Resets != 0 || s.Batches == 0 {
			t.Errorf("%v: %d resets and %d batches before anything has failed", f.r, s.Resets, s.Batches)
		}
	}

	a.kill()
	churn(t, throughB, r, 100)
	for _, f := range both {
		f.equals(t, throughB)
		if s := f.Status(); s.Resets != 0 {
			t.Errorf("%v: %d resets although the other apiserver reaches back", f.r, s.Resets)
		}
	}
	// Deleted without an event for followers of the first apiserver only.
	if err := throughB.CoreV1().ConfigMaps("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	churn(t, throughB, r, 5)
	a.start(t)
	for _, f := range alone {
		f.equals(t, throughB)
		s := f.Status()
		f.mu.Lock()
		lost := len(f.lost)
		f.mu.Unlock()
		if s.Leaps == 0 || lost == 0 {
			t.Errorf("%v: %d leaps and %d lost objects after a restart that left a gap", f.r, s.Leaps, lost)
		}
	}
	for _, f := range all {
		f.mu.Lock()
		if len(f.others) > 0 {
			t.Errorf("%v: another history: %v", f.r, f.others[0])
		}
		f.mu.Unlock()
	}
}

// TestQuietResourceHasProgress waits for a version without an event of the resource: only a
// bookmark shows that the cache has reached it.
func TestQuietResourceHasProgress(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	set := c.clients(t, a.url, nil)
	f := c.follow(t, object.Protobuf, a.url)
	<-f.Ready()
	for n := range 3 {
		// Advances the versions of the cluster and not of config maps.
		space := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", n)}}
		if _, err := set.CoreV1().Secrets("default").Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		version, err := f.client.Current(t.Context(), f.r)
		if err != nil {
			t.Fatal(err)
		}
		before := f.Progress()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := f.WaitProgress(ctx, version); err != nil {
			t.Fatalf("progress %d, want %d (before: %d): %v", f.Progress(), version, before, err)
		}
	}
	f.equals(t, set)
}

// TestEventsThatExpireTogether deletes Events in one revision of etcd, like the end of a lease.
// Their apiserver sends a delete with the same version for each.
func TestEventsThatExpireTogether(t *testing.T) {
	c := newCluster(t)
	a := c.apiserver(t)
	set := c.clients(t, a.url, nil)
	var all []*followed
	for _, enc := range []object.Encoding{object.JSON, object.Protobuf} {
		all = append(all, c.followOf(t, source.Resource{Version: "v1", Name: "events", Encoding: enc}, a.url))
		<-all[len(all)-1].Ready()
	}
	const events = 20
	for n := range events {
		e := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("e-%d", n)},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p"},
		}
		if _, err := set.CoreV1().Events("default").Create(t.Context(), e, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{c.etcd.Endpoint()}, DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	gone, err := etcd.Delete(t.Context(), "/registry/events/default/", clientv3.WithPrefix())
	if err != nil || gone.Deleted != events {
		t.Fatalf("%v, %v", gone, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, f := range all {
		state, err := f.At(ctx, kv.Revision(gone.Header.Revision))
		if err != nil || state.Len() != 0 {
			t.Errorf("%v: %d of %d Events are left, %v", f.r, state.Len(), events, err)
		}
	}
}
