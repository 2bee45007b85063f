package router_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// elsewhere is a connection to a node that lists the keys of a history, once let allows it.
type elsewhere struct {
	grpc.ClientConnInterface
	h    *cachetest.Script
	let  chan error // the result of each stream, if not nil
	asks atomic.Int64
	old  bool // the node returns no count
}

func (e *elsewhere) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &listing{ctx: ctx, e: e}, nil
}

// listing is a List stream.
type listing struct {
	grpc.ClientStream
	ctx  context.Context
	e    *elsewhere
	req  *shardwatchv1.ListRequest
	left []*wire.Encoded
}

func (l *listing) SendMsg(m any) error { l.req = m.(*shardwatchv1.ListRequest); return nil }
func (l *listing) CloseSend() error    { return nil }

func (l *listing) RecvMsg(m any) error {
	if l.left == nil {
		l.e.asks.Add(1)
		if l.e.let != nil {
			select {
			case err := <-l.e.let:
				if err != nil {
					return err
				}
			case <-l.ctx.Done():
				return l.ctx.Err()
			}
		}
		rng, err := kv.RangeFromEtcd(l.req.GetKey(), l.req.GetRangeEnd())
		if err != nil {
			return err
		}
		at := kv.Revision(l.req.GetRevision())
		items := l.e.h.State(rng, at)
		count := int64(len(items))
		if l.req.GetCountOnly() {
			items = nil
		} else if n := l.req.GetLimit(); n > 0 && n < count {
			items = items[:n]
		}
		if l.e.old {
			count = -1
		}
		for chunk := range slices.Chunk(items, 2) {
			l.left = append(l.left, wire.ListChunk(at, kv.HistoryID{Cluster: "test", Lineage: 1}, chunk))
		}
		l.left = append(l.left, wire.ListEnd(at, kv.HistoryID{Cluster: "test", Lineage: 1}, nil, count, -1), nil)
	}
	next := l.left[0]
	if l.left = l.left[1:]; next == nil {
		return io.EOF
	}
	m.(*wire.Encoded).Buffers = next.Buffers
	return nil
}

// herd runs f with a node that has the shards 1 and 3 of a history of ten keys, and another
// node that has shard 2.
func herd(t *testing.T, f func(t *testing.T, r *router.Router, e *elsewhere, h *cachetest.Script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		for i := range 10 {
			h.Commit(cachetest.Put(string(rune('a'+i)), fmt.Sprint(i)))
		}
		m := cachetest.Map(1, []string{"d", "h"}, "here")
		m.Shards[1].Replicas = []shard.NodeID{"there"}
		n := cachetest.NewNode("here", h, nil)
		defer n.Stop()
		e := &elsewhere{h: h}
		n.Connect("there", e)
		n.Use(m)
		<-n.Replica(1).Ready()
		<-n.Replica(3).Ready()
		f(t, router.New(router.Config{Shards: n, Clock: h, Self: "here"}), e, h)
	})
}

// scan returns the keys that a scan finds, and the count.
func scan(ctx context.Context, r *router.Router, req router.ReadRequest, o router.ScanOptions) (keys string, count int64, err error) {
	reading, err := r.Read(ctx, req)
	if err != nil {
		return "", 0, err
	}
	count, err = reading.Scan(ctx, o, func(item *kv.KeyValue) error {
		keys += string(item.Key())
		return nil
	})
	return keys, count, err
}

