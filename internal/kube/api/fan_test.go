package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kube/object"
	"github.com/shardwatch/shardwatch/internal/kube/past"
	"github.com/shardwatch/shardwatch/internal/kube/port"
	"github.com/shardwatch/shardwatch/internal/kube/selector"
	"github.com/shardwatch/shardwatch/internal/kube/source"
	"github.com/shardwatch/shardwatch/internal/kube/transition"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/wait"
)

// spoken is a source without objects at version 10. The test sends batches through it.
type spoken chan kv.Batch

func (s spoken) Follow(ctx context.Context, _ kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		if !yield(kv.Update{Kind: kv.UpdateBegin, Revision: 10, Floor: 11}, nil) || !yield(kv.Update{Kind: kv.UpdateReady}, nil) {
			return
		}
		for {
			select {
			case <-ctx.Done():
				return
			case b := <-s:
				if !yield(kv.Update{Kind: kv.UpdateBatch, Batch: b}, nil) {
					return
				}
			}
		}
	}
}

func item(key, value string, version kv.Revision) *kv.KeyValue {
	return kv.NewKeyValue(kv.Fields{Key: []byte(key), Value: []byte(value), ModRevision: version})
}

// pod has the fields of a pod that the tests use.
type pod struct {
	namespace, name, app, node string
	version                    kv.Revision
}

func (p *pod) item() *kv.KeyValue {
	return item(pods().Key(p.namespace, p.name), fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":%q,"resourceVersion":"%d","labels":{"app":%q}},"spec":{"nodeName":%q}}`,
		p.name, p.namespace, p.version, p.app, p.node), p.version)
}

func pods() source.Resource {
	return source.Resource{Version: "v1", Name: "pods", Encoding: object.JSON}
}

// changed is one event of a pod, for comparison with the frames of a watch.
type changed struct{ before, now *pod }

// fanned is a feed of pods, which the test changes.
type fanned struct {
	*feed
	source spoken
	events []changed
	there  map[string]*pod
	stop   func() // ends the cache and the fan
}

func newFanned(t *testing.T, settings ...func(*cache.Config)) *fanned {
	t.Helper()
	x := &fanned{source: make(spoken), there: map[string]*pod{}}
	cfg := cache.Defaults()
	cfg.Range, cfg.Source = pods().InNamespace(""), x.source
	former := past.New(1 << 20)
	cfg.Applied = former.Applied
	for _, set := range settings {
		set(&cfg)
	}
	x.feed = &feed{r: pods(), past: former, cache: cache.New(cfg)}
	x.fan = newFan(x.feed)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { _ = x.cache.Run(ctx); ended <- struct{}{} }()
	go func() { x.fan.run(ctx); ended <- struct{}{} }()
	x.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		<-ended
	})
	t.Cleanup(x.stop)
	<-x.cache.Ready()
	return x
}

// change puts a pod, or deletes it, and returns when the cache has the event.
func (x *fanned) change(t *testing.T, now *pod, remove bool) {
	t.Helper()
	now.version = kv.Revision(11 + len(x.events))
	key := now.namespace + "/" + now.name
	before := x.there[key]
	e := kv.Event{Type: kv.Put, KV: now.item()}
	if before != nil {
		e.Prev = before.item()
	}
	x.there[key] = now
	seen := changed{before, now}
	if remove {
		e.Type = kv.Delete
		seen.now = nil
		delete(x.there, key)
	}
	x.events = append(x.events, seen)
	x.source <- kv.Batch{Revision: now.version, Events: []kv.Event{e}, Received: time.Now()}
	if err := x.cache.WaitProgress(t.Context(), now.version); err != nil {
		t.Fatal(err)
	}
}

// viewer is a watch that the test drives.
type viewer struct {
	*stream
	body    bytes.Buffer
	matches func(*pod) bool
	from    int // the first expected event
}

// Header, WriteHeader, Write and Flush make a viewer an http.ResponseWriter.
func (v *viewer) Header() http.Header         { return http.Header{} }
func (v *viewer) WriteHeader(int)             {}
func (v *viewer) Write(b []byte) (int, error) { return v.body.Write(b) }
func (v *viewer) Flush()                      {}

// view opens a watch that expects the events from number from on.
func (x *fanned) view(t *testing.T, namespace, labels, fields string, from int, matches func(*pod) bool) *viewer {
	t.Helper()
	q := &request{resource: pods(), namespace: namespace, labels: labels, fields: fields, bookmarks: true}
	var err error
	if q.selector, err = selector.Parse(labels, fields); err != nil {
		t.Fatal(err)
	}
	v := &viewer{matches: func(p *pod) bool { return p != nil && (namespace == "" || p.namespace == namespace) && matches(p) }, from: from}
	v.stream = &stream{answer: &answer{s: &Server{}, f: x.feed, q: q, kind: source.Kind{APIVersion: "v1", Kind: "Pod"}}, w: v, control: http.NewResponseController(v), wake: wait.NewBell()}
	v.stuck = port.NewWatchdog(v, v.control, time.Hour)
	v.sent = kv.Revision(10 + from)
	if v.watcher, err = x.cache.Watch(pods().InNamespace(namespace), v.sent+1, v.wake); err != nil {
		t.Fatal(err)
	}
	return v
}

