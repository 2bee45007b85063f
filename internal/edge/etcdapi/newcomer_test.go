package etcdapi_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// A client that connects before the node has the shard map is served once the map arrives, from the
// client's revision, although the node's window begins after it. The client gets no compaction
// error.
func TestWatchThatComesBeforeTheShardMap(t *testing.T) {
	for range 20 {
		r := startWatches(t, rigOptions{founding: true})
		for range 5 {
			r.h.Commit(cachetest.Put("a", "x"))
		}
		r.h.Forget(r.h.Now() + 1)
		s := r.watch()
		s.create(since(first))
		time.Sleep(20 * time.Millisecond) // simulates a map that arrives after the client
		r.node.Use(r.shards)
		r.router.Kick()
		s.created(0)
		for i := range int64(5) {
			if m := s.next(); m.GetHeader().GetRevision() != first+i || len(m.GetEvents()) != 1 {
				t.Fatalf("got %v, want the event of revision %d", m, first+i)
			}
		}
		s.end()
	}
}

// If no map arrives, the client is redirected to another node.
func TestWatchWithoutAShardMap(t *testing.T) {
	t.Parallel()
	r := startWatches(t, rigOptions{founding: true})
	s := r.watch()
	s.create(since(first))
	if m, err := s.rpc.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, %v; want the stream to end with UNAVAILABLE", m, err)
	}
}
