package kube_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/files/certtest"
	"github.com/shardwatch/shardwatch/internal/kube/api"
	"github.com/shardwatch/shardwatch/internal/kube/guard"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kube/upstream"
)

// tier is the tier's API in front of apiservers, with a count of its requests.
type tier struct {
	url    string
	server *api.Server

	mu     sync.Mutex
	lists  map[string]int // guarded by mu; by User-Agent: lists, and watches that begin with the state
	passed map[string]int // guarded by mu; requests forwarded to an apiserver, by verb and path
}

func (c *cluster) tier(t *testing.T, change func(*api.Config), tune func(*guard.Config), servers ...string) *tier {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	from := source.Defaults()
	from.Servers, from.HTTP, from.Logger = servers, c.client, logger
	from.Token = func() (string, error) { return c.token, nil }
	client, err := source.New(from)
	if err != nil {
		t.Fatal(err)
	}
	reviews := guard.Defaults()
	reviews.Apiservers, reviews.Logger = client, logger
	if tune != nil {
		tune(&reviews)
	}
	guards, err := guard.New(reviews)
	if err != nil {
		t.Fatal(err)
	}
	tier := &tier{lists: map[string]int{}, passed: map[string]int{}}
	proxy := c.front.Issue(t, "front-proxy")
	upgrades := c.transport(t, proxy)
	upgrades.ForceAttemptHTTP2 = false
	passes := upstream.New(upstream.Config{Source: client, Streams: c.transport(t, proxy), Upgrades: upgrades, Logger: logger})
	cfg := api.Defaults()
	cfg.Source, cfg.Logger = client, logger
	cfg.Upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tier.mu.Lock()
		tier.passed[r.Method+" "+r.URL.String()+" "+r.Header.Get("Accept")]++
		tier.mu.Unlock()
		passes.ServeHTTP(w, r)
	})
	cfg.Guard, cfg.Budget = guards, budget.New(64<<20)
	if change != nil {
		change(&cfg)
	}
	server, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tier.server = server
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Run(ctx) // nil, once ctx ends
	}()
	front := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps") && (query.Get("watch") == "" || query.Get("sendInitialEvents") != "") {
			tier.mu.Lock()
			tier.lists[r.UserAgent()]++
			tier.mu.Unlock()
		}
		server.ServeHTTP(w, r)
	}))
	front.EnableHTTP2 = true
	front.TLS = &tls.Config{Certificates: []tls.Certificate{c.ca.Issue(t, "tier").Pair}, ClientCAs: certtest.Pool(c.ca), ClientAuth: tls.VerifyClientCertIfGiven}
	front.StartTLS()
	tier.url = front.URL
	t.Cleanup(func() {
		tier.mu.Lock()
		for request, n := range tier.passed {
			t.Logf("passed on %d times: %s", n, request)
		}
		tier.mu.Unlock()
		cancel()
		<-ended
		front.CloseClientConnections()
		front.Close()
	})
	return tier
}

// counted returns the lists of all clients.
func (x *tier) counted() (lists int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range x.lists {
		lists += n
	}
	return lists
}

// informer is an informer of config maps and the updates of its handlers.
type informer struct {
	name  string
	store cache.Store
	// match reports whether an object matches it; nil: all match.
	selector string

	mu      sync.Mutex
	known   map[string]string // guarded by mu; the version of each key, by the handlers
	wrong   []string          // guarded by mu
	deletes int               // guarded by mu
}

func meta(o any) metav1.Object {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	return o.(metav1.Object)
}

func (n *informer) told(format string, args ...any) {
	n.wrong = append(n.wrong, fmt.Sprintf(format, args...))
}

func (n *informer) OnAdd(o any, _ bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := meta(o)
	if v, ok := n.known[m.GetName()]; ok {
		n.told("%s was added at %s and is there at %s", m.GetName(), m.GetResourceVersion(), v)
	}
	n.known[m.GetName()] = m.GetResourceVersion()
}

func (n *informer) OnUpdate(_, o any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := meta(o)
	if _, ok := n.known[m.GetName()]; !ok {
		n.told("%s was changed at %s and is not there", m.GetName(), m.GetResourceVersion())
	}
	n.known[m.GetName()] = m.GetResourceVersion()
}

func (n *informer) OnDelete(o any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := meta(o)
	if _, ok := n.known[m.GetName()]; !ok {
		n.told("%s was deleted and is not there", m.GetName())
	}
	if m.GetLabels()["parity"] == "" {
		n.told("%s was deleted without its labels", m.GetName())
	}
	if _, unknown := o.(cache.DeletedFinalStateUnknown); unknown {
		n.told("the last state of %s is unknown: the informer has listed", m.GetName())
	}
	delete(n.known, m.GetName())
	n.deletes++
}