func TestScan(t *testing.T) {
	herd(t, func(t *testing.T, r *router.Router, e *elsewhere, h *cachetest.Script) {
		for limit, want := range map[int64]string{
			0: "abcdefghij", 1: "a", 3: "abc", 4: "abcd", 5: "abcde", 7: "abcdefg", 8: "abcdefgh", 10: "abcdefghij", 11: "abcdefghij", -1: "",
		} {
			keys, count, err := scan(t.Context(), r, router.ReadRequest{}, router.ScanOptions{Limit: limit})
			if err != nil || keys != want || count != 10 {
				t.Errorf("limit %d: %q of %d, %v", limit, keys, count, err)
			}
		}
		for _, c := range []struct {
			r    kv.Range
			want string
		}{
			{kv.Single("b"), "b"},
			{kv.Single("e"), "e"},
			{kv.Single("ee"), ""},
			{kv.Single("bb"), ""},
			{kv.Range{Start: "c", End: "f"}, "cde"},
			{kv.Range{Start: "e", End: "ea"}, "e"},
			{kv.Range{Start: "x"}, ""},
		} {
			keys, count, err := scan(t.Context(), r, router.ReadRequest{Range: c.r}, router.ScanOptions{})
			if err != nil || keys != c.want || count != int64(len(c.want)) {
				t.Errorf("%v: %q of %d, %v", c.r, keys, count, err)
			}
		}
		fetched := ""
		keys, _, err := scan(t.Context(), r, router.ReadRequest{}, router.ScanOptions{Fetched: func(item *kv.KeyValue) error {
			fetched += string(item.Key())
			return nil
		}})
		if err != nil || fetched == "" || len(fetched) >= len(keys) || !strings.Contains(keys, fetched) {
			t.Errorf("got %q of %q as keys from another node, %v", fetched, keys, err)
		}
		if _, _, err := scan(t.Context(), r, router.ReadRequest{}, router.ScanOptions{Fetched: func(*kv.KeyValue) error { return io.ErrShortBuffer }}); !errors.Is(err, io.ErrShortBuffer) {
			t.Errorf("without room for a key of another node: %v", err)
		}
		seen, waited := 0, ""
		reading, err := r.Read(t.Context(), router.ReadRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reading.Scan(t.Context(), router.ScanOptions{Waits: func() { waited += fmt.Sprint(seen) }}, func(*kv.KeyValue) error { seen++; return nil }); err != nil || waited != "3" {
			t.Errorf("waits for the other node after %s keys, want 3 of 10, %v", waited, err)
		}
		h.Commit(cachetest.Delete("e"), cachetest.Delete("b"))
		stop := errors.New("enough")
		if reading, err = r.Read(t.Context(), router.ReadRequest{}); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{"a", "d", "f", "j"} {
			if _, err := reading.Scan(t.Context(), router.ScanOptions{}, func(item *kv.KeyValue) error {
				if string(item.Key()) == at {
					return stop
				}
				return nil
			}); !errors.Is(err, stop) {
				t.Errorf("stopped at %s: %v", at, err)
			}
		}
		if count, err := reading.Count(t.Context()); err != nil || count != 8 || reading.Here() {
			t.Errorf("%d keys, here %v, %v", count, reading.Here(), err)
		}
		e.old = true
		if _, _, err := scan(t.Context(), r, router.ReadRequest{}, router.ScanOptions{}); err == nil {
			t.Error("the scan accepted an answer without a count")
		}
	})
}

// Concurrent lists of a remote shard fetch it once.
func TestAHerdFetchesOnce(t *testing.T) {
	herd(t, func(t *testing.T, r *router.Router, e *elsewhere, h *cachetest.Script) {
		e.let = make(chan error)
		at := router.ReadRequest{Revision: h.Now(), Exists: true}
		done := make(chan error)
		ask := func(ctx context.Context, req router.ReadRequest, limit int64) {
			go func() {
				keys, count, err := scan(ctx, r, req, router.ScanOptions{Limit: limit})
				if err == nil && (keys != "abcdefghij" || count != 10) {
					err = fmt.Errorf("%q of %d", keys, count)
				}
				done <- err
			}()
			synctest.Wait() // in this order
		}
		asked := func(what string, want int64) {
			t.Helper()
			synctest.Wait()
			if got := e.asks.Swap(0); got != want {
				t.Errorf("%s: the other node was asked %d times, want %d", what, got, want)
			}
		}
		const all = 30
		for range all {
			ask(t.Context(), at, 0)
		}
		asked("a herd", 1)
		e.let <- nil
		for range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		asked("afterwards", 0)

		// The first caller gives up; the others still get the list.
		gone, cancel := context.WithCancel(t.Context())
		ask(gone, at, 0)
		ask(t.Context(), at, 0)
		ask(t.Context(), at, 0)
		asked("one that will give up", 1)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that gave up: %v", err)
		}
		asked("the others", 1)
		e.let <- nil
		if a, b := <-done, <-done; a != nil || b != nil {
			t.Errorf("the other callers: %v, %v", a, b)
		}
		// A later caller gives up, which does not affect the others.
		gone, cancel = context.WithCancel(t.Context())
		ask(t.Context(), at, 0)
		ask(gone, at, 0)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that gave up: %v", err)
		}
		e.let <- nil
		if err := <-done; err != nil {
			t.Error(err)
		}
		e.asks.Store(0)

		// All concurrent callers get the failure; the next caller fetches again.
		ask(t.Context(), at, 0)
		ask(t.Context(), at, 0)
		e.let <- errors.New("broken")
		if a, b := <-done, <-done; a == nil || b == nil {
			t.Errorf("from a failing node: %v, %v", a, b)
		}
		asked("a failure", 1)
		ask(t.Context(), at, 0)
		asked("after a failure", 1)
		e.let <- nil
		if err := <-done; err != nil {
			t.Error(err)
		}

		// At most two big fetches run at a time; small fetches have no limit.
		for i := range kv.Revision(5) {
			h.Commit(cachetest.Put("a", "x"))
			ask(t.Context(), router.ReadRequest{Revision: at.Revision + i, Exists: true}, 0)
		}
		asked("five revisions", 2)
		for i := range kv.Revision(5) {
			ask(t.Context(), router.ReadRequest{Revision: at.Revision + i, Exists: true}, 100)
		}
		asked("five small ones", 5)
		for range 10 {
			e.let <- nil
		}
		for range 10 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		asked("the others of the five", 3)
	})
}
