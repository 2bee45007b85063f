package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// words returns a batch as text, for messages and comparison.
func words(b kv.Batch) string {
	var w []string
	for _, e := range b.Events {
		w = append(w, fmt.Sprintf("%v %s=%s", e.Type, e.KV.Key(), e.KV.Value()))
	}
	slices.Sort(w) // the order within a transaction does not matter
	return strings.Join(w, ", ")
}

// history makes random changes in etcd and records the changes of each revision.
type history struct {
	t    *testing.T
	cli  *clientv3.Client
	rng  *rand.Rand
	live map[string]string
	all  map[kv.Revision]string // the batch of each revision
	last kv.Revision
}

func newHistory(t *testing.T, cli *clientv3.Client) *history {
	seed := testseed.Of(t)
	return &history{t: t, cli: cli, rng: rand.New(rand.NewPCG(seed, 0)), live: map[string]string{}, all: map[kv.Revision]string{}}
}

// step makes one random change: a put, a delete, a transaction over several keys, or a delete of a range.
func (h *history) step() {
	h.t.Helper()
	key := func() string { return fmt.Sprintf("/h/%02d", h.rng.IntN(40)) }
	value := func() string { return fmt.Sprint(h.rng.IntN(1_000_000)) }
	var ops []clientv3.Op
	touched := map[string]bool{}
	var events []string
	put := func(k string) {
		v := value()
		ops = append(ops, clientv3.OpPut(k, v))
		h.live[k] = v
		events = append(events, fmt.Sprintf("PUT %s=%s", k, v))
	}
	remove := func(k string) {
		if _, ok := h.live[k]; ok {
			delete(h.live, k)
			events = append(events, fmt.Sprintf("DELETE %s=", k))
		}
	}
	switch h.rng.IntN(6) {
	case 0:
		k := key()
		ops = append(ops, clientv3.OpDelete(k))
		remove(k)
	case 1:
		from, to := key(), key()
		if from >= to {
			return
		}
		ops = append(ops, clientv3.OpDelete(from, clientv3.WithRange(to)))
		for _, k := range slices.Sorted(maps.Keys(h.live)) {
			if k >= from && k < to {
				remove(k)
			}
		}
	case 2:
		for range 2 + h.rng.IntN(8) {
			k := key()
			if touched[k] {
				continue
			}
			touched[k] = true
			if h.rng.IntN(3) == 0 {
				ops = append(ops, clientv3.OpDelete(k))
				remove(k)
			} else {
				put(k)
			}
		}
	default:
		put(key())
	}
	r, err := h.cli.Txn(context.Background()).Then(ops...).Commit()
	if err != nil {
		h.t.Fatal(err)
	}
	if len(events) > 0 {
		h.last = kv.Revision(r.Header.Revision)
		slices.Sort(events)
		h.all[h.last] = strings.Join(events, ", ")
	}
}

// check compares the batches of f with the history, from a revision to the last one.
func (h *history) check(f *follower, from kv.Revision) {
	h.t.Helper()
	got := map[kv.Revision]string{}
	for last := from - 1; last < h.last; {
		u := f.nextOf(kv.UpdateBatch)
		if u.Batch.Revision <= last {
			h.t.Fatalf("revision %d after revision %d", u.Batch.Revision, last)
		}
		last = u.Batch.Revision
		got[last] = words(u.Batch)
	}
	want := maps.Clone(h.all)
	maps.DeleteFunc(want, func(r kv.Revision, _ string) bool { return r < from })
	if !reflect.DeepEqual(got, want) {
		h.t.Errorf("from %d: got %v, want %v", from, got, want)
	}
}

func stateOf(kvs []*kv.KeyValue) map[string]string {
	m := map[string]string{}
	for _, k := range kvs {
		m[string(k.Key())] = string(k.Value())
	}
	return m
}

// The state, the live events and the caught-up events equal the written ones.
func TestFollowIsTheHistory(t *testing.T) {
	s := etcdtest.Start(t)
	cfg := testConfig(s.Endpoint())
	cfg.PageKeys = 3 // many pages
	c := newClient(t, cfg)
	h := newHistory(t, s.Client())

	all := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/h/")})
	if begin, state := all.ready(); len(state) != 0 || begin.Floor != begin.Revision+1 {
		t.Fatalf("an empty etcd has %v, begin %+v", state, begin)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 300 {
			h.step()
		}
	}()
	<-done
	h.check(all, 2)
	middle := h.last / 2
	h.check(follow(t, c, kv.FollowRequest{Range: kv.Prefix("/h/"), From: middle}).begun(middle), middle)
	h.check(follow(t, c, kv.FollowRequest{From: 2}).begun(2), 2) // the whole key space

	begin, state := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/h/")}).ready()
	if got := stateOf(state); !reflect.DeepEqual(got, h.live) || begin.Revision < h.last {
		t.Errorf("state at %d is %v, want %v at %d", begin.Revision, got, h.live, h.last)
	}
	if !slices.IsSortedFunc(state, func(a, b *kv.KeyValue) int { return strings.Compare(string(a.Key()), string(b.Key())) }) {
		t.Error("the state is not in key order")
	}
	if n := c.Stats(); n.Lists != 2 || n.Resumes != 2 || n.Watches < 3 || n.Batches < int64(len(h.all)) {
		t.Errorf("stats: %+v", n)
	}
}

