package history

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/shard"
)

// filled writes a window of events whose values have 500 bytes, of so many
// bytes in memory.
func filled(b *testing.B, dir string, bytes int) (batches []*kv.Batch) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	value := []byte(strings.Repeat("v", 500))
	latest := map[string]*kv.KeyValue{}
	for r := kv.Revision(2); bytes > 0; r++ {
		key := fmt.Sprintf("/registry/pods/namespace-%02d/pod-%06d", rng.IntN(20), rng.IntN(20_000))
		k := kv.NewKeyValue(kv.Fields{Key: []byte(key), Value: value, CreateRevision: 2, ModRevision: r, Version: 1})
		batch := &kv.Batch{Revision: r, Received: time.Now(), Events: []kv.Event{{KV: k, Prev: latest[key]}}}
		latest[key] = k
		batches = append(batches, batch)
		bytes -= batch.Size()
	}
	save(b, dir, batches)
	return batches
}

// save writes a window's file of a new shard, and returns its bytes.
func save(b *testing.B, dir string, batches []*kv.Batch) int64 {
	b.Helper()
	s := New(Config{Dir: dir, MaxBytes: 1 << 30})
	l := s.newLogs(7, origin, kv.Range{})
	if err := l.window.reach(2); err != nil {
		b.Fatal(err)
	}
	for _, x := range batches {
		if err := l.window.open(header{origin: origin, shard: 7}, 1<<30); err != nil {
			b.Fatal(err)
		}
		if err := l.window.add(b.Context(), kindBatch, x.Revision, func(out []byte) []byte { return appendBatch(out, x, l.window.after) }); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.window.flush(); err != nil {
		b.Fatal(err)
	}
	return l.window.appended
}

func BenchmarkSave(b *testing.B) {
	batches := filled(b, b.TempDir(), 64<<20)
	for b.Loop() {
		n := save(b, b.TempDir(), batches)
		b.SetBytes(n)
		b.ReportMetric(float64(n), "bytes/window")
	}
}

func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	n := len(filled(b, dir, 64<<20))
	for b.Loop() {
		s := New(Config{Dir: dir, MaxBytes: 1 << 30})
		h := s.Load(origin, map[shard.ID]kv.Range{7: {}})[7]
		if h == nil || len(h.Batches) != n {
			b.Fatalf("loaded %v", h != nil)
		}
		b.SetBytes(s.Status().Bytes)
	}
}
