package etcd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// fill writes n keys, many in each transaction.
func fill(t *testing.T, cli *clientv3.Client, n int, name func(int) string, value string) {
	t.Helper()
	var ops []clientv3.Op
	for i := range n {
		ops = append(ops, clientv3.OpPut(name(i), value))
		if len(ops) == 100 || i == n-1 {
			if _, err := cli.Txn(t.Context()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
	}
}

// state is a follower's state.
type state map[string]*kv.KeyValue

func (s state) held() iter.Seq[*kv.KeyValue] {
	return func(yield func(*kv.KeyValue) bool) {
		for _, k := range slices.Sorted(maps.Keys(s)) {
			if !yield(s[k]) {
				return
			}
		}
	}
}

// load reads the state of r from the beginning of a Follow.
func load(t *testing.T, c *Client, r kv.Range) (state, kv.Revision) {
	t.Helper()
	f := follow(t, c, kv.FollowRequest{Range: r})
	defer f.stop()
	begin, kvs := f.ready()
	s := state{}
	for _, k := range kvs {
		s[string(k.Key())] = k
	}
	return s, begin.Revision
}

// leap applies the differences of a Follow with Held to the state, and returns the new revision.
func (s state) leap(t *testing.T, c *Client, r kv.Range, at kv.Revision) kv.Revision {
	t.Helper()
	f := follow(t, c, kv.FollowRequest{Range: r, Held: s.held(), HeldAt: at})
	defer f.stop()
	begin := f.next()
	if begin.Kind != kv.UpdateBegin || !begin.Leap || begin.Floor != begin.Revision+1 {
		t.Fatalf("the leap begins with %+v", begin)
	}
	for u := f.next(); u.Kind != kv.UpdateReady; u = f.next() {
		if u.Kind != kv.UpdateState {
			t.Fatalf("an update of kind %d in a leap", u.Kind)
		}
		for _, k := range u.KVs {
			s[string(k.Key())] = k
		}
		for _, k := range u.Gone {
			if s[k] == nil {
				t.Errorf("%q is reported as gone, but was not held", k)
			}
			delete(s, k)
		}
	}
	return begin.Revision
}

// mustBe compares the state with etcd's at a revision.
func (s state) mustBe(t *testing.T, cli *clientv3.Client, r kv.Range, revision kv.Revision) {
	t.Helper()
	key, end := r.Etcd()
	got, err := cli.Get(t.Context(), string(key), clientv3.WithRange(string(end)), clientv3.WithRev(int64(revision)))
	if err != nil {
		t.Fatal(err)
	}
	want := state{}
	for _, k := range got.Kvs {
		want[string(k.Key)] = keyValue(k)
	}
	if !maps.EqualFunc(s, want, func(a, b *kv.KeyValue) bool { return string(a.Encoded()) == string(b.Encoded()) }) {
		t.Errorf("%d keys at revision %d, etcd has %d; counts or contents differ", len(s), revision, len(want))
	}
}

// A follower that has fallen behind compaction fetches only the changed values.
func TestLeapFetchesOnlyTheChanges(t *testing.T) {
	const keys, value = 20_000, 200
	s := etcdtest.Start(t)
	cli := s.Client()
	name := func(i int) string { return fmt.Sprintf("/l/%05d", i) }
	fill(t, cli, keys, name, strings.Repeat("x", value))
	c := newClient(t, testConfig(s.Endpoint()))
	held, at := load(t, c, kv.Prefix("/l/"))
	for i := range 50 {
		var err error
		switch {
		case i < 10:
			_, err = cli.Delete(t.Context(), name(i*7))
		case i < 20:
			_, err = cli.Put(t.Context(), name(i)+"/new", "v")
		default:
			_, err = cli.Put(t.Context(), name(i*391), "changed")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if r, err := cli.Put(t.Context(), "/m", ""); err != nil {
		t.Fatal(err)
	} else if _, err := cli.Compact(t.Context(), r.Header.Revision); err != nil {
		t.Fatal(err)
	}
	before := c.Stats()
	revision := held.leap(t, c, kv.Prefix("/l/"), at)
	held.mustBe(t, cli, kv.Prefix("/l/"), revision)
	n := c.Stats()
	if n.LeapKeys != 40 || n.LeapBytes > 40*300 {
		t.Errorf("%d values with %d bytes were fetched, want those of the 40 changed keys", n.LeapKeys, n.LeapBytes)
	}
	if listed := n.ListedBytes - before.ListedBytes; listed > keys*int64(len(name(0))+4) {
		t.Errorf("%d bytes were listed for %d keys, want only keys and mod revisions", listed, keys)
	}
	if pages := n.Pages - before.Pages; pages > 16 {
		t.Errorf("%d calls, want at most 16", pages)
	}
}

// After any changes, a leap leaves the follower with etcd's state.
func TestLeapIsTheDifference(t *testing.T) {
	rng := testseed.Rand(t)
	s := etcdtest.Start(t)
	cli := s.Client()
	cfg := testConfig(s.Endpoint())
	cfg.PageKeys = 13
	c := newClient(t, cfg)
	r := kv.Range{Start: "/k/010", End: "/k/090"}
	held, at := load(t, c, r)
	for range 30 {
		for range rng.IntN(60) {
			key := fmt.Sprintf("/k/%03d", rng.IntN(100))
			var err error
			switch rng.IntN(8) {
			case 0:
				_, err = cli.Delete(t.Context(), key, clientv3.WithRange(fmt.Sprintf("/k/%03d", rng.IntN(100))))
			case 1, 2:
				_, err = cli.Delete(t.Context(), key)
			default:
				_, err = cli.Put(t.Context(), key, strings.Repeat("v", rng.IntN(200)))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		at = held.leap(t, c, r, at)
		held.mustBe(t, cli, r, at)
	}
}

// fewOps refuses large transactions like etcd with --max-txn-ops.
type fewOps struct {
	etcdserverpb.KVClient
	most, refused int
}

func (f *fewOps) Txn(ctx context.Context, r *etcdserverpb.TxnRequest, o ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	if len(r.GetSuccess()) > f.most {
		f.refused++
		return nil, rpctypes.ErrGRPCTooManyOps
	}
	return f.KVClient.Txn(ctx, r, o...)
}

// A read that etcd refuses for too many operations is repeated in smaller pieces.
func TestLeapWithFewOperations(t *testing.T) {
	s := etcdtest.Start(t)
	cli := s.Client()
	for i := range 200 {
		if _, err := cli.Put(t.Context(), fmt.Sprintf("/k/%03d", i), "1"); err != nil {
			t.Fatal(err)
		}
	}
	c := newClient(t, testConfig(s.Endpoint()))
	held, at := load(t, c, kv.Prefix("/k/"))
	for i := 0; i < 200; i += 2 {
		if _, err := cli.Put(t.Context(), fmt.Sprintf("/k/%03d", i), "2"); err != nil {
			t.Fatal(err)
		}
	}
	few := &fewOps{KVClient: c.Lists, most: 5}
	c.Lists = few
	at = held.leap(t, c, kv.Prefix("/k/"), at)
	held.mustBe(t, cli, kv.Prefix("/k/"), at)
	if few.refused == 0 {
		t.Error("no transaction was refused, so that the test shows nothing")
	}
}

// A leap whose revision is compacted between pages restarts and keeps the held keys.
func TestLeapStartsAgainWhenCompactedUnderIt(t *testing.T) {
	s := etcdtest.Start(t)
	cfg := testConfig(s.Endpoint())
	cfg.PageKeys = 7
	c := newClient(t, cfg)
	fill(t, s.Client(), 100, func(i int) string { return fmt.Sprintf("/l/%03d", i) }, "old")
	held, at := load(t, c, kv.Prefix("/l/"))
	c.Lists = &compacting{KVClient: c.Lists, cli: s.Client(), times: 2}
	at = held.leap(t, c, kv.Prefix("/l/"), at)
	held.mustBe(t, s.Client(), kv.Prefix("/l/"), at)
	if n := c.Stats(); n.ListRestarts != 2 || n.Leaps != 1 {
		t.Errorf("%d restarts of %d leaps, want 2 of 1", n.ListRestarts, n.Leaps)
	}
	c.Lists = &compacting{KVClient: c.Lists, cli: s.Client(), times: 100}
	if err := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/l/"), Held: held.held(), HeldAt: at}).failure(); !errors.Is(err, errListCompacted) {
		t.Errorf("a leap that is compacted again and again: %v", err)
	}
}

// A state that cannot follow from the held one belongs to another history, and is rejected.
func TestLeapNoticesAnotherHistory(t *testing.T) {
	s := etcdtest.Start(t)
	cli := s.Client()
	for _, key := range []string{"/a", "/b", "/b", "/c"} { // 2, 3, 4, 5
		if _, err := cli.Put(t.Context(), key, "v"); err != nil {
			t.Fatal(err)
		}
	}
	c := newClient(t, testConfig(s.Endpoint()))
	at := func(key string, create, mod kv.Revision, version int64) *kv.KeyValue {
		return kv.NewKeyValue(kv.Fields{Key: []byte(key), Value: []byte("v"), CreateRevision: create, ModRevision: mod, Version: version})
	}
	a, b := at("/a", 2, 2, 1), at("/b", 3, 4, 2)
	for name, x := range map[string]struct {
		held  []*kv.KeyValue
		at    kv.Revision
		other bool
	}{
		"nothing, from the beginning":       {nil, 1, false},
		"as it was":                         {[]*kv.KeyValue{a, b}, 4, false},
		"before":                            {[]*kv.KeyValue{a, at("/b", 3, 3, 1)}, 3, false},
		"a deleted key":                     {[]*kv.KeyValue{a, at("/aa", 3, 3, 1), at("/z", 3, 3, 1)}, 3, false},
		"held beyond etcd's revision":       {[]*kv.KeyValue{a}, 6, true},
		"a higher mod revision":             {[]*kv.KeyValue{a, at("/b", 3, 5, 3)}, 5, true},
		"another version":                   {[]*kv.KeyValue{a, at("/b", 3, 4, 1)}, 4, true},
		"another creation":                  {[]*kv.KeyValue{a, at("/b", 2, 4, 2)}, 4, true},
		"a change that was never seen":      {[]*kv.KeyValue{a, at("/b", 3, 3, 1)}, 4, true},
		"a key that was never seen":         {[]*kv.KeyValue{b}, 4, true},
		"a key after all held keys":         {[]*kv.KeyValue{a, b}, 5, true},
		"none of the keys is held":          {nil, 2, true},
		"another key with the same history": {[]*kv.KeyValue{at("/a1", 2, 2, 1), b}, 4, true},
	} {
		held := state{}
		for _, k := range x.held {
			held[string(k.Key())] = k
		}
		if !x.other {
			held.leap(t, c, kv.Prefix("/"), x.at)
			held.mustBe(t, cli, kv.Prefix("/"), 5)
			continue
		}
		err := follow(t, c, kv.FollowRequest{Range: kv.Prefix("/"), Held: held.held(), HeldAt: x.at}).failure()
		if !errors.Is(err, kv.ErrOtherHistory) {
			t.Errorf("%s: %v", name, err)
		}
	}
	empty := kv.FollowRequest{Range: kv.Prefix("/none/"), Held: state{}.held(), HeldAt: 6}
	if err := follow(t, c, empty).failure(); !errors.Is(err, kv.ErrOtherHistory) {
		t.Errorf("an empty range, held beyond etcd's revision: %v, want ErrOtherHistory", err)
	}
}

func TestCut(t *testing.T) {
	r := func(n int) run { return make(run, n) }
	sizes := func(runs []run) (out []int) {
		for _, one := range runs {
			out = append(out, len(one))
		}
		return out
	}
	for _, x := range []struct {
		runs        []run
		ops, keys   int
		piece, rest []int
	}{
		{[]run{r(1), r(2), r(3)}, 9, 9, []int{1, 2, 3}, nil},
		{[]run{r(1), r(2), r(3)}, 2, 9, []int{1, 2}, []int{3}},
		{[]run{r(1), r(2), r(3)}, 9, 3, []int{1, 2}, []int{3}},
		{[]run{r(1), r(2), r(3)}, 9, 4, []int{1, 2, 1}, []int{2}},
		{[]run{r(5)}, 1, 2, []int{2}, []int{3}},
	} {
		piece, rest := cut(x.runs, x.ops, x.keys)
		if !slices.Equal(sizes(piece), x.piece) || !slices.Equal(sizes(rest), x.rest) {
			t.Errorf("%v, %d ops, %d keys: %v and %v, want %v and %v", sizes(x.runs), x.ops, x.keys, sizes(piece), sizes(rest), x.piece, x.rest)
		}
	}
}