func (f *follower) begun(from kv.Revision) *follower {
	f.t.Helper()
	if begin, state := f.ready(); begin.Revision != from-1 || begin.Floor != from || len(state) > 0 {
		f.t.Fatalf("a resume from %d begins with %+v and %d keys, want no keys", from, begin, len(state))
	}
	return f
}

// A revision is delivered as one batch, however many responses it takes.
func TestDeleteOf50000KeysIsOneBatch(t *testing.T) {
	// etcd runs in a separate process: under the race detector, a delete of so many keys in this process takes
	// longer than the 5 s that etcd allows for a request.
	s := etcdtest.StartProcess(t)
	c := newClient(t, testConfig(s.Endpoint()))
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + s.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.Close()
	const keys = 50_000
	pad := strings.Repeat("x", 40)
	for at := 0; at < keys; at += 125 {
		ops := make([]clientv3.Op, 125)
		for i := range ops {
			ops[i] = clientv3.OpPut(fmt.Sprintf("/many/%05d/%s", at+i, pad), "")
		}
		if _, err := cli.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	live := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/many/")})
	begin, state := live.ready()
	if len(state) != keys {
		t.Fatalf("%d keys", len(state))
	}
	r, err := cli.Delete(t.Context(), "/many/", clientv3.WithPrefix())
	if err != nil || r.Deleted != keys {
		t.Fatal(r, err)
	}
	for name, f := range map[string]*follower{
		"live":     live,
		"catch-up": follow(t, c, kv.FollowRequest{Range: kv.Prefix("/many/"), From: begin.Revision + 1}).begun(begin.Revision + 1),
	} {
		b := f.nextOf(kv.UpdateBatch).Batch
		if b.Revision != kv.Revision(r.Header.Revision) || len(b.Events) != keys {
			t.Errorf("%s: %d events at %d, want %d at %d", name, len(b.Events), b.Revision, keys, r.Header.Revision)
		}
	}
}

// A change that is too large for one response arrives in fragments. The consumer gets one batch.
func TestLargeCatchUpComesInFragments(t *testing.T) {
	s := etcdtest.Start(t)
	cfg := testConfig(s.Endpoint())
	cfg.MaxResponseBytes = 4 << 20 // the minimum
	c := newClient(t, cfg)
	value := strings.Repeat("v", 1_400_000)
	for i := range 6 {
		if _, err := s.Client().Put(t.Context(), fmt.Sprint("/big/", i), value); err != nil {
			t.Fatal(err)
		}
	}
	f := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/big/"), From: 2})
	f.begun(2)
	for i := range 6 {
		b := f.nextOf(kv.UpdateBatch).Batch
		if len(b.Events) != 1 || string(b.Events[0].KV.Key()) != fmt.Sprint("/big/", i) || len(b.Events[0].KV.Value()) != len(value) || b.Received.IsZero() {
			t.Fatalf("batch %d: revision %d, %d events", i, b.Revision, len(b.Events))
		}
	}
	if c.Stats().Fragments == 0 {
		t.Error("etcd sent no fragments, so that the test shows nothing")
	}
	if _, state := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/big/")}).ready(); len(state) != 6 {
		t.Errorf("%d keys", len(state))
	}
}

