package kubernetes_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// kinds are the kinds that are written and watched while nodes die, with their path in the API and
// the prefix of their keys.
var kinds = []struct{ group, resource string }{
	{"/api/v1", "configmaps"},
	{"/api/v1", "secrets"},
	{"/api/v1", "serviceaccounts"},
	{"/apis/coordination.k8s.io/v1", "leases"},
}

const (
	watchesEach = 8
	writesEach  = 40 // a second, of each kind, at most
	between     = 60 // writes of each kind before a node dies, and while it is dead
)

// change is a change at etcd, and the expected event of a watch of Kubernetes.
type change struct {
	version string
	deed    string // ADDED, MODIFIED, DELETED
	name    string
}

// mortal is a server of clients: a cache node, or a member of etcd.
type mortal interface {
	Kill()
	Drain()
	Start() error
}

// etcdAway is the duration of etcd's outage: longer than nodes treat their data as fresh.
const etcdAway = 10 * time.Second

// nodesDie ends and restarts one node after the other, and finally etcd, while objects are written
// and watched. No watch ends or misses events, and kube-apiserver lists nothing again.
func nodesDie(t *testing.T, s *server, nodes []mortal, ready func(context.Context) error, behind *etcd) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ns := fmt.Sprintf("die-%x", time.Now().UnixNano())
	x := &session{t: t, s: s, ns: ns, ctx: ctx}
	x.post("/api/v1/namespaces", object{Metadata: metadata{Name: ns}})

	start := number(t, x.list(x.path("configmaps"), "").Metadata.ResourceVersion)
	truths, stopTruths := watchEtcd(t, behind.url, ns, start+1)
	defer stopTruths()
	watches := make([][]*watch, len(kinds))
	for i, k := range kinds {
		for j := range watchesEach {
			p := k.group + "/namespaces/" + ns + "/" + k.resource
			if j%2 == 1 {
				p = k.group + "/" + k.resource // of all namespaces
			}
			watches[i] = append(watches[i], x.watch(p, fmt.Sprintf("allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion=%d", start)))
		}
	}
	before, asked := metrics(ctx, t, s, restarts), metrics(ctx, t, s, requests)
	atEtcd := etcdMetrics(ctx, t, behind.url)

	writing, stop := context.WithCancel(ctx)
	defer stop()
	writers := make([]*writer, len(kinds))
	var g sync.WaitGroup
	for i, k := range kinds {
		writers[i] = &writer{s: s, path: k.group + "/namespaces/" + ns + "/" + k.resource}
		g.Go(func() { writers[i].run(writing) })
	}
	// all waits until every watch has reported a change made now, and then for many more changes.
	all := func(mark string) {
		t.Helper()
		for i := range kinds {
			x.must(writers[i].mark(ctx, mark))
			for _, w := range watches[i] {
				_, err := w.until(ctx, func(e event) bool { return e.Object.Metadata.Name == mark })
				x.must(err)
			}
		}
		for i := range kinds {
			writers[i].more(writing, between)
		}
	}
	all("begun")
	for i, n := range nodes {
		for how, end := range map[string]func(){"killed": n.Kill, "drained": n.Drain} {
			end()
			all(fmt.Sprintf("%s-%d", how, i+1))
			x.must(n.Start())
			x.must(ready(ctx))
			all(fmt.Sprintf("%s-%d-back", how, i+1))
		}
	}
	t.Logf("nodes: kube-apiserver's requests: %v", byOperation(metrics(ctx, t, s, requests), asked))
	for name, value := range etcdMetrics(ctx, t, behind.url) {
		t.Logf("etcd: %s: %v, %v more", name, value, value-atEtcd[name])
	}
	behind.stop()
	time.Sleep(etcdAway)
	behind.start(t)
	all("etcd-back")
	stop()
	g.Wait()
	all("end") // the writes have stopped

	after := metrics(ctx, t, s, restarts)
	for series, value := range after {
		if value != before[series] {
			t.Errorf("%s went from %v to %v", series, before[series], value)
		}
	}
	t.Logf("etcd too: kube-apiserver's requests: %v", byOperation(metrics(ctx, t, s, requests), asked))
	for i, k := range kinds {
		want := truths[i].until(ctx, t, "end")
		t.Logf("%s: %d changes, %d writes failed", k.resource, len(want), writers[i].failed)
		for _, w := range watches[i] {
			if err := w.end(); err != nil {
				t.Errorf("%s ended: %v", w.path, err)
			}
			events, err := w.until(ctx, func(e event) bool { return e.Object.Metadata.Name == "end" })
			x.must(err)
			got := changes(events, ns)
			if !slices.Equal(got, want) {
				t.Errorf("%s saw %d changes, etcd %d: %s", w.path, len(got), len(want), firstDifference(got, want))
			}
		}
	}
}

// restarts are the series of events that make a cache of kube-apiserver start again.
func restarts(series string) bool {
	return strings.HasPrefix(series, "apiserver_watch_cache_initializations_total") || strings.HasPrefix(series, "apiserver_terminated_watchers_total")
}

// requests are the series of its requests to etcd and of their failures.
func requests(series string) bool {
	return strings.HasPrefix(series, "etcd_request") && !strings.Contains(series, "duration")
}

