package client_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/client/clienttest"
	"github.com/shardwatch/shardwatch/client/mirror"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
)

// holder applies the updates of a watch: it has the revision of each key's last change.
// After each update it has the state at the revision of the update.
type holder struct {
	cluster  *clienttest.Cluster
	rng      client.Range
	revision int64
	lineage  uint64
	keys     map[string]int64
	batches  int
}

// at returns the state of the range at a revision of a lineage.
func (h *holder) at(lineage uint64, revision int64) map[string]int64 {
	out := map[string]int64{}
	for _, kv := range h.cluster.State(lineage, revision) {
		if h.rng.Contains(string(kv.GetKey())) {
			out[string(kv.GetKey())] = kv.GetModRevision()
		}
	}
	return out
}

// begin starts the holder at a revision.
func (h *holder) begin(lineage uint64, revision int64) {
	h.lineage, h.revision, h.keys = lineage, revision, h.at(lineage, revision)
}

func (h *holder) take(u client.Update) error {
	if h.keys == nil && u.Kind == client.KindProgress { // the watch starts at the current revision
		h.begin(u.Lineage, u.Revision)
		return nil
	}
	if u.Lineage < h.lineage || u.Lineage == h.lineage && u.Revision <= h.revision {
		return fmt.Errorf("ordered, unique: %v at %d of lineage %d after %d of %d", u.Kind, u.Revision, u.Lineage, h.revision, h.lineage)
	}
	switch u.Kind {
	case client.KindBatch:
		h.batches++
		for _, e := range u.Events {
			if h.keys[string(e.KV.Key)] = e.KV.ModRevision; e.Type == client.EventDelete {
				delete(h.keys, string(e.KV.Key))
			}
		}
	case client.KindState, client.KindResync:
		h.keys = map[string]int64{}
		for _, kv := range u.KVs {
			h.keys[string(kv.Key)] = kv.ModRevision
		}
	case client.KindDelta, client.KindConflated:
		if u.From != h.revision {
			return fmt.Errorf("%v from %d, but the position is %d", u.Kind, u.From, h.revision)
		}
		for _, kv := range u.KVs {
			h.keys[string(kv.Key)] = kv.ModRevision
		}
		for _, key := range u.Deleted {
			delete(h.keys, string(key))
		}
	case client.KindProgress:
	}
	h.lineage, h.revision = u.Lineage, u.Revision
	if want := h.at(u.Lineage, u.Revision); !maps.Equal(h.keys, want) {
		return fmt.Errorf("after %v at %d of lineage %d: %v, want %v", u.Kind, u.Revision, u.Lineage, h.keys, want)
	}
	return nil
}

