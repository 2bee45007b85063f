package native

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/etcdwatch"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/edge/syncbatch"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// unread is a stream whose client reads no unit until reads is closed.
type unread struct {
	tb          testing.TB
	full, reads chan struct{}
	once        sync.Once

	mu   sync.Mutex
	keys map[int64]map[string]bool // guarded by mu; that each watch got
}

// SendMsg implements pump.Messages.
func (u *unread) SendMsg(m any) error {
	encoded, ok := m.(*wire.Encoded)
	if !ok {
		return nil // of the watch's creation
	}
	u.once.Do(func() { close(u.full) })
	<-u.reads
	var got shardwatchv1.WatchResponse
	if err := proto.Unmarshal(encoded.Buffers.Materialize(), &got); err != nil {
		u.tb.Error(err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.keys[got.GetWatchId()] == nil {
		u.keys[got.GetWatchId()] = make(map[string]bool)
	}
	for _, item := range got.GetSync().GetKvs() {
		u.keys[got.GetWatchId()][string(item.GetKey())] = true
	}
	return nil
}

// The keys that conflated watches collect are bounded by the budget. Watches beyond it get a delta, so that each
// watch gets every key once the client reads.
func TestCollectedKeysAreBounded(t *testing.T) {
	const watches, keys, share = 10, 24_000, 2 << 20
	h := cachetest.New()
	n := cachetest.NewNode("here", h, func(c *cache.Config) { c.WindowBytes = 1 << 30 })
	defer n.Stop()
	n.Use(cachetest.Map(1, nil, "here"))
	<-n.Replica(1).Ready()
	from := h.Now() + 1
	var ops []cachetest.Op
	for i := range keys {
		if ops = append(ops, cachetest.Put(fmt.Sprintf("key/%05d", i), "v")); len(ops) == 1000 {
			h.Commit(ops...)
			ops = nil
		}
	}
	if err := n.Replica(1).WaitProgress(t.Context(), h.Now()); err != nil {
		t.Fatal(err)
	}
	b := budget.New(8 * share)
	api := New(Config{
		MaxWatchesPerStream: 100, OpenQueue: etcdwatch.NewOpenQueue(), Router: router.New(router.Config{Shards: n, Clock: h, Self: "here", Budget: b}),
		Budget: b, MaxResyncs: 1, Patience: syncbatch.UsualPatience(), FragmentBytes: 64 << 10,
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { api.Run(ctx) })
	defer running.Wait()
	u := &unread{tb: t, full: make(chan struct{}), reads: make(chan struct{}), keys: make(map[int64]map[string]bool)}
	var pumps pump.Pumps
	st := &stream{api: api, tasks: pumps.Open(ctx, "", u), ctx: ctx, watches: make(map[int64]*watch)}
	st.crowd.start(st)
	st.progress.start(st, time.Hour)
	defer pumps.Wait()
	defer st.close()
	defer cancel()
	for id := int64(1); id <= watches; id++ {
		key, end := kv.Prefix("key/").Etcd()
		if err := st.Handle(&shardwatchv1.WatchRequest{Request: &shardwatchv1.WatchRequest_Create{Create: &shardwatchv1.CreateWatch{
			WatchId: id, Key: key, RangeEnd: end, AllowSync: true, Conflate: durationpb.New(10 * time.Millisecond),
			Start: &shardwatchv1.CreateWatch_StartRevision{StartRevision: int64(from)},
		}}}); err != nil {
			t.Fatal(err)
		}
	}
	<-u.full
	var size int64
	for _, w := range st.list() { // the blocked pump owns them
		size += w.latest.size
	}
	if held := b.Held(budget.CatchUps); size > share/2+watches*freeCollected || held > share/2 {
		t.Errorf("the watches have collected %d bytes, and hold %d of the budget", size, held)
	}
	close(u.reads)
	testkit.Eventually(t, "each watch gets every key", func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		for id := int64(1); id <= watches; id++ {
			if len(u.keys[id]) < keys {
				return false
			}
		}
		return true
	})
	testkit.Eventually(t, "the bytes return to the budget", func() bool { return b.Held(budget.CatchUps) == 0 })
	// Units that fit need no delta.
	begun := api.Batches().Begun
	for i := range 200 {
		ops = append(ops, cachetest.Put(fmt.Sprintf("key/new/%d", i), "v"))
	}
	h.Commit(ops[:100]...)
	h.Commit(ops[100:]...)
	testkit.Eventually(t, "the watches get the new keys", func() bool {
		u.mu.Lock()
		defer u.mu.Unlock()
		return len(u.keys[1]) == keys+200
	})
	if now := api.Batches().Begun; now != begun {
		t.Errorf("%d units are deltas", now-begun)
	}
}
