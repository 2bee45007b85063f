package cache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/data/keytree"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// script is a Source that the test controls step by step.
type script struct {
	requests chan kv.FollowRequest
	steps    chan step
}

type step struct {
	update kv.Update
	err    error // ends this Follow
}

func newScript() *script {
	return &script{requests: make(chan kv.FollowRequest, 1000), steps: make(chan step)}
}

func (s *script) Follow(ctx context.Context, req kv.FollowRequest) iter.Seq2[kv.Update, error] {
	return func(yield func(kv.Update, error) bool) {
		s.requests <- req
		for {
			select {
			case <-ctx.Done():
				return
			case st := <-s.steps:
				if !yield(st.update, st.err) || st.err != nil {
					return
				}
			}
		}
	}
}

// play sends updates to the cache. It returns when the cache has applied all
// updates except the last.
func (s *script) play(updates ...kv.Update) {
	for _, u := range updates {
		s.steps <- step{update: u}
	}
}

var errLost = errors.New("the source is lost")

// lose ends the present Follow with err and returns the next request.
func (s *script) lose(tb testing.TB, err error) kv.FollowRequest {
	tb.Helper()
	s.steps <- step{err: err}
	return s.request(tb)
}

// request returns the next Follow's request.
func (s *script) request(tb testing.TB) kv.FollowRequest {
	tb.Helper()
	select {
	case r := <-s.requests:
		return r
	case <-time.After(deadline):
		tb.Fatal("the cache does not follow its source")
		panic("unreachable")
	}
}

// deadline fires when an expected condition has not occurred in time.
const deadline = 30 * time.Second

func begin(revision, floor kv.Revision) kv.Update {
	return kv.Update{Kind: kv.UpdateBegin, Revision: revision, Floor: floor}
}

func state(kvs ...*kv.KeyValue) kv.Update { return kv.Update{Kind: kv.UpdateState, KVs: kvs} }

func history(b kv.Batch) kv.Update {
	return kv.Update{Kind: kv.UpdateHistory, Revision: b.Revision, Batch: b}
}

func ready() kv.Update { return kv.Update{Kind: kv.UpdateReady} }

func live(b kv.Batch) kv.Update {
	return kv.Update{Kind: kv.UpdateBatch, Revision: b.Revision, Batch: b}
}

func progress(revision kv.Revision) kv.Update {
	return kv.Update{Kind: kv.UpdateProgress, Revision: revision}
}

func item(key, value string, revision kv.Revision) *kv.KeyValue {
	return kv.NewKeyValue(kv.Fields{Key: []byte(key), Value: []byte(value), CreateRevision: revision, ModRevision: revision, Version: 1})
}

func put(key string, revision kv.Revision) kv.Event {
	return kv.Event{Type: kv.Put, KV: item(key, fmt.Sprint("v", revision), revision)}
}

func del(key string, revision kv.Revision) kv.Event {
	return kv.Event{Type: kv.Delete, KV: kv.NewKeyValue(kv.Fields{Key: []byte(key), ModRevision: revision})}
}

func batch(revision kv.Revision, events ...kv.Event) kv.Batch {
	return kv.Batch{Revision: revision, Events: events, Received: time.Now()}
}

// puts returns a batch of one put for each key.
func puts(revision kv.Revision, keys ...string) kv.Batch {
	b := batch(revision)
	for _, k := range keys {
		b.Events = append(b.Events, put(k, revision))
	}
	return b
}

// small returns the Config of a test's cache of all keys, with bounds that only
// tests of them reach.
func small(source Source) Config {
	cfg := Defaults()
	cfg.Source = source
	return cfg
}

// run runs c until the test ends.
func run(tb testing.TB, c *Cache) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			tb.Error(err)
		}
	}()
	stop = func() { cancel(); <-done }
	tb.Cleanup(stop)
	return stop
}

// loaded returns a cache without a source that has loaded an empty state at
// revision; the test is its writer.
func loaded(cfg Config, revision kv.Revision) *Cache {
	c := New(cfg)
	c.load(keytree.New(), &Past{Progress: revision, Floor: revision + 1, DeltaFloor: revision + 1})
	return c
}

// follows waits until c has all events up to revision.
func follows(tb testing.TB, c *Cache, revision kv.Revision) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := c.WaitProgress(ctx, revision); err != nil {
		tb.Fatalf("waiting for revision %d, at %d: %v", revision, c.Progress(), err)
	}
}

// wakes counts calls of Wake.
type wakes struct{ n atomic.Int64 }

func (w *wakes) Wake() { w.n.Add(1) }

// watch returns a watcher or fails the test.
func watch(tb testing.TB, c *Cache, r kv.Range, from kv.Revision, waker Waker) *Watcher {
	tb.Helper()
	w, err := c.Watch(r, from, waker)
	if err != nil {
		tb.Fatalf("watch %v from %d: %v", r, from, err)
	}
	tb.Cleanup(w.Close)
	return w
}

// drain returns the revisions of all pending events.
func drain(tb testing.TB, w *Watcher) (out []kv.Revision) {
	tb.Helper()
	for {
		revision, _, err := w.Next(nil)
		if err != nil {
			tb.Fatalf("after %v: %v", out, err)
		}
		if revision == 0 {
			return out
		}
		out = append(out, revision)
	}
}

// all is every key.
var all = kv.Range{}

// waitersOf returns the number of waiters for progress of c.
func waitersOf(c *Cache) int {
	c.wakeups.mu.Lock()
	defer c.wakeups.mu.Unlock()
	return len(c.wakeups.waiting)
}
