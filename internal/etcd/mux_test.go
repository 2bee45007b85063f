package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// quiet is a follower of a range that requests progress.
type quiet struct {
	*follower
	want *kv.Demand
}

// followAll follows ranges from the current revision of s, and returns once all watches share a stream.
func followAll(t *testing.T, s *etcdtest.Server, c *Client, ranges ...kv.Range) []*quiet {
	t.Helper()
	return followAllAs(t, s.Client(), c, ranges...)
}

// followAllAs is followAll with writes by cli.
func followAllAs(t *testing.T, cli *clientv3.Client, c *Client, ranges ...kv.Range) []*quiet {
	t.Helper()
	before := c.Stats()
	var all []*quiet
	for _, r := range ranges {
		q := &quiet{want: new(kv.Demand)}
		q.follower = follow(t, c, kv.FollowRequest{Range: r, Want: q.want})
		q.ready()
		all = append(all, q)
	}
	now := putAs(t, cli, "/elsewhere", "x")
	for _, q := range all {
		q.want.Ask(now)
	}
	for _, q := range all {
		q.reach(now)
	}
	testkit.Eventually(t, "all watches share a stream", func() bool {
		n := c.Stats()
		return n.Joins == before.Joins+int64(len(ranges)) && n.StreamsOpen == 1 && n.WatchesOpen <= before.WatchesOpen+int64(len(ranges))
	})
	return all
}

// reach takes updates until all revisions up to revision have arrived, and returns the batches.
func (q *quiet) reach(revision kv.Revision) (batches []string) {
	q.t.Helper()
	for {
		u := q.next()
		if u.Kind == kv.UpdateBatch {
			batches = append(batches, fmt.Sprintf("%d: %s", u.Batch.Revision, words(u.Batch)))
		}
		if u.Revision >= revision {
			return batches
		}
	}
}