// Random writes, compactions, restores and faults over real connections: after each update
// of a watch, a client that applies them has exactly the state of etcd. The same holds for
// mirrors, and all of them reach the end.
func TestRandomUnits(t *testing.T) {
	rng := testseed.Rand(t)
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	cluster := start(t, clienttest.Config{FragmentEvents: 2, ChunkKeys: 2, Cuts: []string{"/k3", "/k6"}})
	c := connect(t, cluster, func(c *client.Config) { c.Silence = 400 * time.Millisecond })
	ctx, stop := context.WithTimeout(t.Context(), 2*patience)
	defer stop()
	write := func() {
		var ops []clienttest.Op
		keys := map[string]bool{}
		for range 1 + rng.IntN(5) {
			op := clienttest.Op{Key: fmt.Sprintf("/k%d/%d", rng.IntN(10), rng.IntN(4)), Value: "x", Delete: rng.IntN(3) == 0}
			if !keys[op.Key] { // etcd refuses a duplicate key in a transaction
				ops = append(ops, op)
			}
			keys[op.Key] = true
		}
		cluster.Txn(ops...)
	}
	for range 20 {
		write()
	}

	var wg sync.WaitGroup
	var mu sync.Mutex
	end, endLineage := int64(1<<60), uint64(0) // guarded by mu
	failed := make(chan error, 1000)
	watch := func(r client.Range) {
		h := &holder{cluster: cluster, rng: r}
		opts := []client.WatchOption{client.WithProgress()}
		switch lineage := cluster.Lineage(); rng.IntN(3) {
		case 0:
			opts = append(opts, client.WithState())
		case 1:
			h.begin(lineage, 1+rng.Int64N(cluster.Revision()))
			opts = append(opts, client.FromPosition(client.Position{Cluster: cluster.ID(), Lineage: lineage, Revision: h.revision}))
		}
		if rng.IntN(3) == 0 {
			opts = append(opts, client.WithConflation(20*time.Millisecond))
		}
		if rng.IntN(3) == 0 {
			opts = append(opts, client.WithBuffer(2000))
		}
		if rng.IntN(3) == 0 {
			opts = append(opts, client.WithMaxStaleness(time.Second))
		}
		w := c.Watch(ctx, r, opts...)
		wg.Go(func() {
			for {
				mu.Lock()
				there := h.lineage == endLineage && h.revision >= end
				mu.Unlock()
				if there {
					return
				}
				one, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				u, err := w.Next(one)
				cancel()
				if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
					continue
				}
				if err == nil {
					err = h.take(u)
				}
				if err != nil {
					failed <- fmt.Errorf("watch %v: %w (%+v)", r, err, w.Stats())
					return
				}
			}
		})
	}
	someRange := func() client.Range {
		switch rng.IntN(3) {
		case 0:
			return client.Range{}
		case 1:
			return client.Prefix(fmt.Sprintf("/k%d/", rng.IntN(10)))
		default:
			return client.Between(fmt.Sprintf("/k%d", rng.IntN(5)), fmt.Sprintf("/k%d", 5+rng.IntN(5)))
		}
	}
	for range 20 {
		watch(someRange())
	}
	local := mirror.New(ctx, c, client.Range{})
	mirrored := holder{cluster: cluster}
	wg.Go(func() {
		told := map[string]int64{}
		for ch, err := range local.Changes(ctx) {
			if err != nil {
				return
			}
			for _, e := range ch.Events {
				if told[string(e.KV.Key)] = e.KV.ModRevision; e.Type == client.EventDelete {
					delete(told, string(e.KV.Key))
				}
			}
			if want := mirrored.at(ch.View.Position().Lineage, ch.View.Revision()); !maps.Equal(told, want) {
				failed <- fmt.Errorf("changes at %d of lineage %d add up to %v, want %v", ch.View.Revision(), ch.View.Position().Lineage, told, want)
				return
			}
		}
	})

	nodes := cluster.Nodes()
	var down *clienttest.Node
	for range rounds {
		for range rng.IntN(10) {
			write()
		}
		n := nodes[rng.IntN(len(nodes))]
		switch rng.IntN(10) {
		case 0:
			if down == nil {
				down = n
				n.Kill()
			}
		case 1, 2:
			cluster.Compact(cluster.Revision() - rng.Int64N(5))
		case 3:
			cluster.Compact(cluster.Revision() - rng.Int64N(5))
			cluster.ForgetDeletes(cluster.Revision() - rng.Int64N(10))
		case 4:
			if rng.IntN(4) == 0 {
				cluster.Restore(max(2, cluster.Revision()-rng.Int64N(20)))
			}
		case 5, 6:
			n.CutAfter(1 + rng.Int64N(8))
		case 7:
			n.Garble(1 + rng.Int64N(8))
		case 8:
			n.Hold(max(1, cluster.Revision()-rng.Int64N(10)))
		case 9:
			n.SetAge(time.Duration(rng.IntN(3)) * time.Second)
		}
		if down != nil && rng.IntN(3) == 0 {
			if err := down.Restart(); err != nil {
				t.Fatal(err)
			}
			down = nil
		}
		for _, n := range nodes {
			if rng.IntN(4) == 0 {
				n.Hold(0)
				n.SetAge(0)
			}
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) // the pace of the faults, not a synchronization
	}
	for _, n := range nodes {
		n.Hold(0)
		n.SetAge(0)
		n.CutAfter(0)
		n.Garble(0)
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	last := cluster.Put("/k5/0", "the end")
	mu.Lock()
	end, endLineage = last, cluster.Lineage()
	mu.Unlock()
	eventually(t, "the mirror has reached the last revision", func() bool {
		return local.View().Position().Lineage == cluster.Lineage() && local.Revision() >= last
	})
	checkView(t, cluster, local.View(), client.Range{})
	_ = local.Close()
	wg.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	t.Logf("%d revisions, %d lineages, %+v", last, cluster.Lineage(), c.Stats())
}

