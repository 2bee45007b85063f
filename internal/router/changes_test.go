package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// content reads a Body to its end in chunks of some bytes.
func content(t *testing.T, b *router.Body, bytes int) (changed, deleted []string, chunks int) {
	t.Helper()
	var at router.Place
	for !b.End(at) {
		chunk, next := b.Chunk(at, bytes)
		again, _ := b.Chunk(at, bytes)
		if len(again.KVs) != len(chunk.KVs) || len(again.Deleted) != len(chunk.Deleted) {
			t.Fatalf("the chunk at %+v differs on the second read", at)
		}
		for _, item := range chunk.KVs {
			changed = append(changed, string(item.Key()))
		}
		deleted = append(deleted, chunk.Deleted...)
		if chunks++; chunks > 1000 {
			t.Fatal("the Body does not end")
		}
		at = next
	}
	if chunk, _ := b.Chunk(at, bytes); len(chunk.KVs)+len(chunk.Deleted) > 0 {
		t.Errorf("after the end: %+v", chunk)
	}
	return changed, deleted, chunks
}

// A Body contains each key once, regardless of the size of the chunks.
func TestABodyIsReadInChunks(t *testing.T) {
	var items []*kv.KeyValue
	var want, gone []string
	for i := range 7 {
		key := fmt.Sprintf("k%d", i)
		items = append(items, kv.NewKeyValue(kv.Fields{Key: []byte(key), Value: []byte("v"), ModRevision: 5, CreateRevision: 5, Version: 1}))
		want, gone = append(want, key), append(gone, fmt.Sprintf("g%d", i))
	}
	size := len(items[0].Encoded())
	b := router.NewBody(3, 9, items, gone)
	if b.Lineage != 3 || b.Revision != 9 {
		t.Errorf("%+v", b)
	}
	sizes := slices.Concat(slices.Repeat([]int{size}, len(items)), slices.Repeat([]int{2}, len(gone)))
	for _, bytes := range []int{1, 2, 3, size - 1, size, size + 1, 3 * size, 7 * size, 7*size + 1, 7*size + 3, 1 << 20} {
		changed, deleted, chunks := content(t, b, bytes)
		if !slices.Equal(changed, want) || !slices.Equal(deleted, gone) {
			t.Errorf("%d bytes a chunk: %v and %v", bytes, changed, deleted)
		}
		due := 0
		for i := 0; i < len(sizes); due++ { // each chunk ends with the item that fills it
			for left := bytes; left > 0 && i < len(sizes); i++ {
				left -= sizes[i]
			}
		}
		if chunks != due {
			t.Errorf("%d bytes a chunk: %d chunks, want %d", bytes, chunks, due)
		}
	}
	if b := router.NewBody(1, 1, nil, nil); b.End(router.Place{}) {
		t.Error("Chunk must skip an empty section")
	}
}

// Hold reads the keys of all shards, in order, at one revision.
func TestHoldHasAllShards(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		at := n.h.Now()
		g, err := n.r.Read(t.Context(), router.ReadRequest{Range: kv.Range{Start: "b", End: "j"}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := g.Hold(t.Context())
		if err != nil || b.Revision != at || b.Lineage != 1 {
			t.Fatalf("%+v, %v", b, err)
		}
		n.h.Commit(cachetest.Put("c", "later"))
		synctest.Wait()
		for _, bytes := range []int{1, 20, 45, 1 << 20} {
			if changed, deleted, _ := content(t, b, bytes); !slices.Equal(changed, []string{"b", "c", "d", "e", "f", "g", "h", "i"}) || deleted != nil {
				t.Errorf("%d bytes a chunk: %v and %v", bytes, changed, deleted)
			}
		}
		n.y.answer = func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			return nil, status.Error(codes.Unavailable, "y is away, too")
		}
		if g, err = n.r.Read(t.Context(), router.ReadRequest{}); err != nil {
			t.Fatal(err)
		}
		_, err = g.Hold(t.Context())
		unavailable(t, "with a shard that no node has", err, kv.NotReady, "node y does not answer")
	})
}

