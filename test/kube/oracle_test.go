package kube_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kube/object"
)

var oracleFor = flag.Duration("oracle.for", 15*time.Second, "how long TestOracle has faults")

// truth is the history of pods, by a watch at an apiserver that no fault touches.
type truth struct {
	mu     sync.Mutex
	events []*fact // guarded by mu; in the order of their versions
	ended  error   // guarded by mu
}

// fact is a version of a pod.
type fact struct {
	key     string
	version int64
	before  *corev1.Pod // nil: it did not exist
	after   *corev1.Pod // nil: it was deleted
}

func versionOf(m metav1.Object) int64 {
	v, err := strconv.ParseInt(m.GetResourceVersion(), 10, 64)
	if err != nil {
		return -1
	}
	return v
}

func keyOf(m metav1.Object) string { return m.GetNamespace() + "/" + m.GetName() }

// record follows all pods until the test ends. There are none yet.
func (x *truth) record(ctx context.Context, t *testing.T, set *kubernetes.Clientset) {
	t.Helper()
	start, err := set.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	day := int64(24 * 60 * 60)
	w, err := set.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: start.ResourceVersion, TimeoutSeconds: &day})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	go func() {
		held := map[string]*corev1.Pod{}
		for e := range w.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			x.mu.Lock()
			if !ok {
				x.ended = fmt.Errorf("%s: %+v", e.Type, e.Object)
			} else {
				f := &fact{key: keyOf(p), version: versionOf(p), before: held[keyOf(p)], after: p}
				if held[f.key] = p; e.Type == watch.Deleted {
					f.after = nil
					delete(held, f.key)
				}
				x.events = append(x.events, f)
			}
			x.mu.Unlock()
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.ended == nil {
			x.ended = fmt.Errorf("the watch at the apiserver has ended: %w", context.Cause(ctx))
		}
	}()
}

// until waits for a version and returns the history up to it.
func (x *truth) until(ctx context.Context, t *testing.T, version int64) (events []*fact) {
	t.Helper()
	eventually(ctx, t, fmt.Sprintf("the apiserver's events up to %d", version), func() error {
		x.mu.Lock()
		defer x.mu.Unlock()
		if events = x.events; len(events) > 0 && events[len(events)-1].version >= version {
			return nil
		}
		return fmt.Errorf("%d events: %w", len(events), x.ended)
	})
	return events
}

// told is an informer's update.
type told struct {
	typ     watch.EventType
	key     string
	version int64
	text    string // the object without its version
}

func (e told) String() string { return fmt.Sprintf("%s %s@%d", e.typ, e.key, e.version) }

// witness is the store of a reflector of pods, with its expected updates.
type witness struct {
	name          string
	namespace     string
	labels        labels.Selector
	fields        fields.Selector
	partial       bool
	fromApiserver bool // it checks the judge itself

	mu    sync.Mutex
	told  []told // guarded by mu; since the last judgement
	lists int    // guarded by mu

	held   map[string]told // the received objects; owned by judge
	judged int             // number of judged events of the truth
	at     int64           // version of the last event
}

// text returns an object without its version, as JSON.
func (w *witness) text(m metav1.ObjectMeta, p *corev1.Pod) string {
	m.ResourceVersion = ""
	whole := struct {
		Meta   metav1.ObjectMeta
		Spec   corev1.PodSpec
		Status corev1.PodStatus
	}{Meta: m}
	if !w.partial {
		whole.Spec, whole.Status = p.Spec, p.Status
	}
	b, err := json.Marshal(whole)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (w *witness) event(typ watch.EventType, o any) told {
	switch o := o.(type) {
	case *corev1.Pod:
		return told{typ, keyOf(o), versionOf(o), w.text(o.ObjectMeta, o)}
	case *metav1.PartialObjectMetadata:
		return told{typ, keyOf(o), versionOf(o), w.text(o.ObjectMeta, nil)}
	}
	return told{typ: watch.Error, text: fmt.Sprintf("%+v", o)}
}

func (w *witness) note(typ watch.EventType, o any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, w.event(typ, o))
	return nil
}

// Add implements cache.ReflectorStore.
func (w *witness) Add(o any) error { return w.note(watch.Added, o) }

// Update implements cache.ReflectorStore.
func (w *witness) Update(o any) error { return w.note(watch.Modified, o) }

// Delete implements cache.ReflectorStore.
func (w *witness) Delete(o any) error { return w.note(watch.Deleted, o) }

