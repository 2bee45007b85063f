package kube_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// store is a storage.Interface, as in apiservers, of a custom resource: writes go to an apiserver,
// reads and watches to a node. It runs Kubernetes' tests of its stores.
type store struct {
	storage.Interface // panics in methods that no test needs

	c           *cluster
	direct, url string // of the apiserver, and of the node
	path        string // of the resource's group and version
	apiVersion  string
	cluster     bool   // the resource has no namespaces
	first       string // its version when it was created
	scheme      *runtime.Scheme
	// bookmarks: a watch includes the bookmark with which the node's watches start, or continue
	// after their initial events. Watches of an apiserver do not have these.
	bookmarks bool

	mu         sync.Mutex
	namespaces map[string]bool // guarded by mu; existing namespaces
}

// newStore creates a custom resource, and returns a store of it.
func newStore(ctx context.Context, t *testing.T, c *cluster, direct, url, group string, clusterScoped bool) *store {
	t.Helper()
	s := &store{
		c: c, direct: direct, url: url, path: "/apis/" + group + "/v1", apiVersion: group + "/v1", cluster: clusterScoped,
		scheme: runtime.NewScheme(), namespaces: map[string]bool{},
	}
	for _, add := range []func(*runtime.Scheme) error{example.AddToScheme, examplev1.AddToScheme} {
		if err := add(s.scheme); err != nil {
			t.Fatal(err)
		}
	}
	scope := map[bool]string{true: "Cluster", false: "Namespaced"}[clusterScoped]
	definition := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"pods.%[1]s"},