// One request per revision, on one stream, brings sixteen watches their progress.
func TestOneQuestionServesAllWatches(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	const watches, writes = 16, 30
	all := followAll(t, s, c, prefixes(watches)...)
	before := c.Stats()
	for i := range writes {
		r, err := s.Client().Put(t.Context(), fmt.Sprintf("/s%02d/k", i%watches), fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		now := kv.Revision(r.Header.Revision)
		for _, q := range all {
			q.want.Ask(now)
		}
		for at, q := range all {
			if got := q.reach(now); len(got) > 0 != (at == i%watches) {
				t.Fatalf("watch %d got %q at revision %d", at, got, now)
			}
		}
	}
	n := c.Stats()
	// A request that etcd does not answer within 10 ms is repeated. Its answer may arrive after the next write,
	// which then needs no request. On separate streams, 15 watches would send a request for each write.
	if asked := n.ProgressAsked - before.ProgressAsked; asked < writes/2 || asked > 4*writes {
		t.Errorf("%d requests for progress for %d writes", asked, writes)
	}
	if n.StreamsOpen != 1 || n.Joins != watches || n.Watches != watches {
		t.Errorf("stats: %+v", n)
	}
}

// prefixes returns the ranges of n prefixes.
func prefixes(n int) (out []kv.Range) {
	for i := range n {
		out = append(out, kv.Prefix(fmt.Sprintf("/s%02d/", i)))
	}
	return out
}

// put writes a key and returns its revision.
func put(t *testing.T, s *etcdtest.Server, key, value string) kv.Revision {
	t.Helper()
	return putAs(t, s.Client(), key, value)
}

func putAs(t *testing.T, cli *clientv3.Client, key, value string) kv.Revision {
	t.Helper()
	r, err := cli.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return kv.Revision(r.Header.Revision)
}

// seenBy has the updates of one follower from a revision on.
type seenBy struct {
	r    kv.Range
	from kv.Revision
	all  []kv.Update // batches and progress
}

// check compares the received updates with the writes. Batches and progress increase, and each progress comes
// after all batches up to it.
func (s *seenBy) check(t *testing.T, written map[kv.Revision]map[string]string) {
	t.Helper()
	var revisions []kv.Revision // of the changes in the range
	for _, revision := range slices.Sorted(maps.Keys(written)) {
		for key := range written[revision] {
			if revision >= s.from && s.r.Contains(key) {
				revisions = append(revisions, revision)
				break
			}
		}
	}
	last := s.from - 1
	for _, u := range s.all {
		if u.Revision <= last {
			t.Fatalf("%v from %d: revision %d after revision %d", s.r, s.from, u.Revision, last)
		}
		last = u.Revision
		if u.Kind == kv.UpdateProgress {
			if len(revisions) > 0 && revisions[0] <= u.Revision {
				t.Fatalf("%v from %d: progress %d before the events of revision %d", s.r, s.from, u.Revision, revisions[0])
			}
			continue
		}
		if len(revisions) == 0 || revisions[0] != u.Revision {
			t.Fatalf("%v from %d: batch of revision %d, want revision %v", s.r, s.from, u.Revision, revisions[:min(1, len(revisions))])
		}
		revisions = revisions[1:]
		want := 0
		for key, value := range written[u.Revision] {
			if !s.r.Contains(key) {
				continue
			}
			want++
			if !slices.ContainsFunc(u.Batch.Events, func(e kv.Event) bool { return string(e.KV.Key()) == key && string(e.KV.Value()) == value }) {
				t.Fatalf("%v: revision %d lacks %s=%s", s.r, u.Revision, key, value)
			}
		}
		if len(u.Batch.Events) != want {
			t.Fatalf("%v: revision %d has %d events, want %d", s.r, u.Revision, len(u.Batch.Events), want)
		}
	}
	if len(revisions) > 0 {
		t.Fatalf("%v from %d: %d revisions are missing, the first is %d", s.r, s.from, len(revisions), revisions[0])
	}
}

// Watches begin, share a stream, leave it, lose it and return while transactions are written. Each watch gets each
// revision once, whole, and progress never precedes an event.
func TestSharedStreamIsTheHistory(t *testing.T) {
	for name, ranges := range map[string]func(int) []kv.Range{"apart": prefixes, "adjacent": adjacent} {
		t.Run(name, func(t *testing.T) { testHistory(t, ranges(12)) })
	}
}

func testHistory(t *testing.T, ranges []kv.Range) {
	s := etcdtest.Start(t)
	way := etcdtest.NewProxy(t, s.Endpoint())
	cfg := testConfig(way.Endpoint())
	cfg.ProgressIdle = 100 * time.Millisecond
	c := newClient(t, cfg)
	c.muxes.pause = 0
	seed := testseed.Of(t)

	const writes = 400
	watches := len(ranges)
	written := map[kv.Revision]map[string]string{}
	var head atomic.Int64
	writing, cancel := context.WithCancel(t.Context())
	defer cancel()
	results := make([]seenBy, watches)
	var all sync.WaitGroup
	for i := range watches {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		results[i] = seenBy{r: ranges[i], from: 2}
		all.Go(func() {
			last := kv.Revision(1)
			for writing.Err() == nil {
				last = seeSome(writing, t, c, &results[i], last, 5+rng.IntN(100))
			}
			for now := kv.Revision(head.Load()); last < now; {
				last = seeSome(t.Context(), t, c, &results[i], last, 1)
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 1000))
	for n := range writes {
		change := map[string]string{}
		for range 1 + rng.IntN(4) {
			change[fmt.Sprintf("/s%02d/%d", rng.IntN(watches), rng.IntN(5))] = fmt.Sprint(n)
		}
		var ops []clientv3.Op
		for key, value := range change {
			ops = append(ops, clientv3.OpPut(key, value))
		}
		r, err := s.Client().Txn(t.Context()).Then(ops...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		head.Store(r.Header.Revision)
		written[kv.Revision(r.Header.Revision)] = change
		if n%100 == 99 {
			testkit.Eventually(t, "some watches share a stream", func() bool { return c.Stats().Joins > int64(n/100) })
			way.Cut()
			way.Heal()
		}
	}
	cancel()
	all.Wait()
	for i := range results {
		results[i].check(t, written)
	}
	t.Logf("stats: %+v", c.Stats())
}

// seeSome follows from the revision after last, takes the given number of updates, requests progress all the time,
// and returns the revision that it reached.
func seeSome(ctx context.Context, t *testing.T, c *Client, s *seenBy, last kv.Revision, updates int) kv.Revision {
	want := new(kv.Demand)
	want.Ask(last + 1)
	for u, err := range c.Follow(ctx, kv.FollowRequest{Range: s.r, From: last + 1, Want: want}) {
		if err != nil {
			if !errors.Is(err, etcdconn.ErrUnavailable) {
				t.Error(err)
			}
			break
		}
		if u.Kind != kv.UpdateBatch && u.Kind != kv.UpdateProgress {
			continue
		}
		s.all = append(s.all, u)
		last = u.Revision
		if updates--; updates == 0 {
			break
		}
		want.Ask(last + 1)
	}
	return last
}

// A consumer that stops reading has a bounded queue, and the others continue. Its watch gets a separate stream,
// loses nothing, and shares the stream again later.
func TestSlowConsumerLeavesTheSharedStream(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	all := followAll(t, s, c, prefixes(3)...)
	slow, other := all[0], all[1]
	value := strings.Repeat("v", 100<<10)
	var want []string
	var last kv.Revision
	for i := range 30 {
		at := put(t, s, "/s00/k", value+fmt.Sprint(i))
		want = append(want, fmt.Sprintf("%d: PUT /s00/k=%s%d", at, value, i))
		last = put(t, s, "/s01/k", fmt.Sprint(i))
		if got := other.reach(last); len(got) != 1 {
			t.Fatalf("the other consumer got %q", got)
		}
	}
	if n := c.Stats(); n.LeftSlow != 1 {
		t.Errorf("stats: %+v", n)
	}
	now := put(t, s, "/elsewhere", "y")
	slow.want.Ask(now)
	if got := slow.reach(now); !slices.Equal(got, want) {
		t.Errorf("got %d batches, want %d", len(got), len(want))
	}
	testkit.Eventually(t, "the watch shares the stream again", func() bool {
		slow.want.Ask(put(t, s, "/elsewhere", "z"))
		select {
		case <-slow.updates:
		default:
		}
		n := c.Stats()
		return n.Joins >= 4 && n.StreamsOpen == 1 && n.WatchesOpen == 3
	})
}

// When the shared stream breaks, its watches end, and resume without a list.
func TestSharedStreamBreaks(t *testing.T) {
	s := etcdtest.Start(t)
	way := etcdtest.NewProxy(t, s.Endpoint())
	c := newClient(t, testConfig(way.Endpoint()))
	all := followAll(t, s, c, prefixes(4)...)
	head := put(t, s, "/elsewhere", "y")
	for _, q := range all {
		q.want.Ask(head)
		q.reach(head)
	}
	way.Cut()
	for _, q := range all {
		if err := q.failure(); !errors.Is(err, etcdconn.ErrUnavailable) {
			t.Errorf("a watch ended with %v, want ErrUnavailable", err)
		}
	}
	if n := c.Stats(); n.StreamsOpen != 0 || n.WatchesOpen != 0 || n.Lists != 4 {
		t.Errorf("stats: %+v", n)
	}
	way.Heal()
	testkit.Eventually(t, "all connections are back", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, watches := c.openWatch(ctx, c.Watches)
		lists := c.Keys(ctx, kv.Single("/"), func([]byte) error { return nil })
		_, reads := c.Revision(ctx)
		return watches == nil && lists == nil && reads == nil
	})
	for i, r := range prefixes(4) {
		put(t, s, r.Start+"k", fmt.Sprint(i))
		f := follow(t, c, kv.FollowRequest{Range: r, From: head + 1}).begun(head + 1)
		if got := words(f.nextOf(kv.UpdateBatch).Batch); got != fmt.Sprintf("PUT %sk=%d", r.Start, i) {
			t.Errorf("got %q", got)
		}
	}
	if n := c.Stats(); n.Lists != 4 {
		t.Errorf("stats: %+v", n)
	}
}

// The shared stream ends with its last watch. A watch that ends is cancelled at etcd.
func TestSharedStreamEndsWithItsLastWatch(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	all := followAll(t, s, c, prefixes(3)...)
	for i, q := range all {
		q.stop()
		n := c.Stats()
		if left := int64(len(all) - 1 - i); n.WatchesOpen != left || n.StreamsOpen != min(left, 1) {
			t.Errorf("with %d watches left: %+v", left, n)
		}
	}
	testkit.Eventually(t, "etcd has no watch", func() bool {
		m, err := etcdtest.Scrape(t.Context(), s.Endpoint())
		return err == nil && m.Watchers() == 0 && m.WatchStreams() == 0
	})
}

// Watches get progress at intervals even if no consumer waits for it. Otherwise they would fall behind compaction.
func TestIdleWatchesOfTheSharedStreamMakeProgress(t *testing.T) {
	s := etcdtest.Start(t)
	cfg := testConfig(s.Endpoint())
	cfg.ProgressIdle = 50 * time.Millisecond
	all := followAll(t, s, newClient(t, cfg), prefixes(3)...)
	for range 3 {
		now := put(t, s, "/elsewhere", "y")
		for _, q := range all {
			if got := q.reach(now); len(got) > 0 {
				t.Errorf("got %q", got)
			}
		}
	}
}

// etcd compacts revisions that it has not sent to one watch of the shared stream, because the stream is blocked.
// That watch ends as compacted, and the others continue.
func TestWatchOfTheSharedStreamIsCompacted(t *testing.T) {
	s := etcdtest.Start(t)
	way := etcdtest.NewProxy(t, s.Endpoint())
	cfg := testConfig(way.Endpoint())
	cfg.KeepaliveTime, cfg.SilenceLimit = time.Hour, time.Hour
	c := newClient(t, cfg)
	all := followAll(t, s, c, prefixes(3)...)
	behind, filler, other := all[0], all[1], all[2]
	way.Hold()
	for range 24 { // more than flow control and socket buffers hold
		put(t, s, "/s01/k", strings.Repeat("v", 1<<20))
	}
	var last kv.Revision
	for range 300 { // more than etcd queues for a stream: 128 (watchable_store.go, chanBufLen)
		last = put(t, s, "/s00/k", "v")
	}
	if _, err := s.Client().Compact(t.Context(), int64(last)); err != nil {
		t.Fatal(err)
	}
	filler.stop()
	way.LetGo()
	var compacted *kv.CompactedError
	if err := behind.failure(); !errors.As(err, &compacted) || compacted.Floor != last {
		t.Errorf("the watch ended with %v", err)
	}
	last = put(t, s, "/elsewhere", "y")
	other.want.Ask(last)
	if got := other.reach(last); len(got) > 0 {
		t.Errorf("the other watch got %q", got)
	}
	if n := c.Stats(); n.LeftOther != 1 || n.WatchesOpen != 1 || n.StreamsOpen != 1 {
		t.Errorf("stats: %+v", n)
	}
}