// check compares the frames of a watch with the events, at each bookmark and at the end.
func (x *fanned) check(t *testing.T, v *viewer) {
	t.Helper()
	want := func(upTo kv.Revision) (all []string) {
		for i, e := range x.events[v.from:] {
			version := kv.Revision(11 + v.from + i)
			if version > upTo {
				break
			}
			was, is := v.matches(e.before), v.matches(e.now)
			typ := map[[2]bool]string{{true, true}: object.Modified, {false, true}: object.Added, {true, false}: object.Deleted}[[2]bool{was, is}]
			if typ == "" {
				continue
			}
			content := e.now // of a delete by the client: the last state, too
			if !is {
				content = e.before
			}
			all = append(all, fmt.Sprintf("%s %s/%s at %d: %s on %s", typ, content.namespace, content.name, version, content.app, content.node))
		}
		return all
	}
	var got []string
	at := kv.Revision(0)
	equal := func(upTo kv.Revision) {
		t.Helper()
		if w := want(upTo); !slices.Equal(got, w) {
			t.Fatalf("watch of namespace %q, labels %q, fields %q from event %d: got up to version %d\n%q\nwant\n%q", v.q.namespace, v.q.labels, v.q.fields, v.from, upTo, got, w)
		}
	}
	for frames := object.NewFrames(object.JSON, &v.body, 1<<20); ; {
		e, err := frames.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		o, err := object.Parse(object.JSON, e.Object)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == object.Bookmark {
			version, err := strconv.Atoi(string(o.ResourceVersion))
			if err != nil || kv.Revision(version) < at {
				t.Fatalf("bookmark at version %s after a bookmark at version %d: %v", o.ResourceVersion, at, err)
			}
			at = kv.Revision(version)
			equal(at)
			continue
		}
		app := ""
		for _, value := range o.Labels() {
			app = string(value)
		}
		node, _ := object.FieldOf("v1", "Pod", "spec.nodeName")
		got = append(got, fmt.Sprintf("%s %s/%s at %s: %s on %s", e.Type, o.Namespace, o.Name, o.ResourceVersion, app, node.Value(&o)))
	}
	equal(kv.Revision(10 + len(x.events)))
}

// step makes the pending frames and writes them, as serve does.
func (v *viewer) step(t *testing.T) {
	t.Helper()
	if !v.pending() || !v.flush() {
		t.Fatal("the watch ended")
	}
}

// kinds are selectors with the pods that they match.
var kinds = []struct {
	namespace, labels, fields string
	matches                   func(*pod) bool
}{
	{"", "", "", func(*pod) bool { return true }},
	{"n1", "", "", func(*pod) bool { return true }},
	{"", "app=a1", "", func(p *pod) bool { return p.app == "a1" }},
	{"", "app!=a1", "", func(p *pod) bool { return p.app != "a1" }},
	{"", "", "spec.nodeName=h1", func(p *pod) bool { return p.node == "h1" }},
	{"", "", "spec.nodeName=h2", func(p *pod) bool { return p.node == "h2" }},
	{"n0", "app=a0", "spec.nodeName=h1", func(p *pod) bool { return p.node == "h1" && p.app == "a0" }},
	{"", "", "spec.nodeName!=h1", func(p *pod) bool { return p.node != "h1" }},
	{"n1", "", "metadata.name=p2", func(p *pod) bool { return p.name == "p2" }},
	{"", "", "metadata.namespace=n0", func(p *pod) bool { return p.namespace == "n0" }},
}

// Watches with all kinds of selectors open, close, join the fan, leave it and read at any time, while pods change.
// Each watch gets each matching event once, in order, with the type for its selector. No bookmark precedes an
// event up to its version.
func TestEachWatchGetsItsEventsOnce(t *testing.T) {
	for seed := range uint64(8) {
		x := newFanned(t)
		r := rand.New(rand.NewPCG(seed, 1))
		x.fan.queued = 1 + r.IntN(2000) // in bytes, so that some watches leave the fan
		open := map[*viewer]bool{}
		random := func() *viewer {
			for v := range open {
				return v
			}
			return nil
		}
		for range 400 {
			v, n := random(), r.IntN(20)
			switch {
			case n < 8:
				x.change(t, &pod{fmt.Sprintf("n%d", r.IntN(2)), fmt.Sprintf("p%d", r.IntN(4)), fmt.Sprintf("a%d", r.IntN(2)), fmt.Sprintf("h%d", r.IntN(3)), 0}, false)
			case n == 8:
				for key, p := range x.there {
					gone := *p
					x.change(t, &gone, true)
					delete(x.there, key)
					break
				}
			case n < 11 && len(open) < 12:
				k := kinds[r.IntN(len(kinds))]
				open[x.view(t, k.namespace, k.labels, k.fields, r.IntN(len(x.events)+1), k.matches)] = true
			case v == nil:
			case n == 11:
				v.progress()
				v.step(t)
				x.check(t, v)
				v.close()
				delete(open, v)
			case n == 12:
				v.progress()
				v.flush()
			default:
				v.step(t)
			}
		}
		for v := range open {
			v.progress()
			v.step(t)
			x.check(t, v)
			v.close()
		}
		x.fan.mu.Lock()
		if len(x.fan.all)+len(x.fan.plain)+len(x.fan.index) > 0 || x.fan.watcher != nil {
			t.Errorf("seed %d: %d groups of the fan remain without watches", seed, len(x.fan.all))
		}
		x.fan.mu.Unlock()
	}
}

