package etcdapi_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/etcdapi"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// startScripted runs a node of a history with keys of 1 KiB.
func startScripted(tb testing.TB, keys int, tune ...func(*etcdapi.Config)) (*readNode, *cachetest.Script) {
	tb.Helper()
	h := cachetest.New()
	var ops []cachetest.Op
	for i := range keys {
		ops = append(ops, cachetest.Put(fmt.Sprintf("/registry/pods/%06d", i), strings.Repeat("v", 1000)))
		if len(ops) == 10 || i == keys-1 {
			h.Commit(ops...)
			ops = nil
		}
	}
	n := cachetest.NewNode("here", h, nil)
	tb.Cleanup(n.Stop)
	m := serving([]string{"/registry/pods/" + fmt.Sprintf("%06d", keys/3)}, "here")
	n.Use(m)
	for i := range m.Shards {
		c := n.Replica(m.Shards[i].ID)
		<-c.Ready()
		c.Observe(time.Now(), h.Now())
	}
	return startAPI(tb, n, &scripted{script: h}, router.Config{Shards: n, Clock: h, Self: "here"}, tune...), h
}

func pods() *etcdserverpb.RangeRequest {
	return &etcdserverpb.RangeRequest{Key: []byte("/registry/pods/"), RangeEnd: []byte("/registry/pods0")}
}

// A get, list or stream on any node sees all earlier writes through any other node.
func TestReadsSeeEarlierWrites(t *testing.T) {
	e := etcdtest.Start(t)
	m := serving([]string{"/5"}, "here", "there")
	here, there := startReads(t, "here", m, e.Endpoint()), startReads(t, "there", m, e.Endpoint())
	here.node.Connect("there", dialPlain(t, there.peer))
	there.node.Connect("here", dialPlain(t, here.peer))
	apis := []*readNode{here, there}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			key := fmt.Appendf(nil, "/%d", w+1)
			for i := range 30 {
				value := fmt.Sprint(i)
				put, err := apis[(w+i)%2].kv.Put(within(t), &etcdserverpb.PutRequest{Key: key, Value: []byte(value)})
				if err != nil {
					t.Error(err)
					return
				}
				at := apis[(w+i/2)%2].kv
				get, err := at.Range(within(t), &etcdserverpb.RangeRequest{Key: key})
				if err != nil || len(get.GetKvs()) != 1 || string(get.GetKvs()[0].GetValue()) != value || get.GetHeader().GetRevision() < put.GetHeader().GetRevision() {
					t.Errorf("after a put of %s=%s at %d: %v, %v", key, value, put.GetHeader().GetRevision(), get, err)
				}
				whole := &etcdserverpb.RangeRequest{Key: []byte("/"), RangeEnd: []byte("0")}
				list, err := at.Range(within(t), whole)
				if err == nil && i%3 == 0 {
					list, _, err = streamed(within(t), at, whole)
				}
				found := false
				for _, item := range list.GetKvs() {
					found = found || string(item.GetKey()) == string(key) && string(item.GetValue()) == value
				}
				if err != nil || !found || list.GetCount() != int64(len(list.GetKvs())) {
					t.Errorf("the list lacks %s=%s: %v, %v", key, value, list, err)
				}
			}
		})
	}
	wg.Wait()
}

// Concurrent calls with large and small keys on one connection do not overwrite each other's bytes,
// although ranges share the bytes of their requests.
func TestLargeAndSmallRequestsTogether(t *testing.T) {
	e := etcdtest.Start(t)
	n := startReads(t, "here", serving([]string{"/5"}, "here"), e.Endpoint())
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 5 {
				size := []int{0, 100, 100 << 10, 300 << 10}[(w+i)%4]
				fill := string(rune('a' + w))
				key := fmt.Sprintf("/%d/%d/%s", w+1, i, strings.Repeat(fill, size))
				if _, err := n.kv.Put(within(t), &etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(key)}); err != nil {
					t.Error(err)
					return
				}
				for name, r := range map[string]*etcdserverpb.RangeRequest{
					"the key":        {Key: []byte(key)},
					"up to the next": {Key: []byte(key), RangeEnd: []byte(key + fill)},
					"from below":     {Key: []byte(key[:len(key)-1]), RangeEnd: []byte(key + "\x00")},
				} {
					got, err := n.kv.Range(within(t), r)
					if err != nil || len(got.GetKvs()) != 1 || string(got.GetKvs()[0].GetKey()) != key || string(got.GetKvs()[0].GetValue()) != key {
						t.Errorf("%s, caller %d, fill of %d bytes: %d keys, %v", name, w, size, len(got.GetKvs()), err)
					}
				}
				none, err := n.kv.Range(within(t), &etcdserverpb.RangeRequest{Key: []byte(key + fill), RangeEnd: []byte(key + fill + fill)})
				if err != nil || len(none.GetKvs()) != 0 {
					t.Errorf("a range beside the key: %d keys, %v", len(none.GetKvs()), err)
				}
			}
		})
	}
	wg.Wait()
}

