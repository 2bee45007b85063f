package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// told formats a history as text.
func told(h LogPage) string {
	var out []string
	for _, b := range h.Batches {
		for _, e := range b.Events {
			s := fmt.Sprintf("%d:%s=%s", b.Revision, e.KV.Key(), e.KV.Value())
			if e.Type == kv.Delete {
				s = fmt.Sprintf("%d:-%s", b.Revision, e.KV.Key())
			}
			if e.Prev != nil {
				s += "<" + string(e.Prev.Value())
			}
			out = append(out, s)
		}
	}
	return strings.Join(out, " ")
}

// Every part of the past has exactly the written events.
func TestHistory(t *testing.T) {
	s := etcdtest.Start(t)
	cli := s.Client()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(cli.Put(t.Context(), "/a", "1"))                                                          // 2
	must(cli.Put(t.Context(), "/b", "1"))                                                          // 3
	must(cli.Txn(t.Context()).Then(clientv3.OpPut("/a", "2"), clientv3.OpDelete("/b")).Commit())   // 4
	must(cli.Put(t.Context(), "/z", "1"))                                                          // 5
	must(cli.Delete(t.Context(), "/a"))                                                            // 6
	must(cli.Txn(t.Context()).Then(clientv3.OpPut("/a", "3"), clientv3.OpPut("/z", "2")).Commit()) // 7
	c := newClient(t, testConfig(s.Endpoint()))
	ab := kv.Range{Start: "/a", End: "/c"}
	for _, x := range []struct {
		r    HistoryRequest
		want string
		next kv.Revision
	}{
		{HistoryRequest{Range: kv.Range{}, From: 1, Before: 8}, "2:/a=1 3:/b=1 4:/a=2 4:-/b 5:/z=1 6:-/a 7:/a=3 7:/z=2", 8},
		{HistoryRequest{Range: ab, From: 1, Before: 8, PrevKV: true}, "2:/a=1 3:/b=1 4:/a=2<1 4:-/b<1 6:-/a<2 7:/a=3", 8},
		{HistoryRequest{Range: ab, From: 4, Before: 7}, "4:/a=2 4:-/b 6:-/a", 7},
		{HistoryRequest{Range: kv.Single("/b"), From: 5, Before: 8}, "", 8},
		{HistoryRequest{Range: kv.Single("/q"), From: 2, Before: 5}, "", 5},
		{HistoryRequest{Range: kv.Range{}, From: 2, Before: 8, MaxBytes: 1}, "2:/a=1", 3},
	} {
		if x.r.MaxBytes == 0 {
			x.r.MaxBytes = 1 << 20
		}
		h, err := c.History(t.Context(), x.r)
		if err != nil || told(h) != x.want || h.Next != x.next {
			t.Errorf("%+v: %q, next %d, %v; want %q, next %d", x.r, told(h), h.Next, err, x.want, x.next)
		}
	}
	must(cli.Compact(t.Context(), 5))
	_, err := c.History(t.Context(), HistoryRequest{Range: ab, From: 4, Before: 7, MaxBytes: 1 << 20})
	var compacted *kv.CompactedError
	if !errors.As(err, &compacted) || compacted.Floor != 5 {
		t.Errorf("history below the compact revision: %v, want CompactedError with floor 5", err)
	}
	if n := c.Stats().WatchesOpen; n != 0 {
		t.Errorf("%d watches remain open", n)
	}
}

