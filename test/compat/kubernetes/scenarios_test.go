package kubernetes_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/test/compat/kubernetes/tier"
)

// TestKubeAPIServer runs the same scenarios on a kube-apiserver in front of an etcd, and in front
// of the tier. The results are equal.
func TestKubeAPIServer(t *testing.T) {
	bin, node := kubeAPIServer(t), cachenode(t)
	// Both use one etcd: the nodes find keys in it and cut them into shards.
	behind := startEtcd(t)
	var right []string
	t.Run("etcd", func(t *testing.T) {
		right = scenarios(t, bin, []string{behind.url})
	})
	t.Run("tier", func(t *testing.T) {
		if len(right) == 0 {
			t.Fatal("there are no results of kube-apiserver with an etcd")
		}
		nodes := startTier(t, node, behind.url, "--shards", "8")
		got := scenarios(t, bin, nodes.Endpoints("http"))
		for i := range max(len(right), len(got)) {
			if i >= len(right) || i >= len(got) || right[i] != got[i] {
				t.Errorf("answers differ from here on:\netcd %q\ntier %q", right[min(i, len(right)):], got[min(i, len(got)):])
				break
			}
		}
	})
	// The death of a member affects a kube-apiserver in front of etcd like the death of a node
	// affects one in front of the tier.
	t.Run("members die", func(t *testing.T) {
		members, endpoints := startMembers(t, behind.url)
		nodesDie(t, startServer(t, bin, endpoints), members, func(context.Context) error { return nil }, behind)
	})
	t.Run("nodes die", func(t *testing.T) {
		nodes := startTier(t, node, behind.url, "--shards", "8", "--watch-progress-notify-interval", progressInterval.String())
		var mortals []mortal
		for _, n := range nodes.Nodes {
			mortals = append(mortals, n)
		}
		nodesDie(t, startServer(t, bin, nodes.Endpoints("http")), mortals, nodes.WaitReady, behind)
	})
}

// progressInterval is the interval of progress notifications to idle watches, as kubeadm sets it
// for etcd. It must be much shorter than the time between compactions, or an idle watch that has to
// resume elsewhere starts at a compacted revision.
const progressInterval = 5 * time.Second

func startTier(t *testing.T, program, etcd string, args ...string) *tier.Tier {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nodes, err := tier.Start(ctx, tier.Config{Binary: program, Dir: t.TempDir(), Etcd: etcd, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(nodes.Logs(3000))
		}
		nodes.Stop()
	})
	return nodes
}

// etcd is an etcd in this process.
type etcd struct {
	url string
	cfg *embed.Config
	run *embed.Etcd // nil: stopped
}

// startEtcd runs an etcd until the test ends.
func startEtcd(t *testing.T) *etcd {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.UnsafeNoFsync = true
	cfg.WatchProgressNotifyInterval = progressInterval
	cfg.LogLevel, cfg.LogOutputs = "fatal", []string{"stderr"}
	client, peer := url.URL{Scheme: "http", Host: freeAddr(t)}, url.URL{Scheme: "http", Host: freeAddr(t)}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e := &etcd{url: client.String(), cfg: cfg}
	e.start(t)
	t.Cleanup(e.stop)
	return e
}

// start starts it with its existing data.
func (e *etcd) start(t *testing.T) {
	t.Helper()
	run, err := embed.StartEtcd(e.cfg)
	if err != nil {
		t.Fatal(err)
	}
	e.run = run
	select {
	case <-run.Server.ReadyNotify():
	case err := <-run.Err():
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("etcd was not ready within a minute")
	}
}

// stop stops it. It may be called twice.
func (e *etcd) stop() {
	if e.run != nil {
		e.run.Close()
		e.run = nil
	}
}

// scenarios starts kube-apiserver with its caches and without, so that its clients' requests reach
// the server unchanged, and returns the parts of its answers that do not depend on the environment.
func scenarios(t *testing.T, bin string, endpoints []string) []string {
	t.Helper()
	var all []string
	for _, caches := range []bool{true, false} {
		t.Run(fmt.Sprintf("watch-cache=%v", caches), func(t *testing.T) {
			s := startServer(t, bin, endpoints, fmt.Sprintf("--watch-cache=%v", caches))
			x := &session{t: t, s: s, ns: fmt.Sprintf("compat-%x", time.Now().UnixNano()), endpoints: endpoints}
			x.run(caches)
			all = append(all, x.said...)
		})
	}
	return all
}

