package etcdapi_test

import (
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/shardwatch/shardwatch/internal/cachetest"
)

// Streams that open watches all at once stand in line. None is refused, and one
// that ends in between leaves no gap.
func TestNewWatchesStandInLine(t *testing.T) {
	r := startWatches(t, rigOptions{})
	r.door.BoundOpens(1)
	r.etcd.mu.Lock() // nobody gets an answer from etcd
	var streams []*watchStream
	for range 4 {
		s := r.watch()
		for range 3 {
			s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
		}
		streams = append(streams, s)
	}
	streams[3].end()
	r.etcd.mu.Unlock()
	for _, s := range streams[:3] {
		for id := range int64(3) {
			s.created(id)
		}
	}
	last := r.watch()
	last.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
	last.created(0)
}

// Watches of a shard that no node serves wait for it without a place that watches of
// other shards need.
func TestAHomelessShardBlocksNoOtherWatch(t *testing.T) {
	m := cachetest.Map(1, []string{"h"}, "here")
	m.Shards[1].Replicas[0] = "there" // which is away
	r := startWatches(t, rigOptions{shards: m})
	r.door.BoundOpens(1)
	r.door.LookForHomes(time.Hour)
	homeless := r.watch()
	for range 3 {
		homeless.create(&etcdserverpb.WatchCreateRequest{Key: []byte("z"), StartRevision: first})
	}
	eventually(t, "they are on the list", func() bool { return r.door.Watches() > 0 })
	s := r.watch()
	for id := range int64(3) {
		s.create(&etcdserverpb.WatchCreateRequest{Key: []byte("a"), StartRevision: first})
		s.created(id)
	}
}
