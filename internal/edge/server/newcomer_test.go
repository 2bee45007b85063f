package server_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// A client that connects before the node has the shard map is served once the map arrives, in the
// lineage of the map.
func TestWatchThatComesBeforeTheShardMap(t *testing.T) {
	h := cachetest.New()
	r := start(t, h, options{founding: true})
	h.Commit(cachetest.Put("a", "1"))
	s := r.watch()
	s.create(all(1, first))
	time.Sleep(20 * time.Millisecond) // simulates a map that arrives after the client
	r.node.Use(cachetest.Map(1, []string{"h"}, "here"))
	for _, id := range []shard.ID{1, 2} {
		<-r.node.Replica(id).Ready()
	}
	r.router.Kick()
	if c := s.created(1); c.GetLineage() != 1 || c.GetRevision() != first-1 || len(c.GetResumeToken()) == 0 {
		t.Errorf("got %v", c)
	}
	if m := s.next(); m.GetRevision() != first || len(m.GetEvents()) != 1 {
		t.Errorf("got %v, want the event of revision %d", m, first)
	}
}

// If no map arrives, the client is redirected to another node.
func TestWatchWithoutAShardMap(t *testing.T) {
	t.Parallel()
	s := start(t, cachetest.New(), options{founding: true}).watch()
	s.create(all(1, first))
	if m, err := s.rpc.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, %v; want the stream to end with UNAVAILABLE", m, err)
	}
}