// Replace implements cache.ReflectorStore: the reflector has listed again.
func (w *witness) Replace(all []any, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	for _, o := range all {
		w.told = append(w.told, w.event(watch.Added, o))
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (w *witness) Resync() error { return nil }

func (w *witness) matches(p *corev1.Pod) bool {
	return p != nil && (w.namespace == "" || p.Namespace == w.namespace) && w.labels.Matches(labels.Set(p.Labels)) &&
		w.fields.Matches(fields.Set{"metadata.name": p.Name, "metadata.namespace": p.Namespace, "spec.nodeName": p.Spec.NodeName, "status.phase": string(p.Status.Phase)})
}

// expect returns the expected updates of the informer for the history.
func (w *witness) expect(events []*fact) (all []told) {
	for _, f := range events {
		was, is := w.matches(f.before), w.matches(f.after)
		var e told
		switch {
		case is && was:
			e = w.event(watch.Modified, f.after)
		case is:
			e = w.event(watch.Added, f.after)
		case was:
			e = w.event(watch.Deleted, f.before) // its last state
		default:
			continue
		}
		e.version = f.version
		all = append(all, e)
	}
	return all
}

// judge waits until the informer has all of the history, and returns its wrong updates since the
// last judgement. Across a gap, it may get only the last change.
func (w *witness) judge(ctx context.Context, history []*fact, gap bool) (wrong []string) {
	want := w.expect(history)
	state, texts := map[string]int64{}, map[string]string{}
	for _, e := range want {
		texts[fmt.Sprint(e.key, e.version)] = e.text
		if state[e.key] = e.version; e.typ == watch.Deleted {
			delete(state, e.key)
		}
	}
	fresh := want[w.judged:]
	w.judged = len(want)
	if w.held == nil {
		w.held = map[string]told{}
	}
	var got []told
	complain := func(e told, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%s: %v %s", w.name, e, fmt.Sprintf(format, args...)))
	}
	// take judges the received updates event by event.
	take := func() {
		w.mu.Lock()
		come := w.told
		w.told = nil
		w.mu.Unlock()
		for _, e := range come {
			got = append(got, e)
			was, held := w.held[e.key]
			switch {
			case e.typ == watch.Error:
				complain(e, "%s", e.text)
			case e.version < w.at || e.version == w.at && !(gap && e.typ == watch.Deleted):
				complain(e, "after version %d", w.at)
			case held != (e.typ != watch.Added):
				complain(e, "of an object that is there: %v", held)
			case e.typ == watch.Deleted && e.text != was.text:
				complain(e, "without the last state:\ngot  %s\nwant %s", e.text, was.text)
			case e.typ != watch.Deleted && e.text != texts[fmt.Sprint(e.key, e.version)]:
				complain(e, "is another object:\ngot  %s\nwant %s", e.text, texts[fmt.Sprint(e.key, e.version)])
			}
			w.at = max(w.at, e.version)
			if w.held[e.key] = e; e.typ == watch.Deleted {
				delete(w.held, e.key)
			}
		}
	}
	for {
		take()
		if w.has(state) {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
			continue
		case <-ctx.Done():
			return append(wrong, fmt.Sprintf("%s: has %v, want %v", w.name, w.versions(), state))
		}
	}
	if gap {
		return wrong
	}
	for i := range max(len(fresh), len(got)) {
		switch {
		case i >= len(got):
			return append(wrong, fmt.Sprintf("%s: was not told %v", w.name, fresh[i]))
		case i >= len(fresh):
			return append(wrong, fmt.Sprintf("%s: was told %v and should not", w.name, got[i]))
		case got[i].String() != fresh[i].String():
			return append(wrong, fmt.Sprintf("%s: was told %v, want %v", w.name, got[i], fresh[i]))
		}
	}
	return wrong
}

func (w *witness) versions() map[string]int64 {
	all := map[string]int64{}
	for key, e := range w.held {
		all[key] = e.version
	}
	return all
}

func (w *witness) has(state map[string]int64) bool {
	if len(w.held) != len(state) {
		return false
	}
	for key, version := range state {
		if w.held[key].version != version {
			return false
		}
	}
	return true
}

// witnesses starts reflectors at a URL: in both encodings and for metadata, with selectors by
// labels and fields.
func (c *cluster) witnesses(ctx context.Context, t *testing.T, url, name string) (all []*witness) {
	t.Helper()
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	for _, kind := range []struct{ form, namespace, labels, fields string }{
		{"protobuf", "", "", ""},
		{"json", "", "", ""},
		{"metadata", "", "", ""},
		{"protobuf", "ns-1", "", ""},
		{"protobuf", "", "parity=1", ""},
		{"json", "ns-1", "parity notin (0),parity", ""},
		{"json", "", "!parity", ""},
		{"metadata", "", "parity=1", ""},
		{"protobuf", "", "", "status.phase=Running"},
		{"json", "", "", "status.phase!=Running"},
		{"json", "", "", "spec.nodeName=node-a"},
		{"protobuf", "ns-0", "parity=0", "spec.nodeName=node-b,status.phase=Pending"},
		{"metadata", "", "", "status.phase=Running"},
		{"protobuf", "", "", "metadata.name=p-3"},
	} {
		w := &witness{name: fmt.Sprintf("%s %+v", name, kind), namespace: kind.namespace, partial: kind.form == "metadata"}
		var err error
		if w.labels, err = labels.Parse(kind.labels); err != nil {
			t.Fatal(err)
		}
		if w.fields, err = fields.ParseSelector(kind.fields); err != nil {
			t.Fatal(err)
		}
		choose := func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = kind.labels, kind.fields }
		var lw cache.ListerWatcher
		var expected any = &corev1.Pod{}
		if w.partial {
			cfg := metadata.ConfigFor(&rest.Config{Host: url, BearerToken: c.token, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.PEM}, QPS: -1, Dial: new(net.Dialer).DialContext})
			client, err := metadata.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			expected = &metav1.PartialObjectMetadata{}
			pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(kind.namespace)
			lw = cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					choose(&o)
					return pods.List(ctx, o)
				},
				WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					choose(&o)
					return pods.Watch(ctx, o)
				},
			}, client)
		} else {
			set := c.clients(t, url, func(cfg *rest.Config) {
				enc := object.Protobuf
				if kind.form == "json" {
					enc = object.JSON
				}
				cfg.ContentType, cfg.AcceptContentTypes, cfg.Dial = enc.MediaType(), enc.MediaType(), new(net.Dialer).DialContext
			})
			lw = cache.ToListWatcherWithWatchListSemantics(cache.NewFilteredListWatchFromClient(set.CoreV1().RESTClient(), "pods", kind.namespace, choose), set)
		}
		all = append(all, w)
		running.Go(func() { cache.NewReflector(lw, expected, w, 0).RunWithContext(ctx) })
	}
	return all
}

