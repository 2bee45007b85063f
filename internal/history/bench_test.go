package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// benchBatches returns a window of the given size in memory, whose events have values
// of 500 bytes.
func benchBatches(bytes int) (batches []kv.Batch) {
	rng := rand.New(rand.NewPCG(1, 2))
	value := []byte(strings.Repeat("v", 500))
	latest := map[string]*kv.KeyValue{}
	for r := kv.Revision(2); bytes > 0; r++ {
		key := fmt.Sprintf("/registry/pods/namespace-%02d/pod-%06d", rng.IntN(20), rng.IntN(20_000))
		k := kv.NewKeyValue(kv.Fields{Key: []byte(key), Value: value, CreateRevision: 2, ModRevision: r, Version: 1})
		batch := kv.Batch{Revision: r, Received: time.Now(), Events: []kv.Event{{KV: k, Prev: latest[key]}}}
		latest[key] = k
		batches = append(batches, batch)
		bytes -= batch.Size()
	}
	return batches
}

// full returns a shard whose cache has a full window.
func full(b *testing.B) (one Shard, batches int) {
	b.Helper()
	past := &cache.Past{Floor: 2, DeltaFloor: 2}
	for _, x := range benchBatches(60 << 20) {
		past.Batches = append(past.Batches, &x)
		past.Progress = x.Revision
	}
	cfg := cache.Defaults()
	cfg.Source, cfg.History = source{past}, past
	c := cache.New(cfg)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	<-c.Ready()
	return Shard{ID: 7, Export: c.Export}, len(past.Batches)
}

// source yields the state of a past.
type source struct{ past *cache.Past }

func (s source) Follow(ctx context.Context, _ kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		latest := map[string]*kv.KeyValue{}
		for _, x := range s.past.Batches {
			latest[string(x.Events[0].KV.Key())] = x.Events[0].KV
		}
		var state []*kv.KeyValue
		for _, key := range slices.Sorted(maps.Keys(latest)) {
			state = append(state, latest[key])
		}
		at := s.past.Progress
		if yield(kv.Update{Kind: kv.UpdateBegin, Revision: at, Floor: at + 1}, nil) &&
			yield(kv.Update{Kind: kv.UpdateState, Revision: at, KVs: state}, nil) &&
			yield(kv.Update{Kind: kv.UpdateReady, Revision: at}, nil) {
			<-ctx.Done()
		}
	}
}

func BenchmarkSave(b *testing.B) {
	one, _ := full(b)
	for b.Loop() {
		s := New(Config{Dir: b.TempDir(), MaxBytes: 1 << 30})
		if err := errors.Join(s.Save(b.Context(), origin, []Shard{one}), s.Close()); err != nil {
			b.Fatal(err)
		}
		n := s.Status()
		b.SetBytes(n.Written)
		b.ReportMetric(float64(n.Written), "written/window")
		b.ReportMetric(float64(n.Bytes), "file/window")
	}
}

func BenchmarkLoad(b *testing.B) {
	one, n := full(b)
	dir := b.TempDir()
	s := New(Config{Dir: dir, MaxBytes: 1 << 30})
	if err := errors.Join(s.Save(b.Context(), origin, []Shard{one}), s.Close()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s := New(Config{Dir: dir, MaxBytes: 1 << 30})
		h := s.Load(origin, map[shard.ID]kv.Range{7: {}})[7]
		if h == nil || len(h.Batches) != n {
			b.Fatalf("the saved history was not loaded completely; loaded: %v", h != nil)
		}
		b.SetBytes(s.Status().Bytes)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