// The chunks of a stream equal the answer of Range, in messages that clients accept.
func TestRangeStreamsInChunks(t *testing.T) {
	n, _ := startScripted(t, 6000)
	want, err := n.kv.Range(within(t), pods())
	if err != nil || len(want.GetKvs()) != 6000 {
		t.Fatalf("%d keys, %v", len(want.GetKvs()), err)
	}
	got, chunks, err := streamed(within(t), n.kv, pods())
	if err != nil || !proto.Equal(got, want) || chunks < 3 || chunks > 12 {
		t.Errorf("%d keys (want 6000) in %d chunks, %v", len(got.GetKvs()), chunks, err)
	}
	limited := pods()
	limited.Limit = 2500
	if got, chunks, err = streamed(within(t), n.kv, limited); err != nil || len(got.GetKvs()) != 2500 || !got.GetMore() || got.GetCount() != 6000 || chunks < 2 {
		t.Errorf("%d keys (want 2500) in %d chunks, more %v, count %d, %v", len(got.GetKvs()), chunks, got.GetMore(), got.GetCount(), err)
	}
}

// slowReader is a server stream whose client performs an action between two chunks.
type slowReader struct {
	recorder
	between func(chunks int)
}

func (r *slowReader) SendMsg(m any) error {
	if e, ok := m.(*etcdserverpb.RangeStreamResponse); ok {
		r.sent = append(r.sent, e.GetRangeResponse())
	} else if err := r.recorder.SendMsg(m); err != nil {
		return err
	}
	r.between(len(r.sent))
	return nil
}