// byOperation adds up the increases since then.
func byOperation(now, before map[string]float64) map[string]float64 {
	sum := map[string]float64{}
	for series, value := range now {
		name, labels, _ := strings.Cut(series, "{")
		_, operation, _ := strings.Cut(labels, `operation="`)
		operation, _, _ = strings.Cut(operation, `"`)
		if more := value - before[series]; more > 0 {
			sum[name+" "+operation] += more
		}
	}
	return sum
}

// etcdMetrics are etcd's counts: of reads, and of current watches.
func etcdMetrics(ctx context.Context, t *testing.T, etcd string) map[string]float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, etcd+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return readMetrics(t, resp.Body, func(series string) bool {
		return series == "etcd_debugging_mvcc_watcher_total" ||
			strings.HasPrefix(series, "grpc_server_started_total") && (strings.Contains(series, `grpc_method="Range"`) || strings.Contains(series, `grpc_method="Txn"`))
	})
}

func changes(events []event, ns string) (all []change) {
	for _, e := range events {
		if e.Type != "BOOKMARK" && (e.Object.Metadata.Namespace == ns || e.Type == "ERROR") {
			all = append(all, change{e.Object.Metadata.ResourceVersion, e.Type, e.Object.Metadata.Name})
		}
	}
	return all
}

func firstDifference(got, want []change) string {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			return fmt.Sprintf("got %v, want %v", got[min(i, len(got)):min(i+3, len(got))], want[min(i, len(want)):min(i+3, len(want))])
		}
	}
	return "none"
}

// writer creates, changes and deletes objects of one kind.
type writer struct {
	s    *server
	path string

	mu     sync.Mutex
	done   int // writes with the expected answer; guarded by mu
	failed int // others; guarded by mu
}

func (w *writer) run(ctx context.Context) {
	const names = 20
	tick := time.NewTicker(time.Second / writesEach)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		name := fmt.Sprintf("object-%02d", i%names)
		var err error
		switch turn := i / names % 4; turn {
		case 0:
			err = w.do(ctx, http.MethodPost, "", name)
		case 3:
			err = w.do(ctx, http.MethodDelete, name, name)
		default:
			err = w.do(ctx, http.MethodPatch, name, fmt.Sprintf("%s %d", name, i))
		}
		// The answer to an earlier write may be lost: then the object already exists, or no longer
		// exists.
		reason := reasonOf(err)
		w.mu.Lock()
		if err == nil || reason == "AlreadyExists" || reason == "NotFound" {
			w.done++
		} else if ctx.Err() == nil {
			w.failed++
		}
		w.mu.Unlock()
	}
}

// more waits for a number of further writes, or until the writer has ended.
func (w *writer) more(ctx context.Context, n int) {
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.done
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for enough := count() + n; count() < enough; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// mark creates an object, with any number of attempts.
func (w *writer) mark(ctx context.Context, name string) error {
	for {
		err := w.do(ctx, http.MethodPost, "", name)
		if err == nil || reasonOf(err) == "AlreadyExists" {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
	}
}

func (w *writer) do(ctx context.Context, method, at, value string) error {
	name, _, _ := strings.Cut(value, " ")
	o := object{Metadata: metadata{Name: name, Annotations: map[string]string{"value": value}}}
	return w.s.do(ctx, method, strings.TrimSuffix(w.path+"/"+at, "/"), o, nil)
}

// truth is etcd's own changes of the keys of a kind.
type truth struct {
	mu      sync.Mutex
	changes []change      // guarded by mu
	more    chan struct{} // closed and replaced with each; guarded by mu
}

// watchEtcd watches every kind in a namespace at etcd.
func watchEtcd(t *testing.T, endpoint, ns string, from int64) ([]*truth, context.CancelFunc) {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all []*truth
	var g sync.WaitGroup
	for _, k := range kinds {
		u := &truth{more: make(chan struct{})}
		all = append(all, u)
		answers := cli.Watch(ctx, "/registry/"+k.resource+"/"+ns+"/", clientv3.WithPrefix(), clientv3.WithRev(from))
		g.Go(func() { u.read(answers) })
	}
	return all, func() {
		cancel()
		g.Wait()
		_ = cli.Close()
	}
}

func (u *truth) read(answers clientv3.WatchChan) {
	for answer := range answers {
		u.mu.Lock()
		for _, e := range answer.Events {
			deed := "DELETED"
			if e.IsCreate() {
				deed = "ADDED"
			} else if e.IsModify() {
				deed = "MODIFIED"
			}
			u.changes = append(u.changes, change{fmt.Sprint(e.Kv.ModRevision), deed, path.Base(string(e.Kv.Key))})
		}
		close(u.more)
		u.more = make(chan struct{})
		u.mu.Unlock()
	}
}

// until returns all changes up to the one with a name.
func (u *truth) until(ctx context.Context, t *testing.T, name string) []change {
	t.Helper()
	for {
		u.mu.Lock()
		seen, more := u.changes, u.more
		u.mu.Unlock()
		if i := slices.IndexFunc(seen, func(c change) bool { return c.name == name }); i >= 0 {
			return seen[:i+1]
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
}
