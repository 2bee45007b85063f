package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/calls"
	"github.com/shardwatch/shardwatch/client/internal/mapfollow"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

// bench is a client without a network, in a bubble of fake time: the test takes requests
// off its streams and supplies the answers.
type bench struct {
	*testing.T
	c *Client
}

// onBench runs a test with a client that has a stream to each node. It has no shard map, so
// that watches use the nodes in order.
func onBench(t *testing.T, test func(b *bench), addrs ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &Client{
			cfg: Config{Endpoints: addrs}.withDefaults(), connect: Config{}.connection(nil), prefers: shardmap.Preference{Seed: "seed"}, pulse: retry.NewPulse(time.Second/12, time.Now()),
			ctx: ctx, cancel: cancel, watchers: map[*Watcher]struct{}{},
		}
		c.pool = nodes.New(nodes.Config{
			Connect: c.connect, Pulse: c.pulse, Logger: c.cfg.Logger, Silence: c.cfg.Silence, AttemptTimeout: c.cfg.AttemptTimeout,
			Serve: func(*nodes.Stream) {}, // done by the test
		})
		c.follower = mapfollow.New(c.followConfig())
		c.calls = calls.New(c.callConfig())
		close(c.follower.First)
		for _, addr := range addrs { // keeps the stream open
			if _, _, err := c.pool.Join(placed{&Watcher{c: c}}, addr); err != nil {
				t.Fatal(err)
			}
		}
		go c.pulse.Run(ctx)
		defer func() {
			for _, w := range c.living() {
				w.Close()
			}
			cancel()
			c.pool.Close()
			c.wg.Wait()
		}()
		test(&bench{t, c})
	})
}

func (b *bench) watch(opts ...WatchOption) *Watcher {
	return b.c.Watch(context.Background(), Prefix("a"), opts...)
}

// at returns the address of the node where the watch is placed, or "".
func (w *Watcher) at() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == nil {
		return ""
	}
	return w.on.Addr()
}

// answer sends a response from the watch's node to the watch.
func (b *bench) answer(w *Watcher, r *pb.WatchResponse) {
	b.Helper()
	if w.at() == "" {
		b.Fatal("the watch has no node")
	}
	r.WatchId = w.id
	w.on.Handle(r)
}

// begin makes the watch's node start it at a revision of lineage 1.
func (b *bench) begin(w *Watcher, name string, revision int64) {
	b.Helper()
	b.answer(w, &pb.WatchResponse{Detail: &pb.WatchResponse_Created{Created: &pb.Created{Revision: revision, Lineage: 1, Node: name}}})
}

// fail makes the watch's node end the stream, but only for this watch.
func (b *bench) fail(w *Watcher, err error) { w.lost(w.on, w.id, outcome.Verdict{Err: err}, 0) }

func endOf(reason pb.EndReason, change ...func(*pb.Ended)) *pb.WatchResponse {
	e := &pb.Ended{Reason: reason, Message: "text"}
	for _, f := range change {
		f(e)
	}
	return &pb.WatchResponse{Detail: &pb.WatchResponse_Ended{Ended: e}}
}

// Progress of a whole stream is for all started watches on it; progress that names watches
// is for these only.
func TestProgressAdvancesOnlyItsWatches(t *testing.T) {
	onBench(t, func(b *bench) {
		one, other, starting := b.watch(WithProgress()), b.watch(WithProgress()), b.watch()
		b.begin(one, "n1", 10)
		b.begin(other, "n1", 10)
		s := one.on
		s.Handle(progress(20))
		if one.Position().Revision != 10 || one.asm.position != 20 || other.asm.position != 20 {
			t.Errorf("at revisions %d and %d after progress of the stream", one.asm.position, other.asm.position)
		}
		named := progress(30)
		named.GetProgress().WatchIds = []int64{other.id}
		s.Handle(named)
		if one.asm.position != 20 || other.asm.position != 30 {
			t.Errorf("at revisions %d and %d after progress for the second watch", one.asm.position, other.asm.position)
		}
		if starting.on != s || starting.Stats().LastError != nil {
			t.Errorf("a watch that has not started left the stream: %v", starting.Stats().LastError)
		}
	}, "a:1", "b:1")
}

// A watch that has moved ignores responses from its former node, and is not moved again
// when the loss of that node is reported again.
func TestAMovedWatchIgnoresItsFormerPlace(t *testing.T) {
	onBench(t, func(b *bench) {
		w := b.watch()
		s, id := w.on, w.id
		b.fail(w, outcome.ErrSilent)
		if w.at() != "b:1" {
			t.Fatalf("at %q", w.at())
		}
		late := &nodes.Response{WatchResponse: &pb.WatchResponse{WatchId: id, Detail: &pb.WatchResponse_Created{Created: &pb.Created{Revision: 10, Lineage: 1}}}}
		w.handle(s, id, late)
		w.handle(w.on, w.id+1, late)
		w.lost(s, id, outcome.Verdict{Err: outcome.ErrEnded}, 0)
		w.lost(w.on, w.id+1, outcome.Verdict{Err: outcome.ErrEnded}, 0)
		if w.Stats().Attached || w.at() != "b:1" || !errors.Is(w.Stats().LastError, outcome.ErrSilent) {
			t.Errorf("at %q: %+v", w.at(), w.Stats())
		}
	}, "a:1", "b:1", "c:1")
}