// podWriter writes pods at random.
type podWriter struct {
	set  *kubernetes.Clientset
	r    *rand.Rand
	held map[string]bool
	last int64 // version of the last write
}

func (w *podWriter) some(values ...string) string { return values[w.r.IntN(len(values))] }

// write creates, changes or deletes a pod, so that it enters and leaves selections.
func (w *podWriter) write(ctx context.Context, t *testing.T) {
	t.Helper()
	space, name := fmt.Sprintf("ns-%d", w.r.IntN(3)), fmt.Sprintf("p-%d", w.r.IntN(8))
	pods, key := w.set.CoreV1().Pods(space), space+"/"+name
	var p *corev1.Pod
	var err error
	now := int64(0)
	switch n := w.r.IntN(10); {
	case !w.held[key]:
		p = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: space, Labels: map[string]string{"app": "a", "parity": w.some("0", "1")}},
			Spec:       corev1.PodSpec{NodeName: w.some("", "node-a", "node-b"), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		p, err = pods.Create(ctx, p, metav1.CreateOptions{})
		w.held[key] = true
	case n < 2:
		err = pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		delete(w.held, key)
	case n < 5:
		body := fmt.Sprintf(`{"metadata":{"labels":{"parity":%s}}}`, w.some(`"0"`, `"1"`, "null"))
		p, err = pods.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	case n < 8:
		body := fmt.Sprintf(`{"status":{"phase":%q}}`, w.some("Pending", "Running", "Failed"))
		p, err = pods.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, "status")
	default:
		body := fmt.Sprintf(`{"metadata":{"annotations":{"at":"%d"}}}`, w.r.Int64())
		p, err = pods.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatalf("the writer: %v", err)
	}
	if p != nil {
		w.last = max(w.last, versionOf(p))
	}
}

func (w *podWriter) writes(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for range n {
		w.write(ctx, t)
	}
}

// mark creates a pod in a separate namespace, and returns its version: the history is complete up
// to it.
func (w *podWriter) mark(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	p, err := w.set.CoreV1().Pods("marks").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "mark-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return versionOf(p)
}

// during writes for a period.
func (w *podWriter) during(ctx context.Context, t *testing.T, d time.Duration) {
	t.Helper()
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		w.write(ctx, t)
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
}

// signal sends a signal to a node.
func (n *node) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := syscall.Kill(n.process.PID(), s); err != nil {
		t.Fatal(err)
	}
}

