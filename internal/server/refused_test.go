package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cachetest"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
)

// A client that creates watches over the limit and reads none of the answers
// loses its stream before they fill the memory.
func TestRefusalsThatAreNotRead(t *testing.T) {
	cfg := Defaults()
	cfg.MaxWatchesPerStream = 1
	h := cachetest.New()
	cfg.Router = router.New(router.Config{Shards: cachetest.NewNode("here", h, nil), Clock: h})
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Without a pump, nothing is ever sent.
	st := &stream{srv: srv, conn: newConn(&sync.WaitGroup{}), ctx: context.Background(), watches: make(map[int64]*watch)}
	st.progress.start(st, time.Hour)
	defer st.progress.stop()
	create := func(id int64) error {
		return st.handle(&shardwatchv1.WatchRequest{Request: &shardwatchv1.WatchRequest_Create{Create: &shardwatchv1.CreateWatch{WatchId: id, Key: []byte("k")}}})
	}
	for id := range int64(1 + maxRefused) {
		if err := create(id + 1); err != nil {
			t.Fatalf("watch %d: %v", id+1, err)
		}
	}
	var limit *kv.LimitError
	if err := create(5000); !errors.As(err, &limit) || limit.Max != 1 {
		t.Errorf("got %v", err)
	}
}
