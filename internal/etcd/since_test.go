package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// began returns the updates of a Follow with From 0 up to ready.
func began(t *testing.T, c *Client, req kv.FollowRequest) (begin kv.Update, keys int, past LogPage) {
	t.Helper()
	f := follow(t, c, req)
	defer f.stop()
	begin = f.next()
	for u := f.next(); u.Kind != kv.UpdateReady; u = f.next() {
		switch u.Kind {
		case kv.UpdateState:
			keys += len(u.KVs)
		case kv.UpdateHistory:
			past.Batches = append(past.Batches, u.Batch)
		default:
			t.Fatalf("an update of kind %d before ready", u.Kind)
		}
	}
	return begin, keys, past
}

// A follower that knows the history up to some revision gets the history since then, as far back as etcd has it,
// or an indication that it is unknown.
func TestFollowDeliversTheHistorySince(t *testing.T) {
	s := etcdtest.Start(t)
	cli := s.Client()
	for _, op := range []clientv3.Op{
		clientv3.OpPut("/a", "1"), clientv3.OpPut("/a", "2"), clientv3.OpPut("/q", "1"), // 2, 3, 4
		clientv3.OpDelete("/a"), clientv3.OpPut("/b", "1"), clientv3.OpPut("/b", "2"), // 5, 6, 7
	} {
		if _, err := cli.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	r := kv.Range{Start: "/a", End: "/c"}
	for _, x := range []struct {
		name    string
		from    kv.Revision
		tune    func(*Config)
		compact int64
		floor   kv.Revision
		past    string
	}{
		{"no history requested", 0, nil, 0, 8, ""},
		{"from the beginning", 2, nil, 0, 2, "2:/a=1 3:/a=2<1 5:-/a<2 6:/b=1 7:/b=2<1"},
		{"a part", 5, nil, 0, 5, "5:-/a<2 6:/b=1 7:/b=2<1"},
		{"nothing of the range", 4, func(c *Config) { c.MaxHistory = 4 }, 0, 4, "5:-/a<2 6:/b=1 7:/b=2<1"},
		{"up to date", 8, nil, 0, 8, ""},
		{"too long: the newest part of it", 2, func(c *Config) { c.MaxHistory = 3 }, 0, 5, "5:-/a<2 6:/b=1 7:/b=2<1"},
		{"no history allowed", 2, func(c *Config) { c.MaxHistory = 0 }, 0, 8, ""},
		{"too large", 2, func(c *Config) { c.MaxHistoryBytes = 300 }, 0, 8, ""},
		{"in pieces", 2, func(c *Config) { c.MaxHistoryBytes = 3000 }, 0, 2, "2:/a=1 3:/a=2<1 5:-/a<2 6:/b=1 7:/b=2<1"},
		{"previous values are compacted", 5, nil, 5, 6, "6:/b=1 7:/b=2<1"},
		{"just after compaction", 6, nil, 5, 6, "6:/b=1 7:/b=2<1"},
		{"compacted", 4, nil, 5, 6, "6:/b=1 7:/b=2<1"},
		{"compacted, and the rest is too large", 4, func(c *Config) { c.MaxHistoryBytes = 100 }, 5, 8, ""},
		{"all is compacted", 4, nil, 7, 8, ""},
	} {
		cfg := testConfig(s.Endpoint())
		if x.tune != nil {
			x.tune(&cfg)
		}
		if x.compact > 0 {
			_, _ = cli.Compact(t.Context(), x.compact) // more than once is an error
		}
		begin, keys, past := began(t, newClient(t, cfg), kv.FollowRequest{Range: r, HistoryFrom: x.from})
		if begin.Revision != 7 || begin.Floor != x.floor || told(past) != x.past || keys != 1 {
			t.Errorf("%s: history %q from %d on, revision %d with %d keys; want %q from %d on, revision 7 with 1", x.name, told(past), begin.Floor, begin.Revision, keys, x.past, x.floor)
		}
	}
	for from, logged := range map[kv.Revision]bool{1: false, 4: true, 5: false} {
		cfg := testConfig(s.Endpoint())
		var log strings.Builder
		cfg.MaxHistory, cfg.Logger = 3, slog.New(slog.NewTextHandler(&log, nil))
		_, _, _ = began(t, newClient(t, cfg), kv.FollowRequest{Range: r, HistoryFrom: from})
		if got := strings.Contains(log.String(), "it has more than 3 revisions"); got != logged {
			t.Errorf("history from %d, and at most 3 revisions: logged %v\n%s", from, got, &log)
		}
	}
	err := follow(t, newClient(t, testConfig(s.Endpoint())), kv.FollowRequest{Range: r, HistoryFrom: 9}).failure()
	if !errors.Is(err, kv.ErrOtherHistory) {
		t.Errorf("a request for history from 9, with etcd at 7: %v, want ErrOtherHistory", err)
	}
}

// The histories of many shards share few streams.
func TestHistoriesAfterListsShareStreams(t *testing.T) {
	s := etcdtest.Start(t)
	const shards, each = 16, 200
	for i := range each {
		fill(t, s.Client(), shards, func(n int) string { return fmt.Sprintf("/%02d/k", n) }, fmt.Sprint(i))
	}
	c := newClient(t, testConfig(s.Endpoint()))
	done := make(chan string, shards)
	for i := range shards {
		go func() {
			n, floor := 0, kv.Revision(0)
			for u, err := range c.Follow(context.Background(), kv.FollowRequest{Range: kv.Prefix(fmt.Sprintf("/%02d/", i)), HistoryFrom: 3}) {
				if err != nil {
					done <- err.Error()
					return
				}
				switch u.Kind {
				case kv.UpdateBegin:
					floor = u.Floor
				case kv.UpdateHistory:
					n++
				}
				if u.Kind == kv.UpdateReady {
					break
				}
			}
			done <- fmt.Sprintf("history of %d batches from %d", n, floor)
		}()
	}
	for range shards {
		if got := <-done; got != fmt.Sprintf("history of %d batches from 3", each-1) {
			t.Error(got)
		}
	}
	if n := c.Stats(); n.Histories > shards || n.Lists != shards {
		t.Errorf("%d history streams and %d lists for %d shards", n.Histories, n.Lists, shards)
	}
}

// counted are permits that record their purposes.
type counted struct {
	Permits
	asked chan string
}

func (c *counted) Acquire(ctx context.Context, purpose string) (func(), error) {
	c.asked <- purpose
	return c.Permits.Acquire(ctx, purpose)
}

// Lists, leaps, history and long catch-ups wait for permits, and release them. A watch that is not far behind
// needs no permit.
func TestPermits(t *testing.T) {
	s := etcdtest.Start(t)
	for i := range 40 {
		if _, err := s.Client().Put(t.Context(), "/p/k", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	cfg := testConfig(s.Endpoint())
	cfg.FreeCatchUp = 20
	c := newClient(t, cfg)
	one := NewLocalPermits(1)
	permits := &counted{one, make(chan string, 100)}
	c.SetPermits(permits)
	all := kv.Prefix("/p/")
	held := state{}
	for want, req := range map[string]kv.FollowRequest{
		"list":     {Range: all},
		"leap":     {Range: all, Held: held.held(), HeldAt: 1},
		"history":  {Range: all, HistoryFrom: 30},
		"catch up": {Range: all, From: 5},
		"":         {Range: all, From: 30},
	} {
		one <- struct{}{} // the only permit is in use
		f := follow(t, c, req)
		if want == "" {
			f.ready()
			f.nextOf(kv.UpdateBatch)
			<-one
			f.stop()
			continue
		}
		if purpose := <-permits.asked; !strings.HasPrefix(purpose, strings.Replace(want, "history", "list", 1)) {
			t.Errorf("%s: requested a permit for %q", want, purpose)
		}
		select {
		case u := <-f.updates:
			t.Errorf("%s: an update without a permit: %+v", want, u)
		default:
		}
		<-one
		if want == "history" {
			if purpose := <-permits.asked; purpose != "read history" {
				t.Errorf("history: requested a permit for %q", purpose)
			}
			began := f.next()
			if began.Floor != 30 {
				t.Errorf("history from %d", began.Floor)
			}
		} else {
			f.ready()
		}
		if want == "catch up" {
			for f.nextOf(kv.UpdateBatch).Revision < 41 {
				continue
			}
		}
		testkit.Eventually(t, want+": the permit is back", func() bool { return len(one) == 0 })
		f.stop()
	}
	if len(permits.asked) > 0 {
		t.Errorf("an unexpected request for a permit for %q", <-permits.asked)
	}
	if n := c.Stats().FarBehind; n != 1 {
		t.Errorf("%d watches were far behind, want 1", n)
	}

	// A caller that stops while it waits for a permit leaves nothing behind.
	one <- struct{}{}
	for _, req := range []kv.FollowRequest{{Range: all}, {Range: all, Held: held.held(), HeldAt: 1}, {Range: all, From: 5}} {
		f := follow(t, c, req)
		<-permits.asked
		f.stop()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.History(ctx, HistoryRequest{Range: all, From: 5, Before: 9, MaxBytes: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("History with a cancelled context: %v", err)
	}
	if n := c.Stats().WatchesOpen; n != 0 || len(one) != 1 {
		t.Errorf("%d watches open, want none; %d permits in use, want the test's own", n, len(one))
	}
}