// A watch may begin at the compact revision, and gets all its events, even a delete.
func TestFollowAtTheEdgeOfCompaction(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	cli := s.Client()
	var r int64
	for i, op := range []clientv3.Op{
		clientv3.OpPut("/c/a", "1"), clientv3.OpPut("/c/b", "1"), clientv3.OpDelete("/c/a"), clientv3.OpPut("/c/b", "2"), clientv3.OpPut("/c/b", "3"),
	} {
		resp, err := cli.Do(t.Context(), op)
		if err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			r = resp.Del().Header.Revision // of the delete
		}
	}
	if _, err := cli.Compact(t.Context(), r, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	floor := kv.Revision(r)
	for _, c := range []struct {
		from kv.Revision
		want string
	}{
		{floor, "DELETE /c/a="}, {floor + 1, "PUT /c/b=2"}, {floor + 2, "PUT /c/b=3"},
	} {
		f := follow(t, newClient(t, testConfig(s.Endpoint())), kv.FollowRequest{Range: kv.Prefix("/c/"), From: c.from}).begun(c.from)
		if b := f.nextOf(kv.UpdateBatch).Batch; b.Revision != c.from || words(b) != c.want {
			t.Errorf("from %d: %q at %d, want %q", c.from, words(b), b.Revision, c.want)
		}
	}
	// Below the compact revision, the error must come first: a begin would promise these events.
	for u, err := range c.Follow(t.Context(), kv.FollowRequest{Range: kv.Prefix("/c/"), From: floor - 1}) {
		var compacted *kv.CompactedError
		if !errors.As(err, &compacted) || *compacted != (kv.CompactedError{Requested: floor - 1, Floor: floor}) {
			t.Errorf("got %+v, %v", u, err)
		}
	}
	if n := c.Stats(); n.Compacted != 1 || n.WatchesOpen != 0 {
		t.Errorf("stats: %+v", n)
	}
}

// A watch gets progress when a caller waits for a revision that does not touch its range.
func TestQuietRangeMakesProgressWhenWanted(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	want := new(kv.Demand)
	f := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/quiet/"), Want: want})
	f.ready()
	for range 5 {
		if _, err := s.Client().Put(t.Context(), "/elsewhere", "x"); err != nil {
			t.Fatal(err)
		}
		now, err := c.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want.Ask(now)
		for {
			u := f.next()
			if u.Kind != kv.UpdateProgress {
				t.Fatalf("got %+v", u)
			}
			if u.Revision >= now {
				break
			}
		}
	}
}

// A watch also gets progress without a request: etcd sends it under the watch's own ID.
func TestQuietRangeMakesProgressByItself(t *testing.T) {
	s := etcdtest.Start(t, etcdtest.WithProgressInterval(100*time.Millisecond))
	cfg := testConfig(s.Endpoint())
	cfg.ProgressIdle = time.Hour
	f := follow(t, newClient(t, cfg), kv.FollowRequest{Range: kv.Prefix("/quiet/")})
	f.ready()
	r, err := s.Client().Put(t.Context(), "/elsewhere", "x")
	if err != nil {
		t.Fatal(err)
	}
	if u := f.next(); u.Kind != kv.UpdateProgress || u.Revision != kv.Revision(r.Header.Revision) {
		t.Errorf("got %+v", u)
	}
}

