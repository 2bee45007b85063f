package etcdapi_test

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
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