// TestOracle runs the same reflectors at an apiserver and at nodes that share their watches, with
// random writes, and random faults of the nodes and of the apiservers behind them. Each reflector
// gets the history of another apiserver's watch, filtered by its selectors: no event is missing,
// repeated or out of order, each object is the apiserver's at its version, deletes have the last
// state, and no reflector lists again. Across a gap, which only the death of all apiservers leaves,
// events may be omitted that later ones replace.
func TestOracle(t *testing.T) {
	seed := testseed.Of(t)
	r := rand.New(rand.NewPCG(seed, 0))
	c := newCluster(t)
	beside, a, b := c.apiserver(t), c.apiserver(t), c.apiserver(t)
	direct := c.clients(t, beside.url, nil)
	ctx, cancel := context.WithTimeout(t.Context(), *oracleFor+5*time.Minute)
	defer cancel()
	for _, space := range []string{"ns-0", "ns-1", "ns-2", "marks"} {
		if _, err := direct.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	history := &truth{}
	history.record(ctx, t, direct)
	w := &podWriter{set: direct, r: r, held: map[string]bool{}}
	nodes := c.shared(t, []string{a.url, b.url}, []string{"x", "y", "z"}, "--kube-preload", "pods.v1,pods.v1/json", "--drain-timeout", "5s")
	witnesses := c.witnesses(ctx, t, balancer(t, nodes...), "tier")
	for _, x := range c.witnesses(ctx, t, beside.url, "apiserver") {
		x.fromApiserver = true
		witnesses = append(witnesses, x)
	}
	eventually(ctx, t, "each reflector has listed", func() error {
		for _, x := range witnesses {
			x.mu.Lock()
			lists := x.lists
			x.mu.Unlock()
			if lists == 0 {
				return fmt.Errorf("%s has not", x.name)
			}
		}
		return nil
	})
	some := func() *node { return nodes[r.IntN(len(nodes))] }
	type happening struct {
		name string
		gap  bool
		run  func()
	}
	happenings := []happening{
		{"nothing", false, func() { w.writes(ctx, t, 50) }},
		{"a node dies", false, func() {
			n := some()
			n.kill()
			w.writes(ctx, t, 50)
			n.start(t)
		}},
		{"two nodes die", false, func() {
			n := some()
			for _, other := range nodes {
				if other != n {
					other.kill()
				}
			}
			w.writes(ctx, t, 50)
			for _, other := range nodes {
				if other != n {
					other.start(t)
				}
			}
		}},
		{"a node stops for seconds", false, func() {
			n := some()
			n.signal(t, syscall.SIGSTOP)
			w.during(ctx, t, time.Duration(1+r.IntN(4))*time.Second)
			n.signal(t, syscall.SIGCONT)
		}},
		{"a node drains", false, func() {
			n := some()
			n.drain()
			w.writes(ctx, t, 50)
			n.start(t)
		}},
		{"an apiserver dies", false, func() {
			x := []*apiserver{a, b}[r.IntN(2)]
			x.kill()
			w.writes(ctx, t, 50)
			x.start(t)
		}},
		{"etcd is compacted", false, func() { c.compact(ctx, t) }},
		{"both apiservers die", true, func() {
			a.kill()
			b.kill()
			w.writes(ctx, t, 50)
			a.start(t)
			b.start(t)
		}},
		{"both apiservers die, a node stops, and etcd is compacted", true, func() {
			a.kill()
			b.kill()
			w.writes(ctx, t, 50)
			n := some()
			n.signal(t, syscall.SIGSTOP)
			c.compact(ctx, t)
			w.writes(ctx, t, 20)
			n.signal(t, syscall.SIGCONT)
			b.start(t)
			a.start(t)
		}},
	}
	length := *oracleFor
	if testing.Short() {
		length = min(length, 5*time.Second) // a fault or two
	}
	var order []int
	for began := time.Now(); time.Since(began) < length; {
		if len(order) == 0 {
			order = r.Perm(len(happenings)) // each once before a repetition
		}
		h := happenings[order[0]]
		order = order[1:]
		w.writes(ctx, t, 10+r.IntN(50))
		h.run()
		w.writes(ctx, t, 10+r.IntN(50))
		events := history.until(ctx, t, w.mark(ctx, t))
		calm, cancel := context.WithTimeout(ctx, time.Minute)
		var wrong []string
		for _, x := range witnesses {
			wrong = append(wrong, x.judge(calm, events, h.gap && !x.fromApiserver)...)
			x.mu.Lock()
			if x.lists > 1 {
				wrong = append(wrong, fmt.Sprintf("%s: has listed %d times", x.name, x.lists))
				x.lists = 1
			}
			x.mu.Unlock()
		}
		cancel()
		t.Logf("%s: %d events, %d reflectors, %d wrong", h.name, len(events), len(witnesses), len(wrong))
		if len(wrong) > 0 {
			t.Fatalf("%s (TEST_SEED=%d):\n%s", h.name, seed, strings.Join(wrong[:min(12, len(wrong))], "\n"))
		}
	}
}
