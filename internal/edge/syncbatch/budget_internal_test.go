package syncbatch

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	shardwatchv1 "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/budget"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// far is a connection to a node that answers a list of a history's keys when the test allows it.
type far struct {
	grpc.ClientConnInterface
	h    *cachetest.Script
	let  chan struct{}
	deaf bool // a cancelled list does not end before the test allows it
}

func (f *far) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &farList{ctx: ctx, far: f}, nil
}

type farList struct {
	grpc.ClientStream
	ctx  context.Context //nolint:containedctx // of the stream
	far  *far
	req  *shardwatchv1.ListRequest
	sent int
}

func (l *farList) SendMsg(m any) error {
	l.req, _ = m.(*shardwatchv1.ListRequest)
	return nil
}

func (l *farList) CloseSend() error { return nil }

func (l *farList) RecvMsg(m any) error {
	rng, err := kv.RangeFromEtcd(l.req.GetKey(), l.req.GetRangeEnd())
	if err != nil {
		return err
	}
	at, history := kv.Revision(l.req.GetRevision()), kv.HistoryID{Cluster: "test", Lineage: 1}
	items := l.far.h.State(rng, at)
	into, _ := m.(*wire.Encoded)
	switch l.sent++; l.sent {
	case 1:
		cancelled := l.ctx.Done()
		if l.far.deaf {
			cancelled = nil
		}
		select {
		case <-l.far.let:
		case <-cancelled:
			return l.ctx.Err()
		}
		into.Buffers = wire.ListChunk(at, history, items).Buffers
	case 2:
		into.Buffers = wire.ListEnd(at, history, nil, int64(len(items)), -1).Buffers
	default:
		return io.EOF
	}
	return nil
}

// farQueue returns a Queue, not yet running, of a node that has the keys up to m; the node of f has the other keys.
func farQueue(t *testing.T, f *far, places int) (*Queue, *budget.Budget) {
	t.Helper()
	m := cachetest.Map(1, []string{"m"}, "here")
	m.Shards[1].Replicas = []shard.NodeID{"there"}
	n := cachetest.NewNode("here", f.h, nil)
	t.Cleanup(n.Stop)
	n.Connect("there", f)
	n.Use(m)
	<-n.Replica(1).Ready()
	b := budget.New(64 << 20) // 4 MiB of them for fetches, and 2 MiB for each client
	q := New(Config{Patience: UsualPatience(), MaxResyncs: places, Budget: b, Router: router.New(router.Config{Shards: n, Clock: f.h, Self: "here", Budget: b})})
	t.Cleanup(func() {
		q.running.Wait()
		q.dropAll()
	})
	return q, b
}

// The budget for other nodes' keys in a batch is released when no watch needs the batch, whether
// the watch ends before or after the load, or the node stops.
func TestBatchesGiveTheirBytesBack(t *testing.T) {
	for name, end := range map[string]func(q *Queue, x *Batch, w Watch, let chan struct{}, stop func()){
		"the watch has had all of it": func(q *Queue, x *Batch, w Watch, let chan struct{}, _ func()) {
			let <- struct{}{}
			synctest.Wait()
			q.Leave(x, w, true)
		},
		"it is cancelled": func(q *Queue, x *Batch, w Watch, let chan struct{}, _ func()) {
			let <- struct{}{}
			synctest.Wait()
			q.Leave(x, w, false)
		},
		"it is cancelled while the batch is loaded": func(q *Queue, x *Batch, w Watch, let chan struct{}, _ func()) {
			q.Leave(x, w, false)
			let <- struct{}{}
		},
		"nothing of it is read": func(_ *Queue, _ *Batch, _ Watch, let chan struct{}, _ func()) { let <- struct{}{} },
		"the node ends": func(_ *Queue, _ *Batch, _ Watch, let chan struct{}, stop func()) {
			let <- struct{}{}
			synctest.Wait()
			stop()
		},
		"the node ends while the batch is loaded": func(_ *Queue, _ *Batch, _ Watch, _ chan struct{}, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := cachetest.New()
				h.Commit(cachetest.Put("a", "here"), cachetest.Put("z", strings.Repeat("v", 1<<20)))
				let := make(chan struct{})
				q, b := farQueue(t, &far{h: h, let: let}, 1)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					q.Run(ctx)
				}()
				stop := func() { cancel(); <-done }
				defer stop()
				w := &quiet{}
				x := q.Join(w, Key{Kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC, Lineage: 1}, h.Now(), "")
				synctest.Wait()
				end(q, x, w, let, stop)
				synctest.Wait()
				if x.body != nil && b.Held(budget.Fetches) < 1<<20 {
					t.Errorf("%d bytes are held while the batch is kept, want at least 1 MiB", b.Held(budget.Fetches))
				}
				time.Sleep(2 * q.cfg.Patience.Hold) // of fake time
				if held := b.Held(budget.Fetches); held != 0 {
					t.Errorf("%d bytes are still held for a dropped batch", held)
				}
			})
		})
	}
}

