package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// TestADeletedDefinition runs an informer of a custom resource at each of two nodes that share their watches.
// The definition is deleted: the informers get the deletes of the objects, both nodes stop following the
// resource, and their clients get the apiserver's 404. It is created again: the informers continue.
func TestADeletedDefinition(t *testing.T) {
	c := newCluster(t)
	at := c.apiserver(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	const definitions, all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/example.com/v1/widgets"
	create := func(object string) {
		t.Helper()
		if code, _, answer := c.do(t, http.MethodPost, at.url+definitions, "", widget); code != http.StatusCreated {
			t.Fatalf("%d %s", code, answer)
		}
		eventually(ctx, t, "the object "+object+" is created", func() error {
			body := fmt.Sprintf(`{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": %q}}`, object)
			if code, _, answer := c.do(t, http.MethodPost, at.url+"/apis/example.com/v1/namespaces/default/widgets", "", body); code != http.StatusCreated {
				return fmt.Errorf("%d %s", code, answer)
			}
			return nil
		})
	}
	create("first")
	nodes := c.shared(t, []string{at.url}, []string{"a", "b"})
	var stores []cache.Store
	for _, n := range nodes {
		var access *rest.Config
		c.clients(t, "https://"+n.kube, func(cfg *rest.Config) { access = rest.CopyConfig(cfg) })
		client, err := dynamic.NewForConfig(access)
		if err != nil {
			t.Fatal(err)
		}
		factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, metav1.NamespaceAll, nil)
		informer := factory.ForResource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Informer()
		go informer.RunWithContext(ctx)
		stores = append(stores, informer.GetStore())
	}
	settled := func(when string, follow bool, want ...string) {
		t.Helper()
		for i, n := range nodes {
			eventually(ctx, t, fmt.Sprintf("%s: %s follows widgets: %t, and its informer has %q", when, n.name, follow, want), func() error {
				got, err := n.report(ctx)
				if err != nil {
					return err
				}
				if len(got.Resources) == 1 != follow || follow && got.Resources[0].Watches != 1 {
					return fmt.Errorf("%+v", got.Resources)
				}
				if keys := stores[i].ListKeys(); !slices.Equal(keys, want) {
					return fmt.Errorf("the informer has %q", keys)
				}
				return nil
			})
		}
	}
	settled("at first", true, "default/first")
	if code, _, answer := c.do(t, http.MethodDelete, at.url+definitions+"/widgets.example.com", "", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	settled("without the definition", false)
	for _, n := range nodes {
		want, _, wanted := c.do(t, http.MethodGet, at.url+all, "", "")
		code, _, answer := c.do(t, http.MethodGet, "https://"+n.kube+all, "", "")
		if want != http.StatusNotFound || code != want || answer != wanted {
			t.Errorf("%s answers %d %s, and the apiserver %d %s", n.name, code, answer, want, wanted)
		}
	}
	create("second")
	settled("with a new definition", true, "default/second")
}
