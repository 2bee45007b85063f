package chaos

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// bad is the revision of the planted faults. All clients watch by then, no node has been killed,
// and some watches start after it.
const bad = 133

// about reports whether a response contains the bad revision.
func about(r *etcdserverpb.WatchResponse) bool {
	return slices.ContainsFunc(r.GetEvents(), func(e *mvccpb.Event) bool { return e.GetKv().GetModRevision() == bad })
}

// whole reports whether it contains all of the bad revision, for a watch that gets later events: no
// watcher then waits for the omitted part.
func whole(r *etcdserverpb.WatchResponse) bool {
	n := 0
	for _, e := range r.GetEvents() {
		if e.GetKv().GetModRevision() == bad {
			n++
		}
	}
	return n == 2
}

// wide reports whether a watch gets events of every revision.
func wide(r *etcdserverpb.WatchCreateRequest) bool {
	return len(r.GetRangeEnd()) > 0 && string(r.GetKey()) <= "/p00/" && !slices.Contains(r.GetFilters(), etcdserverpb.WatchCreateRequest_NOPUT)
}

// with returns the response with different events.
func with(r *etcdserverpb.WatchResponse, events ...*mvccpb.Event) *etcdserverpb.WatchResponse {
	return &etcdserverpb.WatchResponse{Header: r.Header, WatchId: r.WatchId, Events: events, Fragment: r.Fragment}
}

// Watchers by etcd's API, on nodes one of which dies, find no violation in correct responses, and
// find each planted one, with every kind of client.
func TestEtcdWatchersFindPlantedFaults(t *testing.T) {
	type (
		response  = *etcdserverpb.WatchResponse
		responses = []*etcdserverpb.WatchResponse
	)
	only := func(which func(response) bool, f func(response) responses) *lie {
		return &lie{says: func(r response) responses {
			if which(r) {
				return f(r)
			}
			return responses{r}
		}}
	}
	for name, c := range map[string]struct {
		lie  *lie
		want check.Promise // "": nothing
		says string
		not  kind // the kind that cannot detect it
	}{
		"all is right":       {lie: &lie{}},
		"a response dropped": {lie: only(whole, func(response) responses { return nil }), want: check.PromiseReliable},
		"a response twice":   {lie: only(about, func(r response) responses { return responses{r, r} }), want: check.PromiseUnique},
		"an older revision after a newer one": {lie: only(about, func(r response) responses {
			return responses{with(r, r.Events[len(r.Events)-1]), with(r, r.Events[0])}
		}), want: check.PromiseOrdered},
		"a revision in two responses": {lie: only(about, func(r response) responses {
			at := slices.IndexFunc(r.Events, func(e *mvccpb.Event) bool { return e.Kv.ModRevision == bad })
			if at+1 == len(r.Events) {
				return responses{r}
			}
			return responses{with(r, r.Events[:at+1]...), with(r, r.Events[at+1:]...)}
		}), want: check.PromiseAtomic, says: "expected all 2 events at once"},
		"half a revision": {lie: only(about, func(r response) responses {
			return responses{with(r, slices.DeleteFunc(slices.Clone(r.Events), func(e *mvccpb.Event) bool {
				return e.Kv.ModRevision == bad && strings.HasPrefix(string(e.Kv.Key), "/p00/")
			})...)}
		}), want: check.PromiseAtomic},
		"another value": {lie: only(about, func(r response) responses {
			e := r.Events[0]
			return responses{with(r, append([]*mvccpb.Event{{
				Type: e.Type, PrevKv: e.PrevKv, Kv: &mvccpb.KeyValue{Key: e.Kv.Key, ModRevision: e.Kv.ModRevision, Value: []byte("?")},
			}}, r.Events[1:]...)...)}
		}), want: check.PromiseReliable},
		"no previous values": {lie: only(about, func(r response) responses {
			for _, e := range r.Events {
				e.PrevKv = nil
			}
			return responses{r}
		}), want: check.PromisePrevious, says: "got no previous value"},
		"progress before its time": {lie: only(about, func(r response) responses {
			return responses{{Header: r.Header, WatchId: -1}, r}
		}), want: check.PromiseBookmarkable, says: "got progress"},
		"progress of a watch before its time": {lie: only(about, func(r response) responses {
			return responses{with(r), r}
		}), want: check.PromiseBookmarkable, says: "got progress"},
		"progress from the future": {lie: only(func(r response) bool { return len(r.Events) == 0 && !r.Created }, func(r response) responses {
			return responses{{Header: &etcdserverpb.ResponseHeader{Revision: r.Header.Revision + 1000}, WatchId: r.WatchId}}
		}), want: check.PromiseBookmarkable, says: "at most etcd's own revision"},
		"progress that goes back": {lie: only(about, func(r response) responses {
			return responses{r, {Header: &etcdserverpb.ResponseHeader{Revision: bad - 1}, WatchId: -1}}
		}), want: check.PromiseBookmarkable, says: "does not go back"},
		"created too late": {lie: only(func(r response) bool { return r.Created }, func(r response) responses {
			return responses{{Header: &etcdserverpb.ResponseHeader{Revision: r.Header.Revision + 20}, WatchId: r.WatchId, Created: true}}
		}), want: check.PromiseBookmarkable, says: "expected nothing up to 120 any more"},
		"a watch that continues too late": {lie: &lie{starts: func(r *etcdserverpb.WatchCreateRequest) {
			if r.StartRevision > bad && wide(r) {
				r.StartRevision += 30
			}
		}}, want: check.PromiseResumable},
		"a watch that continues too early": {lie: &lie{starts: func(r *etcdserverpb.WatchCreateRequest) {
			if r.StartRevision > bad {
				r.StartRevision -= 20
			}
		}}, want: check.PromiseUnique},
		"puts and deletes for every watch": {lie: &lie{starts: func(r *etcdserverpb.WatchCreateRequest) { r.Filters = nil }}, want: check.PromiseFiltered},
		"keys of others": {lie: only(about, func(r response) responses {
			return responses{with(r, append(slices.Clone(r.Events), &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("!"), ModRevision: bad}})...)}
		}), want: check.PromiseFiltered},
		"a watch canceled": {lie: only(about, func(r response) responses {
			return responses{{Header: r.Header, WatchId: r.WatchId, Canceled: true, CompactRevision: bad + 1}}
		}), want: check.PromiseResumable, says: "compacted"},
		"the state without a key": {lie: &lie{lists: func(r *etcdserverpb.RangeResponse) {
			r.Kvs = r.Kvs[:max(len(r.Kvs)-1, 0)]
		}}, want: check.PromiseExact},
		"fragments of two watches mixed": {lie: only(func(r response) bool { return about(r) && r.WatchId < 1000 }, func(r response) responses {
			first, other := with(r), with(r)
			first.Fragment = true
			other.WatchId, other.Fragment = 1+r.WatchId%10, false
			return responses{first, other, r}
		}), want: check.PromiseAtomic, says: "fragments", not: etcdClient},
		"another ID than the client's": {
			lie: &lie{starts: func(r *etcdserverpb.WatchCreateRequest) {
				if r.WatchId > 0 {
					r.WatchId += 500
				}
			}},
			want: check.PromiseFiltered, says: "watch ID", not: etcdClient,
		},
		"a watch without a request": {lie: only(about, func(r response) responses {
			other := with(r)
			other.WatchId += 500
			return responses{r, other}
		}), want: check.PromiseFiltered, says: "one for watch", not: etcdClient},
		"a header older than its events": {lie: only(about, func(r response) responses {
			r.Header = &etcdserverpb.ResponseHeader{Revision: bad - 1}
			return responses{r}
		}), want: check.PromiseBookmarkable, says: "header", not: etcdClient},
	} {
		for _, by := range []kind{etcdClient, etcdStream} {
			t.Run(name+" by "+string(by), func(t *testing.T) {
				t.Parallel()
				found := watchFakes(t, by, c.lie)
				var promises, texts []string
				for _, v := range found {
					promises, texts = append(promises, string(v.Promise)), append(texts, v.String())
				}
				all := strings.Join(texts[:min(len(texts), 10)], "\n")
				switch {
				case c.want == "" || c.not == by:
					if len(found) > 0 {
						t.Errorf("%d violations:\n%s", len(found), all)
					}
				case !slices.Contains(promises, string(c.want)):
					t.Errorf("did not find %q, but\n%s", c.want, all)
				case !strings.Contains(strings.Join(texts, "\n"), c.says):
					t.Errorf("no text says %s:\n%s", c.says, all)
				}
			})
		}
	}
}