// equals waits until store and handlers have the objects of an apiserver.
func (n *informer) equals(ctx context.Context, t *testing.T, set *kubernetes.Clientset) {
	t.Helper()
	list, err := set.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{LabelSelector: n.selector})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for i := range list.Items {
		want[list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	for {
		n.mu.Lock()
		known := maps.Clone(n.known)
		n.mu.Unlock()
		if maps.Equal(known, want) {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: has %v, want %v", n.name, known, want)
		}
	}
	for i := range list.Items {
		o, ok, err := n.store.GetByKey("default/" + list.Items[i].Name)
		if err != nil || !ok {
			t.Errorf("%s: %s is not in the store: %v", n.name, list.Items[i].Name, err)
			continue
		}
		if full, ok := o.(*corev1.ConfigMap); ok && !equality.Semantic.DeepEqual(full, &list.Items[i]) {
			t.Errorf("%s: %+v\nwant %+v", n.name, full, list.Items[i])
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.wrong) > 0 {
		t.Errorf("%s: %s", n.name, strings.Join(n.wrong, "\n"))
		n.wrong = nil
	}
}

// informers starts informers of config maps at the tier: protobuf, JSON, with a
// selector, and of the metadata alone.
func (c *cluster) informers(ctx context.Context, t *testing.T, at string, each int) (all []*informer) {
	t.Helper()
	return c.informersWith(ctx, t, at, each, func(*rest.Config) {})
}

// informersWith is informers with a change to the configuration of each.
func (c *cluster) informersWith(ctx context.Context, t *testing.T, at string, each int, change func(*rest.Config)) (all []*informer) {
	t.Helper()
	start := func(name, selector string, shared cache.SharedIndexInformer) {
		n := &informer{name: name, selector: selector, store: shared.GetStore(), known: map[string]string{}}
		if _, err := shared.AddEventHandler(n); err != nil {
			t.Fatal(err)
		}
		go shared.RunWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), shared.HasSynced) {
			t.Fatalf("%s has not synced", name)
		}
		all = append(all, n)
	}
	for i := range each {
		for _, enc := range []object.Encoding{object.JSON, object.Protobuf} {
			for _, selector := range []string{"", "parity=1"} {
				name := fmt.Sprintf("%v-%s-%d", enc, selector, i)
				set := c.clients(t, at, func(cfg *rest.Config) {
					cfg.ContentType, cfg.UserAgent = enc.MediaType(), name
					change(cfg)
				})
				factory := informers.NewSharedInformerFactoryWithOptions(set, 0, informers.WithNamespace("default"),
					informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }))
				start(name, selector, factory.Core().V1().ConfigMaps().Informer())
			}
		}
		name := fmt.Sprintf("metadata-%d", i)
		cfg := &rest.Config{Host: at, BearerToken: c.token, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.PEM}, UserAgent: name}
		change(cfg)
		partial, err := metadata.NewForConfig(metadata.ConfigFor(cfg))
		if err != nil {
			t.Fatal(err)
		}
		factory := metadatainformer.NewFilteredSharedInformerFactory(partial, 0, "default", nil)
		start(name, "", factory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer())
	}
	return all
}

// TestInformersDoNotListAgain kills and restarts the apiserver behind the tier during writes to
// another one: its watch cache starts empty, so a direct informer would list again.
func TestInformersDoNotListAgain(t *testing.T) {
	c := newCluster(t)
	behind, beside := c.apiserver(t), c.apiserver(t)
	writer := c.clients(t, beside.url, nil)
	r := rand.New(rand.NewPCG(11, 12))
	churn(t, writer, r, 40)
	x := c.tier(t, nil, nil, behind.url)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	all := c.informers(ctx, t, x.url, 4)
	first := x.counted()
	if first < len(all) {
		t.Fatalf("%d lists for %d informers: they are not counted", first, len(all))
	}
	for range 2 {
		churn(t, writer, r, 60)
		for _, n := range all {
			n.equals(ctx, t, writer)
		}
		behind.kill()
		churn(t, writer, r, 60)
		behind.start(t)
	}
	for _, n := range all {
		n.equals(ctx, t, writer)
	}
	if again := x.counted() - first; again != 0 {
		t.Errorf("%d lists by %d informers after the apiserver was restarted", again, len(all))
	}
}