// session is one run of the scenarios. It uses its own names: objects of earlier runs in etcd do
// not affect it.
type session struct {
	t         *testing.T
	s         *server
	ns        string
	endpoints []string
	ctx       context.Context
	said      []string
}

func (x *session) run(caches bool) {
	ctx, cancel := context.WithTimeout(x.t.Context(), 5*time.Minute)
	defer cancel()
	x.ctx = ctx
	x.post("/api/v1/namespaces", object{Metadata: metadata{Name: x.ns}})
	x.pages()
	x.versions()
	x.watches()
	x.initialEvents()
	x.leases()
	if caches {
		x.consistentLists()
		// No watch has had to start again.
		x.note("caches: %v", metrics(ctx, x.t, x.s, restarts))
	} else {
		x.compaction()
	}
}

// note records an answer for comparison.
func (x *session) note(format string, args ...any) {
	x.said = append(x.said, fmt.Sprintf(format, args...))
}

func (x *session) path(resource string) string { return "/api/v1/namespaces/" + x.ns + "/" + resource }

// post, put, remove and list make requests that must succeed.
func (x *session) post(path string, o any) (stored object) {
	x.t.Helper()
	x.must(x.s.do(x.ctx, http.MethodPost, path, o, &stored))
	return stored
}

func (x *session) put(resource, name, value string) (stored object) {
	x.t.Helper()
	x.must(x.s.do(x.ctx, http.MethodPut, x.path(resource)+"/"+name, named(name, value), &stored))
	return stored
}

func (x *session) remove(resource, name string) {
	x.t.Helper()
	x.must(x.s.do(x.ctx, http.MethodDelete, x.path(resource)+"/"+name, nil, nil))
}

func (x *session) list(path, query string) (l list) {
	x.t.Helper()
	x.must(x.s.do(x.ctx, http.MethodGet, path+"?"+query, nil, &l))
	return l
}

func (x *session) watch(path, query string) *watch {
	x.t.Helper()
	w, err := x.s.watch(x.ctx, path+"?watch=1&"+query)
	x.must(err)
	return w
}

func (x *session) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

// refused makes a request that must be refused, and records the refusal.
func (x *session) refused(what, path, query string) {
	x.t.Helper()
	err := x.s.do(x.ctx, http.MethodGet, path+"?"+query, nil, nil)
	if err == nil {
		x.t.Errorf("%s: it was answered", what)
		return
	}
	x.note("%s: %s", what, withoutNumbers(err.Error()))
}

// named returns a config map, or a secret without a value.
func named(name, value string) object {
	o := object{Metadata: metadata{Name: name}}
	if value != "" {
		o.Data = map[string]string{"value": value}
	}
	return o
}

// brief formats objects for comparison.
func brief(objects []object) string {
	var b strings.Builder
	for _, o := range objects {
		fmt.Fprintf(&b, " %s=%s", o.Metadata.Name, o.Data["value"])
	}
	return b.String()
}

// withoutNumbers removes values that differ between runs.
func withoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}