// Concurrent callers share streams, and each gets its own part. A caller that requests compacted revisions, or
// gives up, does not affect the others.
func TestHistoryHerd(t *testing.T) {
	const keys, askers = 50, 1500
	s := etcdtest.Start(t)
	cli := s.Client()
	for round := range 4 {
		for i := range keys {
			if _, err := cli.Put(t.Context(), fmt.Sprintf("/h/%02d", i), fmt.Sprint(round)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := cli.Compact(t.Context(), 1+keys); err != nil { // up to the end of round 0
		t.Fatal(err)
	}
	c := newClient(t, testConfig(s.Endpoint()))
	var all sync.WaitGroup
	for i := range askers {
		all.Go(func() {
			key := i % keys
			r := HistoryRequest{Range: kv.Single(fmt.Sprintf("/h/%02d", key)), From: 2 + keys, Before: 2 + 3*keys, MaxBytes: 1 << 20}
			first, second := 2+keys+key, 2+2*keys+key
			want := fmt.Sprintf("%d:/h/%02d=1 %d:/h/%02d=2", first, key, second, key)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			switch i % 10 {
			case 3:
				r.From = 2
			case 7:
				cancel()
			}
			h, err := c.History(ctx, r)
			var compacted *kv.CompactedError
			switch {
			case i%10 == 7 && errors.Is(err, context.Canceled):
			case i%10 == 3:
				if !errors.As(err, &compacted) || compacted.Floor != 1+keys {
					t.Errorf("a request for compacted revisions: %v, want CompactedError", err)
				}
			case err != nil || told(h) != want:
				t.Errorf("%q, %v; want %q", told(h), err, want)
			}
		})
	}
	all.Wait()
	if n := c.Stats().Histories; n > 20 {
		t.Errorf("%d streams for %d callers, want at most 20", n, askers)
	}
}

// If etcd refuses one request, only that request fails. Other requests on the same stream get their history.
func TestRefusedHistoryFailsAlone(t *testing.T) {
	s := etcdtest.Start(t)
	root := s.AuthOn()
	etcdtest.Permit(t, root, "ann", "/a/", "/a0")
	var first kv.Revision
	for i := range 3 {
		r, err := root.Put(t.Context(), fmt.Sprintf("/a/%d", i), "1")
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = kv.Revision(r.Header.Revision)
		}
	}
	cfg := testConfig(s.Endpoint())
	cfg.Username, cfg.Password = "ann", etcdtest.Password
	c := newClient(t, cfg)
	var batch []*pastRead
	for _, key := range []string{"/a/0", "/secret", "/a/1", "/a/2", "/other"} {
		batch = append(batch, &pastRead{
			HistoryRequest: HistoryRequest{Range: kv.Single(key), From: first, Before: first + 3, MaxBytes: 1 << 20},
			done:           make(chan struct{}),
		})
	}
	c.readTogether(t.Context(), batch)
	for i, one := range batch {
		if permitted := strings.HasPrefix(one.Range.Start, "/a/"); !permitted {
			if one.err == nil || !strings.Contains(one.err.Error(), "permission denied") {
				t.Errorf("%v: history %q, error %v, want permission denied", one.Range, told(one.history), one.err)
			}
			continue
		}
		if one.err != nil || len(one.history.Batches) != 1 || one.history.Next != first+3 {
			t.Errorf("request %d, %v: history %q, next %d, error %v", i, one.Range, told(one.history), one.history.Next, one.err)
		}
	}
}

// A response of up to 1,000 revisions is decoded up to the requested bytes and the end of a revision. The rest
// takes no memory, and the next part begins there.
func TestHistoryIsCutWithinAResponse(t *testing.T) {
	s := etcdtest.Start(t)
	const revisions, keys = 40, 3
	for i := range revisions {
		var ops []clientv3.Op
		for k := range keys {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("/%d", k), fmt.Sprint(i)+strings.Repeat("v", 1000)))
		}
		if _, err := s.Client().Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	c := newClient(t, testConfig(s.Endpoint()))
	for next, parts := kv.Revision(2), 0; next < revisions+2; parts++ {
		h, err := c.History(t.Context(), HistoryRequest{From: next, Before: revisions + 2, MaxBytes: 10 << 10})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(h.Batches); n == 0 || n > 5 || h.Next != next+kv.Revision(n) {
			t.Fatalf("%d revisions from %d, next %d", n, next, h.Next)
		}
		for i, b := range h.Batches {
			if b.Revision != next+kv.Revision(i) || len(b.Events) != keys {
				t.Errorf("revision %d has %d events, want %d at %d", b.Revision, len(b.Events), keys, next+kv.Revision(i))
			}
		}
		next = h.Next
	}
}

// A part of the past whose response exceeds the message limit is fetched in fragments, so that a watch of large
// values catches up.
func TestHistoryOfLargeValues(t *testing.T) {
	s := etcdtest.Start(t)
	value := strings.Repeat("v", 1<<20)
	for i := range 8 {
		if _, err := s.Client().Put(t.Context(), fmt.Sprintf("/%d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	cfg := testConfig(s.Endpoint())
	cfg.MaxResponseBytes = 4 << 20 // the minimum
	c := newClient(t, cfg)
	h, err := c.History(t.Context(), HistoryRequest{From: 2, Before: 10, MaxBytes: 3 << 20})
	if err != nil || len(h.Batches) != 3 || h.Next != 5 {
		t.Errorf("%d revisions, next %d, %v; want 3, next 5", len(h.Batches), h.Next, err)
	}
	if n := c.Stats().Histories; n != 2 {
		t.Errorf("%d streams for the first part, want 2: unfragmented, then in fragments", n)
	}
	// Each stream makes etcd read its log. The next parts are requested in fragments at once.
	for _, from := range []kv.Revision{5, 2} {
		before := c.Stats().Histories
		if h, err := c.History(t.Context(), HistoryRequest{From: from, Before: 10, MaxBytes: 3 << 20}); err != nil || len(h.Batches) != 3 {
			t.Errorf("%d revisions from %d, %v; want 3", len(h.Batches), from, err)
		}
		if n := c.Stats().Histories - before; n != 1 {
			t.Errorf("%d streams for the part from %d, want 1", n, from)
		}
	}
}

// A page that is smaller than one value contains the revision of that value, even if etcd sends it in one fragment
// together with the next value. A reader of the pages thus makes progress.
func TestSmallPagesOfLargeValues(t *testing.T) {
	s := etcdtest.Start(t)
	const values = 8
	value := strings.Repeat("v", 700<<10) // two in a fragment of 2 MiB
	for i := range values {
		if _, err := s.Client().Put(t.Context(), fmt.Sprintf("/%d", i), value); err != nil {
			t.Fatal(err)
		}
	}
	cfg := testConfig(s.Endpoint())
	cfg.MaxResponseBytes = 4 << 20 // the minimum
	c := newClient(t, cfg)
	for next := kv.Revision(2); next < 2+values; next++ {
		h, err := c.History(t.Context(), HistoryRequest{From: next, Before: 2 + values, MaxBytes: 512 << 10})
		if err != nil || len(h.Batches) != 1 || h.Batches[0].Revision != next || h.Next != next+1 {
			t.Fatalf("%d revisions from %d, next %d, %v; want one revision", len(h.Batches), next, h.Next, err)
		}
	}
	if n := c.Stats().Histories; n != values+1 {
		t.Errorf("%d streams for %d pages, want one more: only the first attempt is unfragmented", n, values)
	}
}

// A large response is expected only for the range of revisions in which one was seen.
func TestLargePast(t *testing.T) {
	at := func(from ...kv.Revision) (batch []*pastRead) {
		for _, r := range from {
			batch = append(batch, &pastRead{HistoryRequest: HistoryRequest{From: r}})
		}
		return batch
	}
	s := spanOf(at(50, 20, 70))
	for _, x := range []struct {
		batch []*pastRead
		want  bool
	}{{at(19), false}, {at(20), true}, {at(1069), true}, {at(1070), false}, {at(1, 60, 2000), true}, {at(1, 2000), false}} {
		if got := s.touches(x.batch); got != x.want {
			t.Errorf("a batch from %d may have a large response: %v, want %v", x.batch[0].From, got, x.want)
		}
	}
	if (pastSpan{}).touches(at(0, 1)) {
		t.Error("a large response is expected before any was seen")
	}
}
