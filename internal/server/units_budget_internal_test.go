package server

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
	"github.com/shardwatch/shardwatch/internal/cachetest"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/pump"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/shard"
	"github.com/shardwatch/shardwatch/internal/wire"
)

// far is a connection to a node that lists a history's keys when it is let to.
type far struct {
	grpc.ClientConnInterface
	h   *cachetest.History
	let chan struct{}
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
	at, history := kv.Revision(l.req.GetRevision()), kv.History{Cluster: "test", Lineage: 1}
	items := l.far.h.State(rng, at)
	into, _ := m.(*wire.Encoded)
	switch l.sent++; l.sent {
	case 1:
		select {
		case <-l.far.let:
		case <-l.ctx.Done():
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

// What a unit holds of other nodes' keys is given back when no watch needs it any more, whoever
// ends: the watch, before the unit is loaded or afterwards, or the node.
func TestUnitsGiveTheirBytesBack(t *testing.T) {
	for name, end := range map[string]func(u *units, x *unit, w *watch, let chan struct{}, stop func()){
		"the watch has had all of it": func(u *units, x *unit, w *watch, let chan struct{}, _ func()) {
			let <- struct{}{}
			synctest.Wait()
			u.leave(x, w, true)
		},
		"it is cancelled": func(u *units, x *unit, w *watch, let chan struct{}, _ func()) {
			let <- struct{}{}
			synctest.Wait()
			u.leave(x, w, false)
		},
		"it is cancelled while the unit is loaded": func(u *units, x *unit, w *watch, let chan struct{}, _ func()) {
			u.leave(x, w, false)
			let <- struct{}{}
		},
		"nothing of it is read": func(_ *units, _ *unit, _ *watch, let chan struct{}, _ func()) { let <- struct{}{} },
		"the node ends": func(_ *units, _ *unit, _ *watch, let chan struct{}, stop func()) {
			let <- struct{}{}
			synctest.Wait()
			stop()
		},
		"the node ends while the unit is loaded": func(_ *units, _ *unit, _ *watch, _ chan struct{}, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := cachetest.New()
				h.Commit(cachetest.Put("a", "here"), cachetest.Put("z", strings.Repeat("v", 1<<20)))
				m := cachetest.Map(1, []string{"m"}, "here")
				m.Shards[1].Replicas = []shard.NodeID{"there"}
				n := cachetest.NewNode("here", h, nil)
				defer n.Stop()
				let := make(chan struct{})
				n.Connect("there", &far{h: h, let: let})
				n.Use(m)
				<-n.Replica(1).Ready()
				b := budget.New(64 << 20)
				u := newUnits(&Config{MaxResyncs: 1, Budget: b, Router: router.New(router.Config{Shards: n, Clock: h, Self: "here", Budget: b})})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					u.run(ctx)
				}()
				stop := func() { cancel(); <-done }
				defer stop()
				tasks := new(pump.Pumps).Open(t.Context(), nil)
				defer tasks.Close()
				w := &watch{s: new(stream)}
				w.task.Init(tasks, nil) // never started
				x := u.board(w, unitKey{kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC, lineage: 1}, h.Now(), "")
				synctest.Wait()
				end(u, x, w, let, stop)
				synctest.Wait()
				if x.body != nil && b.Held(budget.Fetches) < 1<<20 {
					t.Errorf("%d bytes are held while the unit is there", b.Held(budget.Fetches))
				}
				time.Sleep(2 * u.patience.hold) // of the bubble
				if held := b.Held(budget.Fetches); held != 0 {
					t.Errorf("%d bytes are held of a unit that is gone", held)
				}
			})
		})
	}
}

// A client whose watches have its part of the bytes for keys of other nodes is refused more.
// Another client that needs the same keys is not.
func TestUnitsOfOneClientLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := cachetest.New()
		h.Commit(cachetest.Put("a", "here"), cachetest.Put("y", strings.Repeat("v", 2<<20)), cachetest.Put("z", strings.Repeat("v", 1<<20)))
		m := cachetest.Map(1, []string{"m"}, "here")
		m.Shards[1].Replicas = []shard.NodeID{"there"}
		n := cachetest.NewNode("here", h, nil)
		defer n.Stop()
		let := make(chan struct{})
		n.Connect("there", &far{h: h, let: let})
		n.Use(m)
		<-n.Replica(1).Ready()
		b := budget.New(64 << 20) // 4 MiB of them for this, and 2 MiB for each client
		u := newUnits(&Config{MaxResyncs: 3, Budget: b, Router: router.New(router.Config{Shards: n, Clock: h, Self: "here", Budget: b})})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			u.run(ctx)
		}()
		defer func() { cancel(); <-done }()
		tasks := new(pump.Pumps).Open(t.Context(), nil)
		defer tasks.Close()
		board := func(key string, clients ...string) *unit {
			var x *unit
			for _, name := range clients {
				w := &watch{s: &stream{holder: budget.Client{Name: name, Max: budget.HalfOfTotal}}}
				w.task.Init(tasks, nil) // never started
				x = u.board(w, unitKey{kind: shardwatchv1.SyncKind_SYNC_KIND_RESYNC, rng: kv.Single(key), lineage: 1}, h.Now(), "")
				time.Sleep(time.Millisecond) // of the bubble: the first has waited longest
			}
			for range 4 { // lists of the other node, each a try
				synctest.Wait()
				select {
				case let <- struct{}{}:
				default:
				}
			}
			return x
		}
		if x := board("y", "greedy"); x.err != nil || b.Held(budget.Fetches) < 2<<20 {
			t.Fatalf("one unit larger than the part: %v, %d bytes are held", x.err, b.Held(budget.Fetches))
		}
		if x := board("z", "greedy"); !errors.As(x.err, new(*kv.LimitError)) {
			t.Errorf("more than the part: %v", x.err)
		}
		if x := board("z", "greedy", "other"); x.err != nil || b.Held(budget.Fetches) < 3<<20 {
			t.Errorf("another client needs it, too: %v, %d bytes are held", x.err, b.Held(budget.Fetches))
		}
	})
}