"spec":{"group":%[1]q,"scope":%[2]q,"names":{"plural":"pods","singular":"pod","kind":"Pod","listKind":"PodList"},"versions":[{"name":"v1","served":true,"storage":true,
"selectableFields":[{"jsonPath":".spec.nodeName"}],"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
"properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"nodeName":{"type":"string"}}}}}}}]}}`, group, scope)
	if err := s.do(ctx, http.MethodPost, direct+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", []byte(definition), nil); err != nil {
		t.Fatal(err)
	}
	var list metav1.PartialObjectMetadataList
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	eventually(ctx, t, "the custom resource", func() error { return s.do(ctx, http.MethodGet, direct+s.path+"/pods", nil, &list) })
	eventually(ctx, t, "the node's copy", func() error { return s.do(ctx, http.MethodGet, url+s.path+"/pods?resourceVersion=0", nil, &list) })
	s.first = list.ResourceVersion
	return s
}

// open sends a request, and returns the answer unless it is a failure.
func (s *store) open(ctx context.Context, method, url string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.c.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := s.c.client.Do(req)
	if err != nil || resp.StatusCode < 300 {
		return resp, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	failure := &apierrors.StatusError{}
	if json.Unmarshal(text, &failure.ErrStatus) != nil || failure.ErrStatus.Code == 0 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return nil, failure
}

// do sends a request, and decodes the answer into out unless that is nil.
func (s *store) do(ctx context.Context, method, url string, body []byte, out any) error {
	resp, err := s.open(ctx, method, url, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	return err
}

// at returns the path for a key, "/pods[/NAMESPACE][/NAME]".
func (s *store) at(key string, recursive bool) (collection, namespace, name string) {
	parts := strings.FieldsFunc(key, func(r rune) bool { return r == '/' })[1:]
	if !s.cluster && len(parts) > 0 {
		namespace, parts = parts[0], parts[1:]
	}
	if len(parts) > 0 && !recursive {
		name = parts[0]
	}
	collection = s.path + "/pods"
	if namespace != "" {
		collection = s.path + "/namespaces/" + namespace + "/pods"
	}
	return collection, namespace, name
}

// encode returns a pod in the apiserver's format.
func (s *store) encode(obj runtime.Object, name, namespace string, was *examplev1.Pod) ([]byte, error) {
	var p examplev1.Pod
	if err := s.scheme.Convert(obj, &p, nil); err != nil {
		return nil, err
	}
	p.APIVersion, p.Kind, p.Name, p.Namespace = s.apiVersion, "Pod", name, namespace
	if was != nil {
		p.UID, p.CreationTimestamp, p.ResourceVersion = was.UID, was.CreationTimestamp, was.ResourceVersion
	}
	return json.Marshal(&p)
}

// decode converts an apiserver's pod, without the fields that a store does not set.
func (s *store) decode(p *examplev1.Pod, out runtime.Object) error {
	p.TypeMeta, p.ManagedFields, p.UID, p.CreationTimestamp, p.Generation = metav1.TypeMeta{}, nil, "", metav1.Time{}, 0
	fresh := &example.Pod{}
	if err := s.scheme.Convert(p, fresh, nil); err != nil {
		return err
	}
	*out.(*example.Pod) = *fresh
	return nil
}

// write creates or replaces a pod.
func (s *store) write(ctx context.Context, key string, obj, out runtime.Object, was *examplev1.Pod) error {
	collection, namespace, name := s.at(key, false)
	s.mu.Lock()
	if namespace != "" && !s.namespaces[namespace] {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, namespace)
		if err := s.do(ctx, http.MethodPost, s.direct+"/api/v1/namespaces", []byte(body), nil); err != nil && !apierrors.IsAlreadyExists(err) {
			s.mu.Unlock()
			return err
		}
		s.namespaces[namespace] = true
	}
	s.mu.Unlock()
	body, err := s.encode(obj, name, namespace, was)
	if err != nil {
		return err
	}
	method, url := http.MethodPost, s.direct+collection
	if was != nil {
		method, url = http.MethodPut, url+"/"+name
	}
	var now examplev1.Pod
	if err := s.do(ctx, method, url, body, &now); err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	return s.decode(&now, out)
}

// Versioner implements storage.Interface.
func (s *store) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// Create implements storage.Interface.
func (s *store) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	err := s.write(ctx, key, obj, out, nil)
	if apierrors.IsAlreadyExists(err) {
		return storage.NewKeyExistsError(key, 0)
	}
	return err
}

// Delete implements storage.Interface. It returns the object's last state from a watch at the
// apiserver.
func (s *store) Delete(ctx context.Context, key string, out runtime.Object, _ *storage.Preconditions, _ storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	collection, _, name := s.at(key, false)
	var was examplev1.Pod
	if err := s.do(ctx, http.MethodGet, s.direct+collection+"/"+name, nil, &was); apierrors.IsNotFound(err) {
		return storage.NewKeyNotFoundError(key, 0)
	} else if err != nil {
		return err
	}
	w, err := s.watch(ctx, s.direct+collection, url.Values{"resourceVersion": {was.ResourceVersion}, "fieldSelector": {"metadata.name=" + name}})
	if err != nil {
		return err
	}
	defer w.Stop()
	if err := s.do(ctx, http.MethodDelete, s.direct+collection+"/"+name, nil, nil); err != nil {
		return err
	}
	for e := range w.ResultChan() {
		if p, ok := e.Object.(*example.Pod); ok && e.Type == watch.Deleted {
			*out.(*example.Pod) = *p
			return nil
		}
	}
	return fmt.Errorf("no event of the end of %s", key)
}

// GuaranteedUpdate implements storage.Interface.
func (s *store) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, _ *storage.Preconditions, try storage.UpdateFunc, _ runtime.Object) error {
	for {
		collection, _, name := s.at(key, false)
		was, old := &examplev1.Pod{}, &example.Pod{}
		err := s.do(ctx, http.MethodGet, s.direct+collection+"/"+name, nil, was)
		switch {
		case apierrors.IsNotFound(err) && ignoreNotFound:
			was = nil
		case apierrors.IsNotFound(err):
			return storage.NewKeyNotFoundError(key, 0)
		case err != nil:
			return err
		default:
			if err := s.decode(was.DeepCopy(), old); err != nil {
				return err
			}
		}
		version, _ := strconv.ParseUint(old.ResourceVersion, 10, 64) // "": none
		obj, _, err := try(old, storage.ResponseMeta{ResourceVersion: version})
		if err != nil {
			return err
		}
		if err := s.write(ctx, key, obj, out, was); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

// Get implements storage.Interface.
func (s *store) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	collection, namespace, name := s.at(key, false)
	if name == "" { // not the key of an object
		collection, _, name = s.at("/pods/default/"+namespace, false)
	}
	var p examplev1.Pod
	err := s.do(ctx, http.MethodGet, s.url+collection+"/"+name+"?resourceVersion="+opts.ResourceVersion, nil, &p)
	switch {
	case apierrors.IsNotFound(err) && opts.IgnoreNotFound:
		*out.(*example.Pod) = example.Pod{}
		return nil
	case apierrors.IsNotFound(err):
		return storage.NewKeyNotFoundError(key, 0)
	case err != nil:
		return err
	}
	return s.decode(&p, out)
}

// query returns the parameters of a list or watch.
func (s *store) query(name string, opts *storage.ListOptions) url.Values {
	q := url.Values{}
	set := func(key, value string) {
		if value != "" {
			q.Set(key, value)
		}
	}
	var fields []string
	if p := &opts.Predicate; p.Field != nil && !p.Field.Empty() {
		fields = append(fields, p.Field.String())
	}
	if name != "" {
		fields = append(fields, "metadata.name="+name)
	}
	if p := &opts.Predicate; p.Label != nil {
		set("labelSelector", p.Label.String())
	}
	set("fieldSelector", strings.Join(fields, ","))
	set("continue", opts.Predicate.Continue)
	set("resourceVersionMatch", string(opts.ResourceVersionMatch))
	if set("resourceVersion", opts.ResourceVersion); opts.ResourceVersion == "1" {
		q.Set("resourceVersion", s.first) // the tests have a store of their own, which starts there
	}
	if opts.Predicate.Limit > 0 {
		set("limit", strconv.FormatInt(opts.Predicate.Limit, 10))
	}
	return q
}

// GetList implements storage.Interface.
func (s *store) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	collection, _, name := s.at(key, opts.Recursive)
	var list struct {
		metav1.ListMeta `json:"metadata"`
		Items           []examplev1.Pod `json:"items"`
	}
	if err := s.do(ctx, http.MethodGet, s.url+collection+"?"+s.query(name, &opts).Encode(), nil, &list); err != nil {
		return err
	}
	result := example.PodList{ListMeta: list.ListMeta, Items: []example.Pod{}}
	for i := range list.Items {
		var p example.Pod
		if err := s.decode(&list.Items[i], &p); err != nil {
			return err
		}
		result.Items = append(result.Items, p)
	}
	*out.(*example.PodList) = result
	return nil
}

// Watch implements storage.Interface.
func (s *store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	collection, _, name := s.at(key, opts.Recursive)
	q := s.query(name, &opts)
	if opts.Predicate.AllowWatchBookmarks || opts.ProgressNotify {
		q.Set("allowWatchBookmarks", "true")
	}
	if opts.SendInitialEvents != nil {
		q.Set("sendInitialEvents", strconv.FormatBool(*opts.SendInitialEvents))
		q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
	return s.watch(ctx, s.url+collection, q)
}

// watched is a watch.Interface.
type watched struct {
	events chan watch.Event
	stop   context.CancelFunc
}

func (w *watched) Stop()                          { w.stop() }
func (w *watched) ResultChan() <-chan watch.Event { return w.events }

// watch opens a watch. Its events queue, like those of an apiserver's cache.
func (s *store) watch(ctx context.Context, url string, q url.Values) (watch.Interface, error) {
	q.Set("watch", "true")
	ctx, cancel := context.WithCancel(ctx)
	w := &watched{events: make(chan watch.Event, 100), stop: cancel}
	resp, err := s.open(ctx, http.MethodGet, url+"?"+q.Encode(), nil)
	if err != nil {
		cancel()
		close(w.events)
		if ctx.Err() != nil && strings.Contains(err.Error(), context.Canceled.Error()) {
			return w, nil
		}
		return nil, err
	}
	go func() {
		defer close(w.events)
		defer resp.Body.Close()
		defer cancel()
		begins := q.Get("resourceVersion")
		for frames := json.NewDecoder(resp.Body); ; {
			var e struct {
				Type   watch.EventType `json:"type"`
				Object json.RawMessage `json:"object"`
			}
			if frames.Decode(&e) != nil {
				return // it has ended
			}
			event, err := s.event(e.Type, e.Object)
			if err != nil {
				event = watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(err).ErrStatus}
			}
			if m, ok := event.Object.(metav1.Object); ok && event.Type == watch.Bookmark && !s.bookmarks {
				switch {
				case m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "":
					begins = m.GetResourceVersion()
				case m.GetResourceVersion() == begins:
					begins = "" // the next event is an apiserver's, too
					continue
				}
			}
			select {
			case w.events <- event:
			case <-ctx.Done():
				return
			}
		}
	}()
	return w, nil
}

func (s *store) event(typ watch.EventType, raw []byte) (watch.Event, error) {
	if typ == watch.Error {
		status := &metav1.Status{}
		err := json.Unmarshal(raw, status)
		return watch.Event{Type: typ, Object: status}, err
	}
	var p examplev1.Pod
	out := &example.Pod{}
	err := json.Unmarshal(raw, &p)
	if err == nil {
		err = s.decode(&p, out)
	}
	return watch.Event{Type: typ, Object: out}, err
}

// GetCurrentResourceVersion implements storage.Interface.
func (s *store) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	var list metav1.PartialObjectMetadataList
	if err := s.do(ctx, http.MethodGet, s.direct+s.path+"/pods?limit=1", nil, &list); err != nil {
		return 0, err
	}
	return strconv.ParseUint(list.ResourceVersion, 10, 64)
}

