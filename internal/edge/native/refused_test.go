package native

import (
	"context"
	"errors"
	"testing"
	"time"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/edge/etcdwatch"
	"github.com/shardwatch/shardwatch/internal/edge/pump"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// deaf is a stream whose client does not read.
type deaf struct{ ctx context.Context }

func (d deaf) SendMsg(any) error {
	<-d.ctx.Done()
	return d.ctx.Err()
}

// If a client creates watches beyond the limit and does not read the refusals, its stream ends
// before the refusals fill the memory.
func TestRefusalsThatAreNotRead(t *testing.T) {
	h := cachetest.New()
	api := New(Config{MaxWatchesPerStream: 1, OpenQueue: etcdwatch.NewOpenQueue(), Router: router.New(router.Config{Shards: cachetest.NewNode("here", h, nil), Clock: h})})
	ctx, cancel := context.WithCancel(t.Context())
	var pumps pump.Pumps
	st := &stream{api: api, tasks: pumps.Open(ctx, "", deaf{ctx}), ctx: ctx, watches: make(map[int64]*watch)}
	st.progress.start(st, time.Hour)
	defer pumps.Wait()
	defer st.close()
	defer cancel()
	create := func(id int64) error {
		return st.Handle(&shardwatchv1.WatchRequest{Request: &shardwatchv1.WatchRequest_Create{Create: &shardwatchv1.CreateWatch{WatchId: id, Key: []byte("k")}}})
	}
	// Unread are one watch, maxRefused refusals, and one message that may be in flight.
	last := int64(3 + maxRefused)
	var err error
	for id := int64(1); id <= last && err == nil; id++ {
		if err = create(id); err != nil && id <= 1+maxRefused {
			t.Fatalf("watch %d: %v", id, err)
		}
	}
	var limit *kv.LimitError
	if !errors.As(err, &limit) || limit.Max != 1 {
		t.Errorf("got %v", err)
	}
}