// A watch reads an event itself after the fan's last pass, and joins the fan after that event. It does not get the
// event again.
func TestAnEventComesWhileAWatchJoins(t *testing.T) {
	x := newFanned(t)
	v := x.view(t, "", "", "", 0, nil)
	v.step(t) // the fan reads
	defer v.close()
	m, err := x.fan.join(groupKey{}, &v.q.selector, v.kind, wait.NewBell(), func() (kv.Revision, error) {
		x.change(t, &pod{"n0", "p0", "a1", "h1", 0}, false)
		return 11, nil
	})
	if err != nil || m == nil || m.last != 11 {
		t.Fatalf("the watch joins the fan at %+v, want version 11: %v", m, err)
	}
	defer x.fan.leave(m)
	x.fan.progress()
	if frames, _, _ := m.take(nil); len(frames) != 0 {
		t.Errorf("the fan repeats events that the watch has read: %q", frames)
	}
	x.change(t, &pod{"n0", "p0", "a0", "h1", 0}, false)
	x.fan.progress()
	if frames, last, _ := m.take(nil); len(frames) != 1 || last != 12 {
		t.Errorf("got %d frames up to version %d, want one of version 12", len(frames), last)
	}
}

// Two watches of all pods in separate groups share the bytes of their frames.
func TestWatchesShareFrames(t *testing.T) {
	x := newFanned(t)
	all := []*viewer{x.view(t, "", "", "", 0, nil), x.view(t, "", "", "", 0, nil), x.view(t, "", "app=a1", "", 0, nil)}
	for _, v := range all {
		v.step(t)
		defer v.close()
	}
	x.change(t, &pod{"n0", "p0", "a1", "h1", 0}, false)
	x.fan.progress()
	var first *byte
	for i, v := range all {
		frames, _, _ := v.member.take(nil)
		if len(frames) != 1 {
			t.Fatalf("watch %d gets %d frames, want 1", i, len(frames))
		}
		if i == 0 {
			first = &frames[0][0]
		} else if first != &frames[0][0] {
			t.Errorf("watch %d gets a copy of the frame", i)
		}
	}
}

// Among many watches of the pods of one node each, an event costs only the watches of the pod's current and
// previous node.
func TestAnEventConcernsTheWatchesOfItsNode(t *testing.T) {
	x := newFanned(t)
	for i := range 100 {
		v := x.view(t, "", "", fmt.Sprintf("spec.nodeName=h%d", i), 0, nil)
		v.step(t)
		defer v.close()
	}
	concerned := func(now, before string) (values []string) {
		p, b := pod{"n0", "p0", "a0", now, 12}, pod{"n0", "p0", "a0", before, 11}
		v, err := transition.Parse(object.JSON, &kv.Event{Type: kv.Put, KV: p.item(), Prev: b.item()}, 12)
		if err != nil {
			t.Fatal(err)
		}
		x.fan.mu.Lock()
		defer x.fan.mu.Unlock()
		for _, g := range x.fan.concernedLocked(v) {
			values = append(values, g.value)
		}
		return values
	}
	if got := concerned("h7", "h7"); !slices.Equal(got, []string{"h7"}) {
		t.Errorf("an event of node h7 concerns the watches of %q", got)
	}
	if got := concerned("h7", "h8"); !slices.Equal(got, []string{"h7", "h8"}) {
		t.Errorf("an event that moves a pod concerns the watches of %q", got)
	}
}

// A watch in the fan leaves it when its feed ends.
func TestWatchesEndWithTheirFeed(t *testing.T) {
	x := newFanned(t)
	v := x.view(t, "", "", "", 0, nil)
	v.step(t)
	if v.member == nil {
		t.Fatal("the watch has not joined the fan")
	}
	x.fan.end()
	<-v.wake
	v.step(t)
	if v.member != nil || v.watcher == nil {
		t.Error("the watch waits for a fan that has ended")
	}
	v.close()
}

// The fan queues frames for a slow watch up to the bound, and at least one frame. Then the watch leaves the fan
// and reads the cache itself.
func TestAWatchThatTakesTooLittleLeaves(t *testing.T) {
	x := newFanned(t)
	v := x.view(t, "", "", "", 0, nil)
	v.step(t)
	defer v.close()
	x.fan.queued = 1
	for range 3 {
		x.change(t, &pod{"n0", "p0", "a1", "h1", 0}, false)
	}
	x.fan.progress()
	if frames, last, left := v.member.take(nil); len(frames) != 1 || last != 11 || !left {
		t.Errorf("%d frames queued up to version %d, the watch has left: %v; want one at version 11, and a watch that has left", len(frames), last, left)
	}
}
