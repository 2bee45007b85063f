package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// grow adds revisions, and returns the last one.
func grow(t *testing.T, cli *clientv3.Client, n int) (now int64) {
	t.Helper()
	for range n {
		r, err := cli.Put(t.Context(), "/v", "x")
		if err != nil {
			t.Fatal(err)
		}
		now = r.Header.Revision
	}
	return now
}

// says returns the result of CheckRevision as text.
func says(now kv.Revision, err error) string {
	var compacted *kv.CompactedError
	var future *kv.FutureError
	switch {
	case errors.As(err, &compacted):
		return fmt.Sprintf("%d: compacted to %d", compacted.Requested, compacted.Floor)
	case errors.As(err, &future):
		return fmt.Sprintf("%d: future of %d", future.Requested, future.Current)
	case err != nil:
		return err.Error()
	}
	return fmt.Sprintf("now %d", now)
}

// CheckRevision agrees with etcd's own Range at the revision, around the compact and
// the current revision.
func TestCheckRevision(t *testing.T) {
	s := etcdtest.Start(t)
	cli := s.Client()
	for _, probe := range []string{"\x00", "/v", "/other"} { // with and without events for the watch to catch up
		cfg := testConfig(s.Endpoint())
		cfg.ProbeKey = probe
		c := newClient(t, cfg)
		want := func(revision kv.Revision, want string) {
			t.Helper()
			if got := says(c.CheckRevision(t.Context(), revision)); got != want {
				t.Errorf("probe key %q, revision %d: %s, want %s", probe, revision, got, want)
			}
		}
		now := grow(t, cli, 10)
		current := fmt.Sprint("now ", now)
		if probe == "\x00" { // before the first compaction
			want(1, current)
		}
		want(0, current)
		want(-1, current)
		want(kv.Revision(now), current)
		want(kv.Revision(now)+1, fmt.Sprintf("%d: future of %d", now+1, now))
		want(1<<62, fmt.Sprintf("%d: future of %d", 1<<62, now))

		floor := now - 3
		if _, err := cli.Compact(t.Context(), floor); err != nil {
			t.Fatal(err)
		}
		want(kv.Revision(floor), current)
		want(kv.Revision(floor)-1, fmt.Sprintf("%d: compacted to %d", floor-1, floor))
		want(kv.Revision(floor), current)
		want(1, fmt.Sprintf("1: compacted to %d", floor))
		if n := c.Stats(); n.Watches != 1 || n.WatchesOpen != 0 {
			t.Errorf("probe key %q: %d watches for the compact revision, want 1, and %d remain open", probe, n.Watches, n.WatchesOpen)
		}
		before := c.Stats().ClockReads
		want(kv.Revision(floor)-2, fmt.Sprintf("%d: compacted to %d", floor-2, floor))
		if got := c.Stats().ClockReads; got != before {
			t.Errorf("a revision known to be compacted led to another read")
		}
		if _, err := cli.Compact(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		want(kv.Revision(floor), fmt.Sprintf("%d: compacted to %d", floor, now))
		want(kv.Revision(now), current)
	}
}

// A thousand concurrent callers ask for different revisions. Each gets its own answer, from few shared reads.
func TestCheckRevisionHerd(t *testing.T) {
	s := etcdtest.Start(t)
	cli := s.Client()
	const now, floor = 300, 100
	grow(t, cli, now-1)
	c := newClient(t, testConfig(s.Endpoint()))
	if _, err := c.Revision(t.Context()); err != nil { // connect
		t.Fatal(err)
	}
	herd := func(callers int, of func(i int) (revision kv.Revision, want string)) (reads int) {
		t.Helper()
		before, err := etcdtest.Scrape(t.Context(), s.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		start := make(chan struct{})
		var ready, all sync.WaitGroup
		for i := range callers {
			ready.Add(1)
			all.Go(func() {
				revision, want := of(i)
				ready.Done()
				<-start
				if got := says(c.CheckRevision(t.Context(), revision)); got != want {
					t.Errorf("revision %d: %s, want %s", revision, got, want)
				}
			})
		}
		ready.Wait()
		close(start)
		all.Wait()
		after, err := etcdtest.Scrape(t.Context(), s.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		return after.Ranges() - before.Ranges()
	}
	readable := func(i int) (kv.Revision, string) {
		return kv.Revision(floor + i%(now-floor+1)), fmt.Sprintf("now %d", now)
	}
	if reads := herd(1000, readable); reads > 100 {
		t.Errorf("1000 callers made %d reads, want at most 100", reads)
	}
	if _, err := cli.Compact(t.Context(), floor); err != nil {
		t.Fatal(err)
	}
	reads := herd(1000, func(i int) (kv.Revision, string) {
		switch revision := kv.Revision(1 + i%(now+50)); {
		case revision < floor:
			return revision, fmt.Sprintf("%d: compacted to %d", revision, floor)
		case revision > now:
			return revision, fmt.Sprintf("%d: future of %d", revision, now)
		default:
			return revision, fmt.Sprintf("now %d", now)
		}
	})
	if reads > 100 {
		t.Errorf("1000 callers of all kinds made %d reads, want at most 100", reads)
	}
	if n := c.Stats(); n.Watches != 1 {
		t.Errorf("%d watches for the compact revision, want 1", n.Watches)
	}
}

// During writes and compactions, no caller gets less than was true at its call, or more than was true at its
// answer.
func TestCheckRevisionUnderCompaction(t *testing.T) {
	s := etcdtest.Start(t)
	cli := s.Client()
	c := newClient(t, testConfig(s.Endpoint()))
	var mu sync.Mutex
	var now, floor, tried int64 = grow(t, cli, 50), 0, 0 // acknowledged; tried: a compaction that may be done
	look := func() (int64, int64, int64) {
		mu.Lock()
		defer mu.Unlock()
		return now, floor, tried
	}
	working, stop := context.WithCancel(t.Context())
	var writer, callers sync.WaitGroup
	writer.Go(func() {
		for i := 0; working.Err() == nil; i++ {
			r, err := cli.Put(context.Background(), "/v", "x")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			now = r.Header.Revision
			if i%20 == 0 {
				tried = now - 10
			}
			to := tried
			mu.Unlock()
			if i%20 != 0 {
				continue
			}
			if _, err := cli.Compact(context.Background(), to); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			floor = to
			mu.Unlock()
		}
	})
	for range 8 {
		callers.Go(func() {
			for range 60 {
				beforeNow, beforeFloor, _ := look()
				revision := beforeFloor - 3 + rand.Int64N(beforeNow-beforeFloor+10)
				if revision < 1 {
					continue
				}
				got, err := c.CheckRevision(t.Context(), kv.Revision(revision))
				_, _, afterTried := look()
				var compacted *kv.CompactedError
				var future *kv.FutureError
				switch {
				case err == nil:
					if revision < beforeFloor || int64(got) < max(beforeNow, revision) {
						t.Errorf("revision %d: now %d; before the call, etcd was at %d and compacted to %d", revision, got, beforeNow, beforeFloor)
					}
				case errors.As(err, &compacted):
					if f := int64(compacted.Floor); revision >= f || f < beforeFloor || f > afterTried {
						t.Errorf("revision %d: %v; the compact revision was %d before the call and at most %d after it", revision, err, beforeFloor, afterTried)
					}
				case errors.As(err, &future):
					if int64(future.Current) < beforeNow || revision <= int64(future.Current) {
						t.Errorf("revision %d: %v; etcd was at %d before the call", revision, err, beforeNow)
					}
				default:
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	stop()
	writer.Wait()
}

// behind is a member of etcd that has compacted for reads, but not yet for the first watches.
type behind struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedWatchServer
	mu      sync.Mutex
	floor   int64
	now     int64
	still   bool    // no revision follows
	watches []int64 // the compact revision as each watch sees it; the last one repeats

	progress []int64 // the revisions of a watch's progress answers, the last one repeats; empty: now
	asked    int     // number of answered requests for progress
}

func (b *behind) Range(_ context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch at := r.GetRevision(); {
	case at > b.now:
		if !b.still {
			b.now++ // etcd reaches the revision just after the read
		}
		return nil, rpctypes.ErrGRPCFutureRev
	case at != 0 && at < b.floor:
		return nil, rpctypes.ErrGRPCCompacted
	}
	return &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: b.now, RaftTerm: 7, ClusterId: 3}}, nil
}

func (b *behind) Watch(stream etcdserverpb.Watch_WatchServer) error {
	r, err := stream.Recv()
	if err != nil {
		return err
	}
	b.mu.Lock()
	floor, h := b.watches[0], &etcdserverpb.ResponseHeader{Revision: b.now}
	if len(b.watches) > 1 {
		b.watches = b.watches[1:]
	}
	b.mu.Unlock()
	id := r.GetCreateRequest().GetWatchId()
	if err := stream.Send(&etcdserverpb.WatchResponse{WatchId: id, Created: true, Header: h}); err != nil {
		return err
	}
	if r.GetCreateRequest().GetStartRevision() < floor {
		return stream.Send(&etcdserverpb.WatchResponse{Canceled: true, CompactRevision: floor, Header: h})
	}
	for i := 0; ; i++ {
		if _, err := stream.Recv(); err != nil { // a request for progress
			return err
		}
		if n := len(b.progress); n > 0 {
			h = &etcdserverpb.ResponseHeader{Revision: b.progress[min(i, n-1)]}
		}
		if err := stream.Send(&etcdserverpb.WatchResponse{WatchId: -1, Header: h}); err != nil {
			return err
		}
		b.mu.Lock()
		b.asked++
		b.mu.Unlock()
	}
}

func (b *behind) start(t *testing.T) *Client {
	t.Helper()
	l, g := bufconn.Listen(1<<16), grpc.NewServer()
	etcdserverpb.RegisterKVServer(g, b)
	etcdserverpb.RegisterWatchServer(g, b)
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-ended })
	cfg := testConfig("behind:1")
	cfg.Dialer = func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
	return newClient(t, cfg)
}

// The members of etcd have different positions. A late answer is requested again. Persistent disagreement is an
// error.
func TestCheckRevisionAmongLaggards(t *testing.T) {
	for name, c := range map[string]struct {
		b        *behind
		revision kv.Revision
		want     string
	}{
		"compacted everywhere":    {&behind{now: 100, floor: 50, watches: []int64{50}}, 40, "40: compacted to 50"},
		"the watch has not heard": {&behind{now: 100, floor: 50, watches: []int64{0, 0, 50}}, 40, "40: compacted to 50"},
		"the watch knows less":    {&behind{now: 100, floor: 50, watches: []int64{41, 50}}, 45, "45: compacted to 50"},
		"the watch knows more":    {&behind{now: 100, floor: 50, watches: []int64{60}}, 40, "40: compacted to 60"},
		"it is reached meanwhile": {&behind{now: 100, watches: []int64{0}}, 101, "now 101"},
		"never":                   {&behind{now: 100, floor: 50, watches: []int64{0}}, 40, "find etcd's compact revision: etcd is unavailable: etcd's members report different compact revisions"},
	} {
		t.Run(name, func(t *testing.T) {
			client := c.b.start(t)
			if got := says(client.CheckRevision(t.Context(), c.revision)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// A restored etcd is at an older revision. The client forgets the compact revision of the previous history.
func TestCheckRevisionForgetsAnotherHistory(t *testing.T) {
	b := &behind{now: 100, floor: 50, watches: []int64{50}}
	c := b.start(t)
	if got := says(c.CheckRevision(t.Context(), 20)); got != "20: compacted to 50" {
		t.Fatal(got)
	}
	b.mu.Lock()
	b.now, b.floor = 30, 10
	b.mu.Unlock()
	if r, err := c.Revision(t.Context()); r != 30 || err != nil { // like the node's clock every second
		t.Fatal(r, err)
	}
	if got := says(c.CheckRevision(t.Context(), 20)); got != "now 30" {
		t.Error(got)
	}
	if cluster, term := c.Identity(); cluster != 3 || term != 7 {
		t.Errorf("cluster %d, term %d", cluster, term)
	}
}

func TestCheckRevisionWithoutEtcd(t *testing.T) {
	s := etcdtest.Start(t)
	c := newClient(t, testConfig(s.Endpoint()))
	s.Stop()
	if _, err := c.CheckRevision(t.Context(), 5); !errors.Is(err, etcdconn.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

// A client reads at a revision that etcd compacted long ago, further back than a watch may start without a permit,
// while others hold all permits. It waits, and opens no watch before its turn. Reads at other revisions do not
// wait.
func TestReaderOfAnOldCompactedRevisionDelaysNoOther(t *testing.T) {
	s := etcdtest.Start(t)
	const now, floor, far = 60, 50, 20
	grow(t, s.Client(), now-1)
	if _, err := s.Client().Compact(t.Context(), floor); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(s.Endpoint())
	cfg.FreeCatchUp = far
	c := newClient(t, cfg)
	one := NewLocalPermits(1)
	permits := &counted{one, make(chan string, 100)}
	c.SetPermits(permits)
	if _, err := c.Revision(t.Context()); err != nil { // like every node
		t.Fatal(err)
	}

	one <- struct{}{} // a list has the only permit
	old := make(chan string, 2)
	var readers sync.WaitGroup
	defer readers.Wait()
	hasty, giveUp := context.WithCancel(t.Context())
	readers.Go(func() { old <- says(c.CheckRevision(hasty, 2)) })
	if purpose := <-permits.asked; !strings.HasPrefix(purpose, "catch up") {
		t.Errorf("requested a permit for %q, want one to catch up", purpose)
	}
	for range 3 {
		for revision, want := range map[kv.Revision]string{
			floor: fmt.Sprint("now ", now), now: fmt.Sprint("now ", now),
			now + 1: fmt.Sprintf("%d: future of %d", now+1, now),
		} {
			if got := says(c.CheckRevision(t.Context(), revision)); got != want {
				t.Errorf("revision %d: %s, want %s", revision, got, want)
			}
		}
	}
	if n := c.Stats(); n.Watches != 0 {
		t.Errorf("%d watches were opened without a permit", n.Watches)
	}
	giveUp()
	if got := <-old; !strings.HasSuffix(got, context.Canceled.Error()) {
		t.Errorf("a cancelled caller gets %s", got)
	}

	readers.Go(func() { old <- says(c.CheckRevision(t.Context(), 2)) })
	<-permits.asked
	<-one // the list has ended
	if got, want := <-old, fmt.Sprintf("2: compacted to %d", floor); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := c.Stats(); n.Watches != 1 || n.WatchesOpen != 0 || len(one) != 0 {
		t.Errorf("%d watches for one compact revision, want 1; %d are open, %d permits in use, want none", n.Watches, n.WatchesOpen, len(one))
	}
}

// A client that has not read etcd's clock yet learns from the announcement of its watch that it is far behind. It
// opens the watch again with a permit.
func TestAnOldCompactedRevisionAsTheFirstQuestion(t *testing.T) {
	s := etcdtest.Start(t)
	grow(t, s.Client(), 59)
	if _, err := s.Client().Compact(t.Context(), 50); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(s.Endpoint())
	cfg.FreeCatchUp = 20
	c := newClient(t, cfg)
	if got := says(c.CheckRevision(t.Context(), 2)); got != "2: compacted to 50" {
		t.Error(got)
	}
}

func BenchmarkCheckRevision(b *testing.B) {
	s := etcdtest.Start(b)
	c, err := New(testConfig(s.Endpoint()))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	b.SetParallelism(100)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := c.CheckRevision(b.Context(), 1); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(c.Stats().ClockReads)/time.Since(began).Seconds(), "reads/s")
}