// A conflated watch gets the newest value of each key, one unit at a time.
func TestConflation(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	for range 100 {
		cluster.Put("/demo/a", "x")
	}
	cluster.Delete("/demo/a")
	rev := cluster.Put("/demo/b", "x")
	c := connect(t, cluster)
	w := c.Watch(t.Context(), demo, client.FromRevision(2), client.WithConflation(10*time.Millisecond))
	u, err := w.Next(deadline(t))
	if err != nil || u.Kind != client.KindConflated || u.From != 1 || u.Revision != rev || len(u.KVs) != 1 || len(u.Deleted) != 1 || string(u.Deleted[0]) != "/demo/a" {
		t.Fatalf("got %+v, %v", u, err)
	}
	h := holder{cluster: cluster, rng: demo}
	h.begin(1, rev)
	for range 50 {
		rev = cluster.Put("/demo/a", "y")
	}
	for h.revision < rev {
		u, err := w.Next(deadline(t))
		if err == nil {
			err = h.take(u)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if s := w.Stats(); s.Conflated < 2 || s.Deltas+s.Resyncs+s.States != 0 || h.batches != 0 {
		t.Errorf("%+v, and %d batches", s, h.batches)
	}
}

// A watch with a staleness bound leaves nodes that are behind etcd until it finds one that
// is not, even if it is the only one.
func TestMaxStalenessFindsAFreshNode(t *testing.T) {
	cluster := start(t, clienttest.Config{Nodes: 5})
	for _, n := range cluster.Nodes()[:4] {
		n.SetAge(time.Minute)
	}
	c := connect(t, cluster)
	w := c.Watch(t.Context(), demo, client.WithMaxStaleness(time.Second), client.WithProgress())
	if n := serving(t, cluster, w); n.Name != "n5" {
		t.Errorf("served by %s", n.Name)
	}
	cluster.Nodes()[4].SetAge(time.Minute)
	cluster.Nodes()[1].SetAge(0)
	eventually(t, "the watch moved", func() bool { return w.Stats().Attached && w.Stats().Node == "n2" })
	eventually(t, "its age is known", func() bool { return !w.Stats().FreshAt.IsZero() })
	rev := cluster.Put("/other", "x")
	for {
		u, err := w.Next(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		if u.Revision == rev {
			if u.FreshAt.IsZero() || time.Since(u.FreshAt) > patience {
				t.Errorf("progress reports data fresh at %v", u.FreshAt)
			}
			break
		}
	}
	// A watch without a staleness bound does not move.
	lax := c.Watch(t.Context(), demo)
	n := serving(t, cluster, lax)
	n.SetAge(time.Hour)
	rev = cluster.Put("/demo/a", "x")
	follow(t, cluster, lax, &seen{rng: demo}, rev, rev-1)
	if s := lax.Stats(); s.Resumes != 0 {
		t.Errorf("%+v", s)
	}
}

// A unit that exceeds the client's bound ends the watch with an error that names the bound.
func TestUnitTooBig(t *testing.T) {
	cluster := start(t, clienttest.Config{ChunkKeys: 3})
	for i := range 20 {
		cluster.Put(fmt.Sprintf("/demo/%d", i), "x")
	}
	cluster.Compact(cluster.Revision())
	c := connect(t, cluster, func(c *client.Config) { c.MaxUnit = 1000 })
	for _, opt := range []client.WatchOption{client.WithState(), client.FromRevision(3)} {
		if u, err := c.Watch(t.Context(), demo, opt).Next(deadline(t)); !errors.Is(err, client.ErrTooBig) {
			t.Errorf("got %+v, %v", u, err)
		}
	}
	any := connect(t, cluster, func(c *client.Config) { c.MaxUnit = -1 })
	if u, err := any.Watch(t.Context(), demo, client.WithState()).Next(deadline(t)); err != nil || len(u.KVs) != 20 {
		t.Errorf("without a bound: %+v, %v", u, err)
	}
}

func TestListOfChanges(t *testing.T) {
	cluster := start(t, clienttest.Config{ChunkKeys: 2})
	for i := range 10 {
		cluster.Put(fmt.Sprintf("/demo/%d", i), "x")
	}
	since := cluster.Revision()
	cluster.Put("/other", "x")
	cluster.Put("/demo/1", "y")
	cluster.Put("/demo/1", "z")
	cluster.Put("/demo/9", "z")
	cluster.Put("/demo/new", "z")
	rev := cluster.Delete("/demo/3", "/demo/4")
	c := connect(t, cluster)
	for _, n := range cluster.Nodes()[:2] {
		n.CutAfter(2) // halfway: no key is returned twice
	}
	l := c.List(deadline(t), demo, client.ChangedSince(cluster.At(since)))
	got := map[string]string{}
	for kv, err := range l.All() {
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := got[string(kv.Key)]; twice {
			t.Errorf("%s twice", kv.Key)
		}
		got[string(kv.Key)] = string(kv.Value)
	}
	if want := map[string]string{"/demo/1": "z", "/demo/9": "z", "/demo/new": "z"}; !maps.Equal(got, want) || l.Revision() != rev || len(l.Deleted()) != 2 || l.FreshAt().IsZero() {
		t.Errorf("at %d: %v, deleted %q, fresh at %v", l.Revision(), got, l.Deleted(), l.FreshAt())
	}
	fails := func(what string, want func(error) bool, opts ...client.ListOption) {
		t.Helper()
		n := 0
		for _, err := range c.List(deadline(t), demo, opts...).All() {
			if n++; !want(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d answers", what, n)
		}
	}
	invalid := func(err error) bool { return errors.Is(err, client.ErrInvalid) }
	fails("a limit", invalid, client.ChangedSince(client.Position{Revision: since}), client.Limit(3))
	fails("since nothing", invalid, client.ChangedSince(client.Position{}))
	fails("another history", func(err error) bool { return errors.Is(err, client.ErrLineage) }, client.ChangedSince(client.Position{Cluster: cluster.ID(), Lineage: 7, Revision: since}))
	cluster.ForgetDeletes(since + 2)
	fails("too old", func(err error) bool {
		var compacted *client.CompactedError
		return errors.As(err, &compacted) && compacted.Floor == since+2
	}, client.ChangedSince(cluster.At(since)))
}

// A position outlives the process, the nodes, the window and the history. An invalid
// position is refused with the reason.
func TestTokens(t *testing.T) {
	cluster := start(t, clienttest.Config{})
	first := cluster.Put("/demo/a", "x")
	c := connect(t, cluster)
	w := c.Watch(t.Context(), demo, client.FromRevision(first))
	if w.Token() != nil {
		t.Error("a token before the start")
	}
	follow(t, cluster, w, &seen{rng: demo}, first, first-1)
	token := w.Token()
	w.Close()
	next := func(r client.Range, token []byte) (client.Update, error) {
		w := c.Watch(t.Context(), r, client.FromToken(token))
		defer w.Close()
		u, err := w.Next(deadline(t))
		if again := w.Token(); err == nil && string(again) == string(token) {
			t.Error("the token has not changed")
		}
		return u, err
	}
	for _, n := range cluster.Nodes() {
		n.Kill()
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	rev := cluster.Put("/demo/b", "x")
	if u, err := next(demo, token); err != nil || u.Kind != client.KindBatch || u.Revision != rev {
		t.Errorf("after a restart: %+v, %v", u, err)
	}
	cluster.Compact(rev + 1)
	rev = cluster.Put("/demo/b", "y")
	if u, err := next(demo, token); err != nil || u.Kind != client.KindDelta || u.From != first || u.Revision != rev {
		t.Errorf("below the window: %+v, %v", u, err)
	}
	cluster.Restore(first)
	if u, err := next(demo, token); err != nil || u.Kind != client.KindResync || u.Revision != first || u.Lineage != 2 {
		t.Errorf("in another history: %+v, %v", u, err)
	}
	forged := append([]byte{}, token...)
	forged[len(forged)-1]++
	for what, c := range map[string]struct {
		r     client.Range
		token []byte
		says  string
	}{
		"cut":       {demo, token[:len(token)-1], "resume_token: too short"},
		"forged":    {demo, forged, "resume_token: damaged"},
		"of others": {client.Prefix("/other/"), token, "resume_token: made for another key"},
	} {
		if _, err := next(c.r, c.token); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