// A client that reads its stream slowly gets one revision to the end, although the cache drops this
// revision meanwhile: the node keeps no state for the client, and etcd sends the rest.
func TestRangeStreamToASlowClient(t *testing.T) {
	e := etcdtest.Start(t)
	put := func(value string) {
		t.Helper()
		for i := range 300 {
			if _, err := e.Client().Put(within(t), fmt.Sprintf("/%03d", i), strings.Repeat(value, 1000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put("a")
	for _, keep := range []int64{0, 100 << 20} {
		n := startReadsOf(t, "here", serving([]string{"/1"}, "here"), e.Endpoint(), func(c *cache.Config) { c.RootsBytes = keep },
			func(c *etcdapi.Config) { c.MaxMessageBytes = 32 << 10 })
		n.api.CutLists(8<<10, 8<<10, 32<<10)
		for _, r := range []*etcdserverpb.RangeRequest{
			{Key: []byte("/"), RangeEnd: []byte("0")},
			{Key: []byte("/"), RangeEnd: []byte("0"), Limit: 200},
		} {
			want, err := n.kv.Range(within(t), r)
			if err != nil {
				t.Fatal(err)
			}
			out := &slowReader{recorder: recorder{t: t, ctx: within(t)}, between: func(chunks int) {
				if chunks == 2 {
					put("b") // changes all keys
				}
			}}
			n.etcd.reads.Store(0)
			if err := n.api.RangeStream(r, out); err != nil {
				t.Fatal(err)
			}
			got := &etcdserverpb.RangeResponse{}
			for i, chunk := range out.sent {
				if (chunk.GetHeader() != nil) != (i == len(out.sent)-1) {
					t.Fatalf("chunk %d of %d has header %v", i, len(out.sent), chunk.GetHeader())
				}
				got.Kvs = append(got.Kvs, chunk.GetKvs()...)
				got.Header, got.More, got.Count = chunk.GetHeader(), chunk.GetMore(), chunk.GetCount()
			}
			if !proto.Equal(got, want) {
				t.Errorf("%v: got %s\nwant %s", r, brief(got), brief(want))
			}
			if rest := n.etcd.reads.Load(); (rest > 0) != (keep == 0) || len(out.sent) < 4 {
				t.Errorf("%v: %d chunks, %d reads of etcd", r, len(out.sent), rest)
			}
		}
	}
}

// Lists that clients do not read use a bounded number of bytes, which are released when the clients
// disconnect.
func TestUnreadListsAreBounded(t *testing.T) {
	const limit = 8 << 20
	n, h := startScripted(t, 5000, func(c *etcdapi.Config) { c.Budget = budget.New(limit / 5 * 16) })
	lazy, cancel := context.WithCancel(context.Background())
	defer cancel()
	conn := dialPlain(t, n.addr)
	answered := 0
	for i := range 20 {
		// Each list has a state of its own: all keys have changed.
		var ops []cachetest.Op
		for k := range 5000 {
			ops = append(ops, cachetest.Put(fmt.Sprintf("/registry/pods/%06d", k), strings.Repeat("v", 1000+i)))
		}
		h.Commit(ops...)
		s, err := conn.NewStream(lazy, &grpc.StreamDesc{ServerStreams: true}, etcdserverpb.KV_Range_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendMsg(pods()); err != nil {
			t.Fatal(err)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if header, err := s.Header(); err == nil && header != nil {
			answered++
		}
	}
	if answered < 1 || answered > 3 {
		t.Errorf("%d lists of 5 MB were answered, want 1 to 3", answered)
	}
	_, err := n.kv.Range(within(t), pods())
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), budget.Flag) {
		t.Errorf("a list beside unread lists: %v", err)
	}
	if held := n.api.Held(); held > limit+6<<20 {
		t.Errorf("%d bytes are held, the limit is %d", held, limit)
	}
	if _, err := n.kv.Range(within(t), one("/registry/pods/000001")); err != nil {
		t.Errorf("a get beside unread lists: %v", err)
	}
	cancel()
	testkit.Eventually(t, "the bytes of cancelled lists are released", func() bool { return n.api.Held() == 0 })
	if _, err = n.kv.Range(within(t), pods()); err != nil {
		t.Errorf("a list after their release: %v", err)
	}
}

// Clients that do not read the lists forwarded from etcd do not occupy the slots for such lists.
func TestUnreadForwardedListsLeaveRoom(t *testing.T) {
	e := etcdtest.Start(t)
	put := func(value string) (revision int64) {
		t.Helper()
		for i := range 300 {
			r, err := e.Client().Put(within(t), fmt.Sprintf("/%03d", i), strings.Repeat(value, 1000))
			if err != nil {
				t.Fatal(err)
			}
			revision = r.Header.Revision
		}
		return revision
	}
	n := startReadsOf(t, "here", serving([]string{"/1"}, "here"), e.Endpoint(), func(c *cache.Config) { c.RootsBytes = 0 })
	old := &etcdserverpb.RangeRequest{Key: []byte("/"), RangeEnd: []byte("0"), Revision: put("a")}
	put("b")
	var (
		all     sync.WaitGroup
		unread  atomic.Int64
		reading = make(chan struct{})
	)
	const streams = 40 // more than the slots for forwarded lists
	for range streams {
		all.Go(func() {
			out := &slowReader{recorder: recorder{t: t, ctx: within(t)}, between: func(int) {
				unread.Add(1)
				<-reading
			}}
			if err := n.api.RangeStream(old, out); err != nil {
				t.Error(err)
			}
		})
	}
	testkit.Eventually(t, "all lists wait for their clients", func() bool { return unread.Load() == streams })
	if r, err := n.kv.Range(within(t), old); err != nil || len(r.GetKvs()) != 300 {
		t.Errorf("a list beside unread forwarded lists: %d keys, %v", len(r.GetKvs()), err)
	}
	close(reading)
	all.Wait()
}

// Lists of more than one chunk are built in turns. Small lists need no turn, and a cancelled list
// releases its turn.
func TestListsTakeTurns(t *testing.T) {
	n, h := startScripted(t, 5000)
	var ops []cachetest.Op
	for k := range 5000 {
		ops = append(ops, cachetest.Put(fmt.Sprintf("/registry/pods/%06d", k), strings.Repeat("v", 1000)))
	}
	h.Commit(ops...)
	leave := n.api.HoldTurns(t)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	list := func(ctx context.Context, want codes.Code) {
		all.Go(func() {
			r, err := n.kv.Range(ctx, pods())
			if status.Code(err) != want || err == nil && len(r.GetKvs()) != 5000 {
				t.Errorf("a list of %d keys: %v, want %v", len(r.GetKvs()), err, want)
			}
		})
	}
	list(ctx, codes.Canceled)
	list(within(t), codes.OK)
	testkit.Eventually(t, "both lists wait for a turn", func() bool { _, waiting := n.api.Waiting(); return waiting == 2 })
	if _, err := n.kv.Range(within(t), one("/registry/pods/000001")); err != nil {
		t.Errorf("a get: %v", err)
	}
	cancel()
	testkit.Eventually(t, "the cancelled list no longer waits", func() bool { _, waiting := n.api.Waiting(); return waiting == 1 })
	leave()
	all.Wait()
	testkit.Eventually(t, "all turns are released", func() bool { running, waiting := n.api.Waiting(); return running == 0 && waiting == 0 })
}

// Lists that examine many keys before they select the first one take turns, too.
func TestSortedListsTakeTurns(t *testing.T) {
	n, _ := startScripted(t, 5000)
	leave := n.api.HoldTurns(t)
	var all sync.WaitGroup
	list := func(want int, r *etcdserverpb.RangeRequest) {
		all.Go(func() {
			if got, err := n.kv.Range(within(t), r); err != nil || len(got.GetKvs()) != want || got.GetCount() != 5000 {
				t.Errorf("%v: %d keys of %d, %v", r, len(got.GetKvs()), got.GetCount(), err)
			}
		})
	}
	newest, none := pods(), pods()
	newest.SortTarget, newest.SortOrder, newest.Limit = etcdserverpb.RangeRequest_MOD, etcdserverpb.RangeRequest_DESCEND, 1
	none.MinModRevision = 1 << 40
	list(1, newest)
	list(0, none)
	testkit.Eventually(t, "both wait", func() bool { _, waiting := n.api.Waiting(); return waiting == 2 })
	leave()
	all.Wait()
	testkit.Eventually(t, "all turns are released", func() bool { running, waiting := n.api.Waiting(); return running == 0 && waiting == 0 })
}

// slow is a connection to a node whose streams begin once it is released.
type slow struct {
	grpc.ClientConnInterface
	released chan struct{}
}

func (c slow) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	select {
	case <-c.released:
	case <-ctx.Done():
	}
	return c.ClientConnInterface.NewStream(ctx, desc, method, options...)
}

// A sorted list with keys of this node and another one takes turns for the keys of this node. While it
// waits for the other node, it holds no turn, and the keys found so far count against the budget.
func TestSortedListsOfSeveralNodesTakeTurns(t *testing.T) {
	e := etcdtest.Start(t)
	const keys = 6000
	for i := 0; i < keys; i += 100 {
		var puts []clientv3.Op
		for k := i; k < i+100; k++ {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/1/%05d", k), ""))
		}
		if _, err := e.Client().Txn(within(t)).Then(puts...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Client().Put(within(t), "/7", ""); err != nil {
		t.Fatal(err)
	}
	m, b := serving([]string{"/5"}, "here", "there"), budget.New(1<<30)
	here := startReads(t, "here", m, e.Endpoint(), func(c *etcdapi.Config) { c.Budget = b })
	there := startReads(t, "there", m, e.Endpoint())
	other := slow{dialPlain(t, there.peer), make(chan struct{})}
	here.node.Connect("there", other)
	leave := here.api.HoldTurns(t)
	newest := &etcdserverpb.RangeRequest{Key: []byte("/"), RangeEnd: []byte("0"), SortTarget: etcdserverpb.RangeRequest_MOD, SortOrder: etcdserverpb.RangeRequest_DESCEND, Limit: 1}
	var list sync.WaitGroup
	list.Go(func() {
		if got, err := here.kv.Range(within(t), newest); err != nil || len(got.GetKvs()) != 1 || string(got.GetKvs()[0].GetKey()) != "/7" || got.GetCount() != keys+1 {
			t.Errorf("%v, %v", got, err)
		}
	})
	testkit.Eventually(t, "the list waits for its turn", func() bool { _, waiting := here.api.Waiting(); return waiting == 1 })
	leave()
	testkit.Eventually(t, "the list waits for the other node", func() bool {
		running, waiting := here.api.Waiting()
		return running == 0 && waiting == 0 && b.Held(budget.Fetches) > 0
	})
	close(other.released)
	list.Wait()
	testkit.Eventually(t, "all turns and bytes are released", func() bool {
		running, waiting := here.api.Waiting()
		return running == 0 && waiting == 0 && b.Held(budget.Fetches) == 0
	})
	if n := here.etcd.reads.Load(); n != 0 {
		t.Errorf("%d reads of etcd, want none", n)
	}
}