// Changes include all shards. If a local shard does not reach back far enough, another node
// is asked for it; if that fails too, the error has the highest floor.
func TestChangesOfSeveralShards(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		since := n.h.Now()
		n.h.Commit(cachetest.Put("b", "new"), cachetest.Delete("c"))
		n.h.Commit(cachetest.Put("k", "new"), cachetest.Delete("i"))
		now := n.h.Now()
		var gap kv.Revision // y has the deletes from this revision on
		n.y.answer = func(_ int, req *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			if behind := kv.Revision(req.GetChangedSince()); behind+1 < gap {
				return nil, wire.Status(&kv.CompactedError{Requested: behind + 1, Floor: gap})
			}
			return []*wire.Encoded{
				wire.ListChunk(now, lineage(1), n.h.State(kv.Single("e"), now)), wire.ListDeleted(now, lineage(1), []string{"f"}), wire.ListEnd(now, lineage(1), nil, -1, -1),
			}, nil
		}
		changes := func(req router.ReadRequest, since kv.Revision) (*router.Body, error) {
			n.y.asked = nil
			g, err := n.r.Read(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return g.Changes(t.Context(), since)
		}
		b, err := changes(router.ReadRequest{}, since)
		if err != nil || b.Revision != now || b.Lineage != 1 {
			t.Fatalf("%+v, %v", b, err)
		}
		if req := n.y.asked[0]; req.GetChangedSince() != int64(since) || req.GetRevision() != int64(now) || string(req.GetKey()) != "d" || string(req.GetRangeEnd()) != "h" {
			t.Errorf("y was asked for %v", req)
		}
		for _, bytes := range []int{1, 60, 1 << 20} {
			changed, deleted, _ := content(t, b, bytes)
			if !slices.Equal(changed, []string{"b", "e", "k"}) || !slices.Equal(deleted, []string{"c", "f", "i"}) {
				t.Errorf("%d bytes a chunk: %v and %v", bytes, changed, deleted)
			}
		}
		if _, err = changes(router.ReadRequest{Range: away}, 0); compactedAt(err, 1) != 2 || len(n.y.asked) > 0 {
			t.Errorf("since 0: %v; y was asked %d times", err, len(n.y.asked))
		}
		var future *kv.FutureError
		if _, err = changes(router.ReadRequest{Range: inFirst}, now+1); !errors.As(err, &future) || future.Requested != now+1 || future.Current != now {
			t.Errorf("since a future revision: %v", err)
		}

		// The caches were loaded at since: they do not have the earlier deletes.
		if _, err = changes(router.ReadRequest{Range: inFirst}, since-1); compactedAt(err, since) != since+1 {
			t.Errorf("too far back: %v", err)
		}
		gap = since + 2
		if _, err = changes(router.ReadRequest{Range: kv.Range{Start: "a", End: "h"}}, since-1); compactedAt(err, since) != gap {
			t.Errorf("too far back here, and further on another node: %v", err)
		}
		if _, err = changes(router.ReadRequest{Range: kv.Range{Start: "e"}}, since-1); compactedAt(err, since) != gap {
			t.Errorf("too far back, with the remote shard first: %v", err)
		}
		n.pretend.Shards[0].Replicas = []shard.NodeID{"here", "y"}
		if _, err = changes(router.ReadRequest{Range: inFirst}, since-1); compactedAt(err, since) != since+1 || len(n.y.asked) != 1 {
			t.Errorf("too far back at y, too: %v; asked %d times", err, len(n.y.asked))
		}
		gap = 0
		if _, err = changes(router.ReadRequest{Range: inFirst, Local: true}, since-1); compactedAt(err, since) != since+1 || len(n.y.asked) > 0 {
			t.Errorf("for a caller that is a node: %v; y was asked %d times", err, len(n.y.asked))
		}
		if b, err = changes(router.ReadRequest{Range: inFirst}, since-1); err != nil || len(n.y.asked) != 1 {
			t.Fatalf("from y: %v", err)
		}
		if changed, deleted, _ := content(t, b, 1); !slices.Equal(changed, []string{"e"}) || !slices.Equal(deleted, []string{"f"}) {
			t.Errorf("from y: %v and %v", changed, deleted)
		}
		n.y.answer = func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			return []*wire.Encoded{wire.ListEnd(now, lineage(2), nil, -1, -1)}, nil
		}
		var gone *kv.CompactedError
		n.x.answer = func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			return nil, wire.Status(&kv.CompactedError{Requested: now, Floor: now + 5})
		}
		n.pretend.Shards[1].Replicas = []shard.NodeID{"x"}
		if _, err = changes(router.ReadRequest{Range: away, Revision: now}, since); !errors.As(err, &gone) || gone.Requested != now || gone.Floor != now+5 {
			t.Errorf("the requested revision is gone: %v", err)
		}
		_, err = changes(router.ReadRequest{Range: away}, since)
		unavailable(t, "the chosen revision is gone", err, kv.NotReady, "was dropped before it was read")
		n.pretend.Shards[1].Replicas = []shard.NodeID{"y"}
		var other *kv.LineageError
		if _, err = changes(router.ReadRequest{Range: away}, since); !errors.As(err, &other) {
			t.Errorf("from another lineage: %v", err)
		}
	})
}

// compactedAt returns the floor of a *kv.CompactedError that requests a revision.
func compactedAt(err error, requested kv.Revision) kv.Revision {
	var c *kv.CompactedError
	if errors.As(err, &c) && c.Requested == requested {
		return c.Floor
	}
	return 0
}

// If the local copies retire while their changes are read, the caller gets a temporary error.
func TestChangesOfACopyThatRetires(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		g, err := n.r.Read(t.Context(), router.ReadRequest{Range: inFirst})
		if err != nil {
			t.Fatal(err)
		}
		n.Stop()
		synctest.Wait()
		_, err = g.Changes(t.Context(), g.Revision)
		unavailable(t, "of a copy that is retired", err, kv.NotReady, "shard 1")
	})
}

// A fetch releases its slot, also after a failure, and a finished fetch is not shared.
func TestFetchesReleaseTheirSlots(t *testing.T) {
	reading(t, func(t *testing.T, n *reads) {
		n.pretend.Shards[1].Replicas = []shard.NodeID{"y"}
		scanAway := func(ctx context.Context, at kv.Revision) error {
			g, err := n.r.Read(ctx, router.ReadRequest{Range: away, Revision: at, Exists: true})
			if err != nil {
				return err
			}
			_, err = g.Scan(ctx, router.ScanOptions{}, func(*kv.KeyValue) error { return nil })
			return err
		}
		sound := n.y.answer
		n.y.answer = func(int, *shardwatchv1.ListRequest) ([]*wire.Encoded, error) {
			return nil, status.Error(codes.Internal, "broken")
		}
		for range 5 {
			if err := scanAway(t.Context(), n.h.Now()); err == nil {
				t.Error("a node that is broken")
			}
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		time.Sleep(time.Nanosecond)
		_ = scanAway(gone, n.h.Now())
		n.y.answer, n.y.asked = sound, nil
		for range 5 {
			if err := scanAway(t.Context(), n.h.Now()); err != nil {
				t.Error(err)
			}
		}
		if len(n.y.asked) != 5 {
			t.Errorf("asked %d times for five fetches, one after the other", len(n.y.asked))
		}
		if live, places := n.r.Fetches(); live+places != 0 {
			t.Errorf("%d fetches and %d slots are left", live, places)
		}
	})
}