// ReadinessCheck implements storage.Interface.
func (s *store) ReadinessCheck() error { return nil }

// RequestWatchProgress implements storage.Interface.
func (s *store) RequestWatchProgress(context.Context) error { return nil }

// TestStorageConformance runs Kubernetes' tests of the stores and caches of its apiservers, with
// writes at an apiserver, and reads and watches at a node.
func TestStorageConformance(t *testing.T) {
	ctx := t.Context()
	c := newCluster(t)
	a := c.apiserver(t)
	n := c.node(t, "x", []string{a.url}, c.proxy(t)...)
	stores := make([]*store, len(conformance)) // all before the first write: an apiserver delays that for 2 s in a new resource
	for i, test := range conformance {
		stores[i] = newStore(ctx, t, c, a.url, "https://"+n.kube, fmt.Sprintf("t%d.example.com", i), test.cluster)
		stores[i].bookmarks = test.bookmarks
	}
	for i, test := range conformance {
		t.Run(test.name, func(t *testing.T) { test.run(ctx, t, stores[i]) })
	}
}

// conformance has the tests of k8s.io/apiserver/pkg/storage/testing for functions available to
// clients of an API. The others need an etcd below the store, transform its values, or write.
var conformance = []struct {
	name string
	run  func(context.Context, *testing.T, *store)
	// cluster: the resource has no namespaces. bookmarks: as for the store.
	cluster, bookmarks bool
}{
	{name: "Watch", run: plain(storagetesting.RunTestWatch)},
	{name: "WatchFromZero", run: func(ctx context.Context, t *testing.T, s *store) {
		storagetesting.RunTestWatchFromZero(ctx, t, s, nil) // a compaction does not affect the node's window
	}},
	{name: "DeleteTriggerWatch", run: plain(storagetesting.RunTestDeleteTriggerWatch)},
	{name: "WatchFromNonZero", run: plain(storagetesting.RunTestWatchFromNonZero)},
	{name: "DelayedWatchDelivery", run: plain(storagetesting.RunTestDelayedWatchDelivery)},
	{name: "WatchContextCancel", run: plain(storagetesting.RunTestWatchContextCancel)},
	{name: "WatcherTimeout", run: plain(storagetesting.RunTestWatcherTimeout)},
	{name: "WatchDeleteEventObjectHaveLatestRV", run: plain(storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV)},
	{name: "ProgressNotify", bookmarks: true, run: func(ctx context.Context, t *testing.T, s *store) {
		storagetesting.RunOptionalTestProgressNotify(ctx, t, s, s.increase)
	}},
	{name: "WatchDispatchBookmarkEvents", bookmarks: true, run: func(ctx context.Context, t *testing.T, s *store) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, s, true)
	}},
	{name: "ClusterScopedWatch", run: plain(storagetesting.RunTestClusterScopedWatch), cluster: true},
	{name: "NamespaceScopedWatch", run: plain(storagetesting.RunTestNamespaceScopedWatch)},
	{name: "WatchBookmarksWithCorrectResourceVersion", run: plain(storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion), bookmarks: true},
	{name: "SendInitialEventsBackwardCompatibility", run: plain(storagetesting.RunSendInitialEventsBackwardCompatibility)},
	{name: "WatchSemantics", run: plain(storagetesting.RunWatchSemantics)},
	{name: "WatchSemanticInitialEventsExtended", run: plain(storagetesting.RunWatchSemanticInitialEventsExtended)},
	{name: "WatchListMatchSingle", run: plain(storagetesting.RunWatchListMatchSingle)},
	{name: "NamespaceScopedList", run: plain(storagetesting.RunTestNamespaceScopedList)},
	{name: "ListPaging", run: plain(storagetesting.RunTestListPaging)},
	{name: "ListContinuation", run: func(ctx context.Context, t *testing.T, s *store) {
		storagetesting.RunTestListContinuation(ctx, t, s, nil)
	}},
	{name: "ListContinuationWithFilter", run: func(ctx context.Context, t *testing.T, s *store) {
		storagetesting.RunTestListContinuationWithFilter(ctx, t, s, nil)
	}},
	{name: "ListPaginationRareObject", cluster: true, run: func(ctx context.Context, t *testing.T, s *store) {
		storagetesting.RunTestListPaginationRareObject(ctx, t, s, nil)
	}},
	{name: "GetListNonRecursive", run: func(ctx context.Context, t *testing.T, s *store) {
		storagetesting.RunTestGetListNonRecursive(ctx, t, s.increase, s)
	}},
	{name: "Get", run: plain(storagetesting.RunTestGet)},
}

func plain(run func(context.Context, *testing.T, storage.Interface)) func(context.Context, *testing.T, *store) {
	return func(ctx context.Context, t *testing.T, s *store) { run(ctx, t, s) }
}

// increase advances etcd's version by one, by a write to another resource.
func (s *store) increase(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	var made metav1.PartialObjectMetadata
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"increase-"}}`
	if err := s.do(ctx, http.MethodPost, s.direct+"/api/v1/namespaces/default/configmaps", []byte(body), &made); err != nil {
		t.Fatal(err)
	}
	version, err := strconv.ParseInt(made.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return version
}