func number(t *testing.T, version string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// pages lists in pages while the objects change: the pages do not change.
func (x *session) pages() {
	const all, page = 120, 50
	path := x.path("configmaps")
	var want []string
	for i := range all {
		name := fmt.Sprintf("page-%03d", i)
		x.post(path, named(name, "old"))
		want = append(want, name)
	}
	var got []string
	for next, version := "", ""; ; {
		l := x.list(path, fmt.Sprintf("limit=%d&continue=%s", page, url.QueryEscape(next)))
		x.note("page: %d of %d more, %s", len(l.Items), l.Metadata.RemainingItemCount, brief(l.Items))
		if version != "" && l.Metadata.ResourceVersion != version {
			x.t.Errorf("a page at %s after one at %s", l.Metadata.ResourceVersion, version)
		}
		version, next = l.Metadata.ResourceVersion, l.Metadata.Continue
		for _, o := range l.Items {
			if o.Data["value"] == "old" {
				got = append(got, o.Metadata.Name)
			}
		}
		if next == "" {
			break
		}
		if len(got) == page { // after the first
			x.put("configmaps", fmt.Sprintf("page-%03d", all-1), "new")
			x.remove("configmaps", fmt.Sprintf("page-%03d", all-2))
			x.post(path, named("page-zzz", "new"))
		}
	}
	// The object that controllers put into every namespace is missing: no controller runs.
	if !slices.Equal(got, want) {
		x.t.Errorf("pages hold %d objects: %v", len(got), got)
	}
	after := x.list(path, "")
	x.note("after the pages: %s", brief(after.Items[len(after.Items)-3:]))
	for _, o := range after.Items {
		x.remove("configmaps", o.Metadata.Name)
	}
}

// versions reads at revisions: any, a given one, not older, and a future one.
func (x *session) versions() {
	path := x.path("configmaps")
	first := x.post(path, named("versions", "1")).Metadata.ResourceVersion
	x.put("configmaps", "versions", "2")
	third := x.put("configmaps", "versions", "3").Metadata.ResourceVersion
	exact := x.list(path, "resourceVersionMatch=Exact&resourceVersion="+first)
	x.note("exactly at the first: %s", brief(exact.Items))
	if exact.Metadata.ResourceVersion != first {
		x.t.Errorf("a list at %s is of %s", first, exact.Metadata.ResourceVersion)
	}
	for _, query := range []string{"", "resourceVersionMatch=NotOlderThan&resourceVersion=" + third, "resourceVersion=" + third} {
		l := x.list(path, query)
		x.note("not older: %s", brief(l.Items))
		if number(x.t, l.Metadata.ResourceVersion) < number(x.t, third) {
			x.t.Errorf("%q is answered with %s, older than %s", query, l.Metadata.ResourceVersion, third)
		}
	}
	x.list(path, "resourceVersion=0") // any: nothing to compare
	future := fmt.Sprint(number(x.t, third) + 1_000_000)
	x.refused("not older than one to come", path, "resourceVersion="+future)
	x.refused("exactly one to come", path, "resourceVersionMatch=Exact&resourceVersion="+future)
	x.refused("no such object", path+"/nothing", "")
	err := x.s.do(x.ctx, http.MethodPost, path, named("versions", "4"), nil)
	x.note("created twice: %s", reasonOf(err))
	stale := named("versions", "5")
	stale.Metadata.ResourceVersion = first
	err = x.s.do(x.ctx, http.MethodPut, path+"/versions", stale, nil)
	x.note("changed by one who has seen the first: %s", reasonOf(err))
}

// watches follows changes from a revision on.
func (x *session) watches() {
	path := x.path("configmaps")
	from := x.list(path, "").Metadata.ResourceVersion
	before := x.watch(path, "allowWatchBookmarks=true&resourceVersion="+from)
	one := x.watch(path, "fieldSelector=metadata.name%3Dwatched-2&resourceVersion="+from)
	x.post(path, named("watched-1", "1"))
	x.post(path, named("watched-2", "1"))
	x.put("configmaps", "watched-1", "2")
	x.remove("configmaps", "watched-1")
	x.put("configmaps", "watched-2", "end")
	after := x.watch(path, "resourceVersion="+from)
	for name, w := range map[string]*watch{"before": before, "after": after, "one": one} {
		events, err := w.until(x.ctx, func(e event) bool { return e.Object.Data["value"] == "end" })
		x.must(err)
		last := number(x.t, from)
		var seen []string
		for _, e := range events {
			version := number(x.t, e.Object.Metadata.ResourceVersion)
			if e.Type == "BOOKMARK" {
				last = max(last, version)
				continue
			}
			if version <= last {
				x.t.Errorf("%s: an event at %d after %d", name, version, last)
			}
			last = version
			seen = append(seen, fmt.Sprintf("%s %s=%s", e.Type, e.Object.Metadata.Name, e.Object.Data["value"]))
		}
		want := []string{"ADDED watched-1=1", "ADDED watched-2=1", "MODIFIED watched-1=2", "DELETED watched-1=2", "MODIFIED watched-2=end"}
		if name == "one" {
			want = []string{"ADDED watched-2=1", "MODIFIED watched-2=end"}
		}
		if !slices.Equal(seen, want) {
			x.t.Errorf("%s saw %q", name, seen)
		}
	}
}

// initialEvents lists by a watch, like client-go's informers.
func (x *session) initialEvents() {
	w := x.watch(x.path("configmaps"), "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
	events, err := w.until(x.ctx, func(e event) bool {
		return e.Type == "BOOKMARK" && e.Object.Metadata.Annotations["k8s.io/initial-events-end"] == "true"
	})
	x.must(err)
	var seen []string
	for _, e := range events {
		seen = append(seen, e.Type+" "+e.Object.Metadata.Name)
	}
	slices.Sort(seen)
	x.note("initial events: %q", seen)
}

// leases stores an event, which etcd must delete after an hour.
func (x *session) leases() {
	about := map[string]string{"kind": "ConfigMap", "namespace": x.ns, "name": "versions"}
	x.post(x.path("events"), map[string]any{"metadata": map[string]string{"name": "leased"}, "involvedObject": about, "reason": "Compat"})
	x.note("events: %s", brief(x.list(x.path("events"), "").Items))
}

// consistentLists reads an unchanged resource while another one changes. kube-apiserver answers
// from its cache once etcd has confirmed that the cache is as new as that change, which it requests
// on the watch.
func (x *session) consistentLists() {
	const reads = 20
	count := func(series string) bool {
		return strings.HasPrefix(series, "apiserver_watch_cache_consistent_read_total") && strings.Contains(series, `resource="secrets"`)
	}
	before := metrics(x.ctx, x.t, x.s, count)
	x.post(x.path("configmaps"), named("changes", "0"))
	for i := range reads {
		written := x.put("configmaps", "changes", fmt.Sprint(i)).Metadata.ResourceVersion
		l := x.list(x.path("secrets"), "")
		if number(x.t, l.Metadata.ResourceVersion) < number(x.t, written) {
			x.t.Errorf("a list at %s after a change at %s", l.Metadata.ResourceVersion, written)
		}
	}
	fromCache := 0.0
	for series, value := range metrics(x.ctx, x.t, x.s, count) {
		if strings.Contains(series, `fallback="false"`) && strings.Contains(series, `success="true"`) {
			fromCache += value - before[series]
		} else if value > before[series] {
			x.t.Errorf("%v of %d reads: %s", value-before[series], reads, series)
		}
	}
	if fromCache < reads {
		x.t.Errorf("%v of %d reads came from kube-apiserver's cache", fromCache, reads)
	}
}

// compaction reads revisions that etcd has compacted.
func (x *session) compaction() {
	cli, err := clientv3.New(clientv3.Config{Endpoints: x.endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	x.must(err)
	defer cli.Close()
	path := x.path("configmaps")
	first := x.post(path, named("compacted", "1")).Metadata.ResourceVersion
	x.post(path, named("compacted-2", "1"))
	page := x.list(path, "limit=1")
	last := x.put("configmaps", "compacted", "2").Metadata.ResourceVersion
	_, err = cli.Compact(x.ctx, number(x.t, last))
	x.must(err)
	x.refused("a list at a compacted revision", path, "resourceVersionMatch=Exact&resourceVersion="+first)
	x.refused("a page at a compacted revision", path, "limit=1&continue="+url.QueryEscape(page.Metadata.Continue))
	w := x.watch(path, "resourceVersion="+first)
	events, err := w.until(x.ctx, func(e event) bool { return e.Type == "ERROR" })
	x.must(err)
	o := events[len(events)-1].Object
	x.note("a watch from a compacted revision: %d %s %s", o.Code, o.Reason, withoutNumbers(o.Message))
	x.note("then: %s", brief(x.list(path, "").Items))
}
