package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/mirror"
	"github.com/shardwatch/shardwatch/internal/node"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// contents are the keys in etcd with the revisions of their last changes, and
// etcd's revision.
func (c *cluster) contents(ctx context.Context) (map[string]int64, int64) {
	c.t.Helper()
	r, err := c.etcd.Client().Get(ctx, "\x00", clientv3.WithFromKey())
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]int64{}
	for _, kv := range r.Kvs {
		out[string(kv.Key)] = kv.ModRevision
	}
	return out, r.Header.GetRevision()
}

// The public client resumes with its token after an absence longer than the window:
// watch and list return only the changes. A new lineage starts it again. Its mirror
// equals etcd throughout, and no node lists at etcd.
func TestClientResumesInEachServeMode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 3, func(cfg *node.Config) {
		shards(3, 3)(cfg)
		cfg.Cache.WindowTime = time.Second
	})
	c.etcd = etcdtest.Start(t)
	c.put(keys(60)...)
	for _, m := range c.nodes {
		m.start()
	}
	c.ready()
	c.settled(3, 3)
	ctx := within(t)
	before := c.stats()

	cl := c.client()
	local := mirror.New(ctx, cl, client.Range{})
	defer func() { _ = local.Close() }()
	away := cl.Watch(ctx, client.Range{}, client.WithState())
	state, err := away.Next(ctx)
	if err != nil || state.Kind != client.KindState || len(state.KVs) != 60 {
		t.Fatalf("%v of %d keys, %v", state.Kind, len(state.KVs), err)
	}
	token := away.Token()
	away.Close()

	var deleted []string
	for _, key := range keys(60)[:5] {
		if _, err := c.etcd.Client().Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		deleted = append(deleted, key)
	}
	c.put("/a/new", "/c/10", "/c/10", "/h/new")
	changed := map[string]bool{"/a/new": true, "/c/10": true, "/h/new": true}
	var ticks []string // a shard evicts when it gets a write
	for dir := 'a'; dir <= 'h'; dir++ {
		ticks = append(ticks, fmt.Sprintf("/%c/tick", dir))
		changed[ticks[len(ticks)-1]] = true
	}
	testkit.Succeeds(t, "the window has moved on", func() error {
		c.put(ticks...)
		for _, m := range c.nodes {
			for _, r := range m.node.Status().GetReplicas() {
				if r.GetFloor() <= state.Revision+int64(len(deleted))+4 {
					return fmt.Errorf("%s: the floor of shard %d is %d", m.name, r.GetShardId(), r.GetFloor())
				}
			}
		}
		return nil
	})

	back := func() (*client.Watcher, client.Update) {
		t.Helper()
		w := cl.Watch(ctx, client.Range{}, client.FromToken(token), client.WithProgress())
		t.Cleanup(w.Close)
		u, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return w, u
	}
	w, u := back()
	if u.Kind != client.KindDelta || u.From != state.Revision || len(u.KVs) != len(changed) || len(u.Deleted) != len(deleted) {
		t.Errorf("a watch receives %v from %d, want from %d: %d changed, %d deleted", u.Kind, u.From, state.Revision, len(u.KVs), len(u.Deleted))
	}
	for _, kv := range u.KVs {
		if !changed[string(kv.Key)] {
			t.Errorf("%s has not changed", kv.Key)
		}
	}
	l := cl.List(ctx, client.Range{}, client.ChangedSince(state.Position()))
	n := 0
	for kv, err := range l.All() {
		if n++; err != nil || !changed[string(kv.Key)] {
			t.Errorf("the list has %s, which has not changed, or fails: %v", kv.Key, err)
		}
	}
	if n != len(changed) || len(l.Deleted()) != len(deleted) || l.FreshAt().IsZero() {
		t.Errorf("the list: %d changed, %q deleted, fresh at %v", n, l.Deleted(), l.FreshAt())
	}
	testkit.Succeeds(t, "the watch has an age", func() error {
		if age := time.Since(w.Stats().FreshAt); age > patience {
			return fmt.Errorf("%v", age)
		}
		return nil
	})
	conflated := cl.Watch(ctx, client.Range{}, client.FromToken(token), client.WithConflation(10*time.Millisecond))
	defer conflated.Close()
	if u, err := conflated.Next(ctx); err != nil || u.Kind != client.KindConflated && u.Kind != client.KindDelta || len(u.Deleted) != len(deleted) {
		t.Errorf("a conflated watch receives %v from %d, %q deleted (%v)", u.Kind, u.From, u.Deleted, err)
	}
	last := c.put("/c/last")
	for revision := int64(0); revision < last; {
		u, err := conflated.Next(ctx)
		if err != nil || u.Kind != client.KindConflated {
			t.Fatalf("then %v, %v", u.Kind, err)
		}
		revision = u.Revision
	}

	forged := append([]byte{}, token...)
	forged[len(forged)-1] ^= 1
	for what, bad := range map[string]*client.Watcher{
		"forged":    cl.Watch(ctx, client.Range{}, client.FromToken(forged)),
		"truncated": cl.Watch(ctx, client.Range{}, client.FromToken(token[:12])),
		"of others": cl.Watch(ctx, client.Prefix("/a/"), client.FromToken(token)),
	} {
		if _, err := bad.Next(ctx); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), "resume_token") {
			t.Errorf("%s: %v", what, err)
		}
	}

	same := func() {
		t.Helper()
		want, revision := c.contents(ctx)
		if err := local.WaitFor(ctx, client.Position{Revision: revision}); err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for kv := range local.All() {
			got[string(kv.Key)] = kv.ModRevision
		}
		if !maps.Equal(got, want) {
			t.Errorf("the mirror holds %v, etcd %v", got, want)
		}
	}
	same()
	if s := cl.Stats(); s.Resyncs != 0 || s.Lists != 1 || s.Deltas == 0 {
		t.Errorf("%+v", s)
	}
	if after := c.stats(); after.Lists != before.Lists {
		t.Errorf("%d lists at etcd", after.Lists-before.Lists)
	}

	// Another lineage: running watches and old tokens start again, each with one
	// unit.
	if _, err := c.nodes[0].node.BumpLineage(ctx, 1, "for the test", 0); err != nil {
		t.Fatal(err)
	}
	for u := (client.Update{}); u.Kind != client.KindResync; {
		if u, err = w.Next(ctx); err != nil {
			t.Fatal(err)
		}
		if u.Kind == client.KindResync && u.Lineage != 2 {
			t.Errorf("a resync of lineage %d", u.Lineage)
		}
	}
	if _, u := back(); u.Kind != client.KindResync || u.Lineage != 2 {
		t.Errorf("the old token starts with %v of lineage %d", u.Kind, u.Lineage)
	}
	testkit.Succeeds(t, "the mirror is in the new lineage", func() error {
		if l := local.View().Position().Lineage; l != 2 {
			return fmt.Errorf("%d", l)
		}
		return nil
	})
	c.put("/d/after")
	same()
	if s := local.Stats(); s.Resyncs != 1 || s.States != 1 {
		t.Errorf("%+v", s)
	}
}
