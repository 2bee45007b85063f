package controllerruntime_test

import (
	"context"
	"path"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/shardwatch/shardwatch/adapters/controllerruntime"
	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/mirror"
)

// A controller of controller-runtime reconciles the keys of the state and then each changed
// key, also if it changes while the mirror's node is dead.
func TestControllerReconcilesKeys(t *testing.T) {
	cluster, err := clienttest.Start(clienttest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	c, err := client.New(client.Config{Endpoints: cluster.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cluster.Put("/routes/a", "1")
	cluster.Put("/routes/b", "1")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	local := mirror.New(ctx, c, client.Prefix("/routes/"))

	m, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{ // no Kubernetes object is read
		Metrics: server.Options{BindAddress: "0"}, MapperProvider: noMapper,
	})
	if err != nil {
		t.Fatal(err)
	}
	type seen struct{ key, value string }
	told := make(chan seen)
	ctrl, err := controller.New("routes", m, controller.Options{SkipNameValidation: new(true), Reconciler: reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		kv, ok := local.Get("/routes/" + r.Name)
		s := seen{r.Name, string(kv.Value)}
		if !ok {
			s.value = "deleted"
		}
		select {
		case told <- s:
		case <-ctx.Done():
		}
		return reconcile.Result{}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	source := controllerruntime.Keys(local, func(key string) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: path.Base(key)}}}
	})
	if err := ctrl.Watch(source); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()

	expect := func(want map[string]string) { // a key may be reconciled more than once
		t.Helper()
		for len(want) > 0 {
			select {
			case s := <-told:
				if want[s.key] == s.value {
					delete(want, s.key)
				}
			case err := <-ended:
				t.Fatalf("the manager ended: %v", err)
			}
		}
	}
	expect(map[string]string{"a": "1", "b": "1"})
	for _, n := range cluster.Nodes()[1:] {
		n.Kill()
	}
	cluster.Put("/routes/a", "2")
	cluster.Delete("/routes/b")
	cluster.Put("/routes/c", "1")
	expect(map[string]string{"a": "2", "b": "deleted", "c": "1"})
	if err := source.Start(ctx, nil); err == nil {
		t.Error("started twice")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
