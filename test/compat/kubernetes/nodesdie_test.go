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

	"github.com/shardwatch/shardwatch/test/compat/kubernetes/tier"
)

// kinds are what is written and watched while nodes die: where the API has it,
// and the folder of its keys.
var kinds = []struct{ group, resource string }{
	{"/api/v1", "configmaps"},
	{"/api/v1", "secrets"},
	{"/api/v1", "serviceaccounts"},
	{"/apis/coordination.k8s.io/v1", "leases"},
}

const (
	watchesEach = 8
	writesEach  = 40 // a second, of each kind
	dieNS       = "nodes-die"
)

// change is one as etcd tells it, and as a watch of Kubernetes should.
type change struct {
	version string
	deed    string // ADDED, MODIFIED, DELETED
	name    string
}

// nodesDie kills one node after the other, and starts it again, while objects
// are written and watched. No watch ends or misses anything, and kube-apiserver
// lists nothing again.
func nodesDie(t *testing.T, s *server, nodes *tier.Tier, etcd string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	x := &session{t: t, s: s, ns: dieNS, ctx: ctx}
	x.post("/api/v1/namespaces", object{Metadata: metadata{Name: dieNS}})

	start := number(t, x.list(x.path("configmaps"), "").Metadata.ResourceVersion)
	truths, stopTruths := watchEtcd(t, etcd, start+1)
	defer stopTruths()
	watches := make([][]*watch, len(kinds))
	for i, k := range kinds {
		for j := range watchesEach {
			p := k.group + "/namespaces/" + dieNS + "/" + k.resource
			if j%2 == 1 {
				p = k.group + "/" + k.resource // of all namespaces
			}
			watches[i] = append(watches[i], x.watch(p, fmt.Sprintf("allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion=%d", start)))
		}
	}
	before := metrics(ctx, t, s, restarts)
	listsBefore := metrics(ctx, t, s, lists)

	writing, stop := context.WithCancel(ctx)
	defer stop()
	writers := make([]*writer, len(kinds))
	var g sync.WaitGroup
	for i, k := range kinds {
		writers[i] = &writer{s: s, path: k.group + "/namespaces/" + dieNS + "/" + k.resource}
		g.Go(func() { writers[i].run(writing) })
	}
	// all waits until every watch has told of a change that begins now.
	all := func(mark string) {
		t.Helper()
		for i := range kinds {
			x.must(writers[i].mark(ctx, mark))
			for _, w := range watches[i] {
				_, err := w.until(ctx, func(e event) bool { return e.Object.Metadata.Name == mark })
				x.must(err)
			}
		}
	}
	all("begun")
	for i, n := range nodes.Nodes {
		killed := time.Now()
		n.Kill()
		all(fmt.Sprintf("killed-%d", i+1))
		t.Logf("node %d is dead; %d watches of %d kinds had what was written after that within %v", i+1, watchesEach*len(kinds), len(kinds), time.Since(killed).Round(time.Millisecond))
		x.must(n.Start())
		x.must(nodes.WaitReady(ctx))
		all(fmt.Sprintf("back-%d", i+1))
	}
	stop()
	g.Wait()
	all("end")

	after := metrics(ctx, t, s, restarts)
	for series, value := range after {
		if value != before[series] {
			t.Errorf("%s went from %v to %v", series, before[series], value)
		}
	}
	for series, value := range metrics(ctx, t, s, lists) {
		if value != listsBefore[series] {
			t.Logf("%s: %v more", series, value-listsBefore[series])
		}
	}
	for i, k := range kinds {
		want := truths[i].until(ctx, t, "end")
		t.Logf("%s: %d changes, %d writes failed", k.resource, len(want), writers[i].failed)
		for _, w := range watches[i] {
			if err := w.end(); err != nil {
				t.Errorf("%s ended: %v", w.path, err)
			}
			events, err := w.until(ctx, func(e event) bool { return e.Object.Metadata.Name == "end" })
			x.must(err)
			got := changes(events)
			if !slices.Equal(got, want) {
				t.Errorf("%s saw %d changes, etcd %d: %s", w.path, len(got), len(want), firstDifference(got, want))
			}
		}
	}
}

// restarts are the series of what a cache of kube-apiserver does that has to
// begin again.
func restarts(series string) bool {
	return strings.HasPrefix(series, "apiserver_watch_cache_initializations_total") || strings.HasPrefix(series, "apiserver_terminated_watchers_total")
}

// lists are those of its lists at etcd.
func lists(series string) bool {
	return strings.HasPrefix(series, "apiserver_storage_list_total") ||
		strings.HasPrefix(series, "etcd_requests_total") && strings.Contains(series, `operation="list"`) ||
		strings.HasPrefix(series, "etcd_request_errors_total")
}

func changes(events []event) (all []change) {
	for _, e := range events {
		if e.Type != "BOOKMARK" && (e.Object.Metadata.Namespace == dieNS || e.Type == "ERROR") {
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

	mu     sync.Mutex // held by a write
	failed int        // writes without an answer, or with none that was expected; guarded by mu
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
			err = w.do(ctx, http.MethodPut, name, fmt.Sprintf("%s %d", name, i))
		}
		// The answer to an earlier write may be lost: then it is there already,
		// or not there any more.
		if reason := reasonOf(err); err != nil && ctx.Err() == nil && reason != "AlreadyExists" && reason != "NotFound" {
			w.mu.Lock()
			w.failed++
			w.mu.Unlock()
		}
	}
}

// mark creates an object, at whatever number of attempts.
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

// truth is what etcd itself tells of the keys of a kind.
type truth struct {
	mu      sync.Mutex
	changes []change      // guarded by mu
	more    chan struct{} // closed and replaced with each; guarded by mu
}

// watchEtcd watches every kind at etcd.
func watchEtcd(t *testing.T, endpoint string, from int64) ([]*truth, context.CancelFunc) {
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
		answers := cli.Watch(ctx, "/registry/"+k.resource+"/"+dieNS+"/", clientv3.WithPrefix(), clientv3.WithRev(from))
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

// until returns all changes up to that of a name.
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