// RequestProgress sends at most ten requests a second.
func TestProgressIsAskedForTenTimesASecond(t *testing.T) {
	onBench(t, func(b *bench) {
		w := b.watch()
		asked := func(want int) {
			t.Helper()
			n := 0
			for _, r := range w.on.Unsent() {
				if r.GetProgress() != nil {
					n++
				}
			}
			if n != want {
				t.Errorf("asked %d times, want %d", n, want)
			}
		}
		for range 10 {
			w.RequestProgress()
		}
		asked(1)
		time.Sleep(100 * time.Millisecond)
		w.RequestProgress()
		asked(2)
	}, "a:1")
}

// A node that drains reports it, and new watches avoid it for some seconds.
func TestADrainingNodeIsAvoidedForAWhile(t *testing.T) {
	onBench(t, func(b *bench) {
		b.answer(b.watch(), endOf(pb.EndReason_END_REASON_DRAINING))
		time.Sleep(drainPenalty - time.Millisecond)
		if at := b.watch().at(); at != "b:1" {
			t.Errorf("a watch within that time is at %q", at)
		}
		time.Sleep(time.Millisecond)
		if at := b.watch().at(); at != "a:1" {
			t.Errorf("a watch after that time is at %q", at)
		}
	}, "a:1", "b:1")
}

// A node that ends a watch may name other nodes, and the time to wait.
func TestAWatchFollowsTheRedirectOfItsNode(t *testing.T) {
	onBench(t, func(b *bench) {
		w := b.watch()
		b.answer(w, endOf(pb.EndReason_END_REASON_UNAVAILABLE, func(e *pb.Ended) { e.Endpoints = []string{"c:1"} }))
		if w.at() != "c:1" {
			t.Errorf("at %q", w.at())
		}
		w = b.watch()
		b.answer(w, endOf(pb.EndReason_END_REASON_LIMIT, func(e *pb.Ended) { e.RetryAfter = durationpb.New(3 * time.Second) }))
		time.Sleep(3 * time.Second)
		if w.at() != "" {
			t.Errorf("at %q before the retry time", w.at())
		}
		time.Sleep(3*time.Second + time.Millisecond)
		if w.at() != "b:1" {
			t.Errorf("at %q after the retry time", w.at())
		}
		if b.c.pool.Boxed("a:1") {
			t.Error("a node that has reached a limit is in the penalty box")
		}
	}, "a:1", "b:1", "c:1")
}

// After a restore of etcd, a running watch asks its own node again, which has the new history.
func TestARunningWatchAsksItsNodeForTheNewHistory(t *testing.T) {
	onBench(t, func(b *bench) {
		w := b.watch()
		b.begin(w, "n1", 10)
		b.answer(w, endOf(pb.EndReason_END_REASON_LINEAGE))
		time.Sleep(retry.HerdMax)
		if w.at() != "a:1" {
			t.Fatalf("at %q", w.at())
		}
		if out := newest(w.on.Unsent()).GetCreate(); out.GetStartRevision() != 11 || out.GetLineage() != 1 {
			t.Errorf("asks for %v", out)
		}
	}, "a:1", "b:1")
}

// A watch that ran for a while is placed again at once; a watch that loses its nodes
// repeatedly backs off.
func TestAWatchThatRanForAWhileIsPlacedAtOnce(t *testing.T) {
	onBench(t, func(b *bench) {
		w := b.watch()
		for range 3 {
			b.begin(w, "n", 10)
			time.Sleep(retry.Settled + time.Millisecond)
			b.fail(w, outcome.ErrEnded)
			if w.at() == "" {
				t.Fatal("it waits")
			}
		}
		if w.at() != "b:1" { // the first node other than the one it has just left
			t.Errorf("at %q", w.at())
		}
		b.begin(w, "n", 10)
		b.fail(w, outcome.ErrEnded)
		if w.at() != "" {
			t.Errorf("at %q after two losses within a second", w.at())
		}
		time.Sleep(retry.Base + time.Millisecond)
		if !slices.Contains([]string{"a:1", "c:1"}, w.at()) {
			t.Errorf("at %q", w.at())
		}
	}, "a:1", "b:1", "c:1")
}

// newest returns the last request.
func newest(rs []*pb.WatchRequest) *pb.WatchRequest { return rs[len(rs)-1] }