// A client whose watches use up its part of the budget for other nodes' keys gets no more batches.
// Another client that needs the same keys is served.
func TestBatchesOfOneClientLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		h.Commit(cachetest.Put("a", "here"), cachetest.Put("y", strings.Repeat("v", 2<<20)), cachetest.Put("z", strings.Repeat("v", 1<<20)))
		let := make(chan struct{})
		q, b := farQueue(t, &far{h: h, let: let}, 3)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.Run(ctx)
		}()
		defer func() { cancel(); <-done }()
		board := func(key string, clients ...string) *Batch {
			var x *Batch
			for _, name := range clients {
				x = q.Join(&quiet{of: budget.Client{Name: name, Max: budget.HalfOfTotal}}, Key{Kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC, Range: kv.Single(key), Lineage: 1}, h.Now(), "")
				time.Sleep(time.Millisecond) // of fake time: the first watch has waited longest
			}
			for range 4 { // lists of the other node, one for each attempt
				synctest.Wait()
				select {
				case let <- struct{}{}:
				default:
				}
			}
			return x
		}
		if x := board("y", "greedy"); x.err != nil || b.Held(budget.Fetches) < 2<<20 {
			t.Fatalf("a single batch larger than the client's part: %v, %d bytes are held", x.err, b.Held(budget.Fetches))
		}
		if x := board("z", "greedy"); !errors.As(x.err, new(*kv.LimitError)) {
			t.Errorf("a second batch beyond the client's part: %v", x.err)
		}
		if x := board("z", "greedy", "other"); x.err != nil || b.Held(budget.Fetches) < 3<<20 {
			t.Errorf("a batch that another client needs, too: %v, %d bytes are held", x.err, b.Held(budget.Fetches))
		}
	})
}

// A client that created watches and cancelled them at once had an unbounded number of batches loaded: each
// batch released its slot while it was still being loaded.
func TestCancelledBatchesAreLoadedOneByOne(t *testing.T) {
	for _, kind := range []shardwatchv1.SyncKind{shardwatchv1.SyncKind_SYNC_KIND_RESYNC, shardwatchv1.SyncKind_SYNC_KIND_STATE} {
		synctest.Test(t, func(t *testing.T) {
			f := &far{h: cachetest.New(), let: make(chan struct{}), deaf: true}
			q, _ := farQueue(t, f, 1)
			join := func(key string) (w *quiet, x *Batch) {
				w = &quiet{}
				x = q.Join(w, Key{Kind: kind, Range: kv.Single(key), Lineage: 1}, f.h.Now(), "")
				q.begin(t.Context())
				return w, x
			}
			first, cancelled := join("y")
			synctest.Wait() // the first batch is being loaded
			q.Leave(cancelled, first, false)
			second, next := join("z")
			if s := q.Stats(); s.Begun != 1 || s.Running != 1 || next.state != Waits {
				t.Errorf("%v: %d batches have begun and %d have a slot, while the batch in the only slot is being loaded", kind, s.Begun, s.Running)
			}
			close(f.let)
			synctest.Wait()
			if running := q.Stats().Running; running != 0 {
				t.Errorf("%v: %d batches have a slot after the load of a cancelled batch", kind, running)
			}
			q.begin(t.Context())
			synctest.Wait()
			if s := q.Stats(); s.Begun != 2 || s.Running != 1 || next.state != Ready || next.err != nil {
				t.Errorf("%v: %d batches have begun, %d have a slot, the second batch: %v, %v", kind, s.Begun, s.Running, next.state, next.err)
			}
			q.Leave(next, second, false)
			if running := q.Stats().Running; running != 0 {
				t.Errorf("%v: %d batches have a slot after all watches have left", kind, running)
			}
		})
	}
}

// The batch of a watch that is cancelled at once counts against its client's budget, too.
func TestACancelledBatchCountsForItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{h: cachetest.New(), let: make(chan struct{})}
		f.h.Commit(cachetest.Put("y", strings.Repeat("v", 2<<20)), cachetest.Put("z", strings.Repeat("v", 1<<20)))
		close(f.let)
		q, b := farQueue(t, f, 2)
		load := func(key string) *Batch {
			w := &quiet{of: budget.Client{Name: "greedy", Max: budget.HalfOfTotal}} // 2 MiB
			x := q.Join(w, Key{Kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC, Range: kv.Single(key), Lineage: 1}, f.h.Now(), "")
			q.begin(t.Context())
			q.Leave(x, w, false)
			synctest.Wait()
			return x
		}
		if x := load("y"); x.err != nil || b.Held(budget.Fetches) < 2<<20 {
			t.Fatalf("a single batch larger than the client's part: %v, %d bytes are held", x.err, b.Held(budget.Fetches))
		}
		if x := load("z"); !errors.As(x.err, new(*kv.LimitError)) {
			t.Errorf("a second batch beyond the client's part: %v", x.err)
		}
	})
}