// watchFakes runs a crowd of one kind on three fake nodes with the same lie, one of which dies, and
// returns its violations.
func watchFakes(t *testing.T, by kind, l *lie) []check.Violation {
	t.Helper()
	store, truth := newFakeStore(), newTruth()
	keys, rng := keyspace{3, 10}, rand.New(rand.NewPCG(1, 1))
	write := func(n int) {
		for range n {
			store.write(keys, rng)
		}
		store.learn(t, truth)
	}
	write(99) // to revision 100
	var nodes []*fakeNode
	var targets []target
	for _, name := range []string{"a", "b", "c"} {
		n := startFake(t, name, store, l)
		nodes, targets = append(nodes, n), append(targets, n.at)
	}
	ws := wishes(by, 40, Mix{Prefixes: 30, Everything: 40}, keys, kv.Revision(store.revision()), rng)
	crowd, err := newCrowd(targets, 4, "", ws, truth, rng)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var g sync.WaitGroup
	g.Go(func() { _ = crowd.run(ctx) })
	defer func() {
		cancel()
		g.Wait()
		if err := crowd.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := poll(ctx, time.Minute, "all to start", func() error {
		for _, w := range crowd.watchers {
			if err := w.complete(kv.Revision(store.revision())); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	crowd.take()
	write(50) // to 150
	if err := crowd.reach(ctx, store.revision(), time.Minute); err != nil {
		t.Fatal(err)
	}
	slices.MaxFunc(nodes, func(a, b *fakeNode) int { return cmp.Compare(a.streams.Load(), b.streams.Load()) }).server.Stop()
	write(40)
	if err := crowd.reach(ctx, store.revision(), time.Minute); err != nil {
		t.Fatal(err)
	}
	crowd.finish(ctx, store.revision(), 200*time.Millisecond)
	m := crowd.take()[by]
	if m.events == 0 || len(m.late.Moved) == 0 || len(m.moves) == 0 || m.worst == "" {
		t.Errorf("%+v", m)
	}
	first, all := crowd.violations()
	if len(first) == 0 && all[by] > 0 {
		t.Errorf("%d violations, none of them reported", all[by])
	}
	return first
}
