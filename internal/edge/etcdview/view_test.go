package etcdview_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/shardwatch/shardwatch/internal/edge/etcdview"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// history is a shard map without shards, and an etcd.
type history struct {
	router.Shards
	lineage, revision atomic.Int64
}

func (h *history) Map() *shard.Map { return &shard.Map{Lineage: uint64(h.lineage.Load())} }

func (h *history) Revision(context.Context) (kv.Revision, error) {
	return kv.Revision(h.revision.Load()), nil
}

// After a restore of etcd, its revisions begin lower again. Revisions of the old lineage, such as those of a watch that
// is still catching up, do not raise the newest revision of the new one.
func TestRevisionsOfAnOldLineageAreNotTheNewest(t *testing.T) {
	h := new(history)
	v := etcdview.New(etcdview.Config{Router: router.New(router.Config{Shards: h, Clock: h})})
	want := func(revision kv.Revision, after string) {
		t.Helper()
		if got := v.Newest(); got != revision {
			t.Errorf("%s, the newest revision is %d, want %d", after, got, revision)
		}
	}
	h.lineage.Store(1)
	v.Saw(1, 1000)
	v.Saw(1, 900)
	want(1000, "in the first lineage")
	h.lineage.Store(2)
	want(0, "after a restore")
	v.Saw(1, 1001)
	want(0, "after an event of the old lineage")
	h.revision.Store(10)
	if now, err := v.Now(t.Context()); now != 10 || err != nil {
		t.Errorf("now: %d, %v", now, err)
	}
	v.Saw(1, 1002)
	want(10, "after a read of etcd")
	h.lineage.Store(3)
	v.Saw(2, 11)
	v.Saw(3, 5)
	v.Saw(2, 12)
	want(5, "after an event of the new lineage")
}