func TestFollowFromTheFuture(t *testing.T) {
	s := etcdtest.Start(t)
	cfg := testConfig(s.Endpoint())
	cfg.SilenceLimit = 2 * time.Second // from the first revision on, etcd has to answer within this time
	c := newClient(t, cfg)
	now, err := c.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := new(kv.Demand)
	want.Ask(now + 5)
	f := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/f/"), From: now + 4, Want: want}).begun(now + 4)
	reads := c.Stats().ClockReads
	testkit.Eventually(t, "the silence was checked twice", func() bool { return c.Stats().ClockReads >= reads+2 })
	for i := range 6 {
		if _, err := s.Client().Put(t.Context(), "/f/x", fmt.Sprint(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	for i := 4; i <= 6; i++ {
		if b := f.nextOf(kv.UpdateBatch).Batch; b.Revision != now+kv.Revision(i) || words(b) != fmt.Sprintf("PUT /f/x=%d", i) {
			t.Fatalf("got %q at revision %d", words(b), b.Revision)
		}
	}
	if n := c.Stats().Silenced; n != 0 {
		t.Errorf("the watch was ended as silent %d times", n)
	}
}

// After a restart of etcd, a watch resumes without missing events.
func TestFollowResumesOverARestart(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	h := newHistory(t, s.Client())
	for range 50 {
		h.step()
	}
	f := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/h/"), From: 2}).begun(2)
	h.check(f, 2)
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.Stop() }()
	if err := f.failure(); !errors.Is(err, etcdconn.ErrUnavailable) {
		t.Errorf("the watch ended with %v, want ErrUnavailable", err)
	}
	<-stopped
	resume := h.last + 1
	if err := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/h/"), From: resume}).failure(); !errors.Is(err, etcdconn.ErrUnavailable) {
		t.Errorf("a watch of a stopped etcd ended with %v, want ErrUnavailable", err)
	}
	s.Restart()
	h.cli = s.Client()
	for range 50 {
		h.step()
	}
	testkit.Eventually(t, "etcd is back", func() bool {
		_, err := c.Revision(t.Context())
		return err == nil
	})
	var again *follower
	testkit.Eventually(t, "a watch begins", func() bool {
		again = follow(t, c, kv.FollowRequest{Range: kv.Prefix("/h/"), From: resume})
		select {
		case u := <-again.updates:
			return u.Kind == kv.UpdateBegin && again.next().Kind == kv.UpdateReady
		case <-again.err: // the connection of the watches is still down
			return false
		}
	})
	h.check(again, resume)
}

// compacting compacts etcd after the first page of each of the first lists.
type compacting struct {
	etcdserverpb.KVClient
	cli   *clientv3.Client
	times int
}

func (c *compacting) Range(ctx context.Context, r *etcdserverpb.RangeRequest, opts ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	first := r.GetRevision() == 0
	resp, err := c.KVClient.Range(ctx, r, opts...)
	if first && c.times > 0 && err == nil {
		c.times--
		put, err := c.cli.Put(ctx, "/l/000", fmt.Sprint("new", c.times))
		if err != nil {
			return nil, err
		}
		if _, err := c.cli.Compact(ctx, put.Header.Revision); err != nil {
			return nil, err
		}
	}
	return resp, err
}

func TestListStartsAgainWhenCompactedUnderIt(t *testing.T) {
	s := etcdtest.Start(t)
	cfg := testConfig(s.Endpoint())
	cfg.PageKeys = 7
	c := newClient(t, cfg)
	for i := range 100 {
		if _, err := s.Client().Put(t.Context(), fmt.Sprintf("/l/%03d", i), "old"); err != nil {
			t.Fatal(err)
		}
	}
	meddler := &compacting{KVClient: c.Lists, cli: s.Client(), times: 2}
	c.Lists = meddler
	begin, state := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/l/")}).ready()
	if n := c.Stats(); n.ListRestarts != 2 || len(state) != 100 || string(state[0].Value()) != "new0" || state[0].ModRevision() != begin.Revision {
		t.Errorf("%d keys at %d, first %s at %d; stats %+v", len(state), begin.Revision, state[0].Value(), state[0].ModRevision(), n)
	}

	var keys []string
	collect := func(key []byte) error { keys = append(keys, string(key)); return nil }
	if err := c.Keys(t.Context(), kv.Range{Start: "/l/010", End: "/l/090"}, collect); err != nil || len(keys) != 80 || keys[0] != "/l/010" || keys[79] != "/l/089" {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	enough := errors.New("enough")
	if err := c.Keys(t.Context(), kv.Prefix("/l/"), func([]byte) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	meddler.times = 100
	if err := c.Keys(t.Context(), kv.Prefix("/l/"), collect); !errors.Is(err, errListCompacted) {
		t.Errorf("Keys of a revision that is compacted again and again: %v", err)
	}
	if err := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/l/")}).failure(); !errors.Is(err, errListCompacted) {
		t.Errorf("a list that is compacted again and again: %v", err)
	}
}

// At most MaxConcurrentLists lists run at a time, of state and of keys together.
func TestListsWaitForEachOther(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	if _, err := s.Client().Put(t.Context(), "/k", ""); err != nil {
		t.Fatal(err)
	}
	inside, release := make(chan struct{}), make(chan struct{})
	ended := make(chan error)
	for range 2 {
		go func() {
			ended <- c.Keys(context.Background(), kv.Prefix("/"), func([]byte) error { inside <- struct{}{}; <-release; return nil })
		}()
	}
	<-inside
	<-inside
	f := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/")})
	testkit.Eventually(t, "the list is begun", func() bool { return c.Stats().Lists == 1 })
	if n := c.Stats().Pages; n != 2 {
		t.Errorf("%d pages, want only those of the first two lists", n)
	}
	close(release)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	f.ready()
}

// A consumer that stops, or whose context ends, gets no error, and no watch or goroutine remains.
func TestFollowEndsQuietly(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	for kind := kv.UpdateBegin; kind <= kv.UpdateReady; kind++ {
		for u, err := range c.Follow(t.Context(), kv.FollowRequest{}) {
			if err != nil {
				t.Fatal(err)
			}
			if u.Kind >= kind {
				break
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for u, err := range c.Follow(ctx, kv.FollowRequest{From: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		if u.Kind == kv.UpdateReady {
			cancel()
		}
	}
	for range c.Follow(ctx, kv.FollowRequest{}) {
		t.Error("an update after the end of the context")
	}
	if n := c.Stats().WatchesOpen; n != 0 {
		t.Errorf("%d watches remain open", n)
	}
}
