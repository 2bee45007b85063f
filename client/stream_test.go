package client

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
	"github.com/shardwatch/shardwatch/client/internal/shardmap"
)

// bench is a client without a network, in a bubble of fake time: the test takes
// requests off its streams and hands in the answers.
type bench struct {
	*testing.T
	c *Client
}

// onBench runs a test with a client that has a stream to each node. It has no shard map:
// watches go to the nodes in order.
func onBench(t *testing.T, test func(b *bench), nodes ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &Client{
			cfg: Config{Endpoints: nodes}.withDefaults(), connect: Config{}.connection(nil), prefers: shardmap.Preference{Seed: "seed"}, pulse: retry.NewPulse(time.Second/12, time.Now()),
			ctx: ctx, cancel: cancel,
			nodes: map[string]*node{}, watchers: map[*Watcher]struct{}{},
		}
		c.follower = newFollower(c)
		close(c.follower.first)
		for _, addr := range nodes {
			n := &node{addr: addr}
			s := newStream(c, n)
			s.watches[1<<40] = &Watcher{c: c} // a stream ends with its last watch
			n.streams = []*stream{s}
			c.nodes[addr] = n
		}
		go c.pulse.Run(ctx)
		defer func() {
			for _, w := range c.living() {
				w.Close()
			}
			cancel()
			c.wg.Wait()
		}()
		test(&bench{t, c})
	})
}

func (b *bench) watch(opts ...WatchOption) *Watcher {
	return b.c.Watch(context.Background(), Prefix("a"), opts...)
}

// at returns the address of the node where the watch is placed; empty: nowhere.
func (w *Watcher) at() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == nil {
		return ""
	}
	return w.on.node.addr
}

// answer has the watch's node send a response to it.
func (b *bench) answer(w *Watcher, r *pb.WatchResponse) {
	b.Helper()
	if w.at() == "" {
		b.Fatal("the watch is nowhere")
	}
	r.WatchId = w.id
	w.on.handle(r)
}

// begin has the watch's node start it at a revision of lineage 1.
func (b *bench) begin(w *Watcher, name string, revision int64) {
	b.Helper()
	b.answer(w, &pb.WatchResponse{Detail: &pb.WatchResponse_Created{Created: &pb.Created{Revision: revision, Lineage: 1, Node: name}}})
}

// fail has the watch's node end the watch's stream, for the watch alone.
func (b *bench) fail(w *Watcher, err error) { w.lost(w.on, w.id, outcome.Verdict{Err: err}, 0) }

func endOf(reason pb.EndReason, change ...func(*pb.Ended)) *pb.WatchResponse {
	e := &pb.Ended{Reason: reason, Message: "text"}
	for _, f := range change {
		f(e)
	}
	return &pb.WatchResponse{Detail: &pb.WatchResponse_Ended{Ended: e}}
}

// A node that does not start a watch in time is left. A state may take longer, since it
// waits for its turn; a watch that was closed or has started is not late.
func TestAWatchThatANodeDoesNotStartIsLate(t *testing.T) {
	onBench(t, func(b *bench) {
		plain, state, started, closed := b.watch(), b.watch(WithState()), b.watch(), b.watch()
		b.begin(started, "n1", 10)
		closed.Close()
		s := plain.on
		late := func(after time.Duration, want ...*Watcher) {
			t.Helper()
			time.Sleep(after)
			got := s.overdue()
			for _, w := range want {
				if got[w.id] != w {
					t.Errorf("watch %d is not late", w.id)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d watches are late, want %d", len(got), len(want))
			}
		}
		late(startTimeout)
		late(time.Millisecond, plain)
		late(stateTimeout-startTimeout-time.Millisecond, plain)
		late(time.Millisecond, plain, state)
	}, "a:1")
}

// Progress of a whole stream is about the watches that have started, and progress that
// names watches is about these.
func TestProgressIsForTheWatchesThatItIsAbout(t *testing.T) {
	onBench(t, func(b *bench) {
		one, other, starting := b.watch(WithProgress()), b.watch(WithProgress()), b.watch()
		b.begin(one, "n1", 10)
		b.begin(other, "n1", 10)
		s := one.on
		s.handle(progress(20))
		if one.Position().Revision != 10 || one.asm.position != 20 || other.asm.position != 20 {
			t.Errorf("at revisions %d and %d after progress of the stream", one.asm.position, other.asm.position)
		}
		named := progress(30)
		named.GetProgress().WatchIds = []int64{other.id}
		s.handle(named)
		if one.asm.position != 20 || other.asm.position != 30 {
			t.Errorf("at revisions %d and %d after progress of the second", one.asm.position, other.asm.position)
		}
		if starting.on != s || starting.Stats().LastError != nil {
			t.Errorf("a watch that has not started left: %v", starting.Stats().LastError)
		}
	}, "a:1", "b:1")
}

// A watch that has moved takes nothing from its former place, and is not moved again when
// the loss of that place becomes known a second time.
func TestAMovedWatchIgnoresItsFormerPlace(t *testing.T) {
	onBench(t, func(b *bench) {
		w := b.watch()
		s, id := w.on, w.id
		b.fail(w, outcome.ErrSilent)
		if w.at() != "b:1" {
			t.Fatalf("at %q", w.at())
		}
		late := &response{WatchResponse: &pb.WatchResponse{WatchId: id, Detail: &pb.WatchResponse_Created{Created: &pb.Created{Revision: 10, Lineage: 1}}}}
		w.handle(s, id, late)
		w.handle(w.on, w.id+1, late)
		w.lost(s, id, outcome.Verdict{Err: outcome.ErrEnded}, 0)
		w.lost(w.on, w.id+1, outcome.Verdict{Err: outcome.ErrEnded}, 0)
		if w.Stats().Attached || w.at() != "b:1" || !errors.Is(w.Stats().LastError, outcome.ErrSilent) {
			t.Errorf("at %q: %+v", w.at(), w.Stats())
		}
	}, "a:1", "b:1", "c:1")
}

// A program that asks for progress again and again sends ten requests a second.
func TestProgressIsAskedForTenTimesASecond(t *testing.T) {
	onBench(t, func(b *bench) {
		w := b.watch()
		asked := func(want int) {
			t.Helper()
			n := 0
			for _, r := range w.on.out {
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

// A node whose stream breaks is not the first choice of the next watches, and the
// connection to one that is silent is given up.
func TestANodeWhoseStreamBreaksIsAvoided(t *testing.T) {
	for name, c := range map[string]struct {
		cause          error
		boxed, dropped bool
	}{
		"silent":         {outcome.ErrSilent, true, true},
		"ended":          {outcome.ErrEnded, true, false},
		"refused":        {outcome.ErrRefused, true, false},
		"no watch on it": {outcome.ErrIdle, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(b *bench) {
				w := b.watch(FromRevision(11))
				s := w.on
				conn, err := grpc.NewClient("passthrough:///a:1", grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, outcome.ErrRefused }))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				s.node.conn = conn
				if errors.Is(c.cause, outcome.ErrIdle) {
					delete(s.watches, 1<<40)
					w.Close()
				}
				s.cancel(c.cause)
				s.run(b.c.ctx)
				if got := b.c.penalties.Boxed("a:1", time.Now()); got != c.boxed {
					t.Errorf("in the penalty box: %t", got)
				}
				if dropped := b.c.nodes["a:1"] == nil; dropped != c.dropped || len(s.node.streams) > 0 {
					t.Errorf("connection given up: %t; %d streams left", dropped, len(s.node.streams))
				}
				time.Sleep(retry.HerdMax)
				if want := map[bool]string{true: "b:1"}[c.boxed]; w.at() != want {
					t.Errorf("the watch is at %q", w.at())
				}
				if c.boxed && b.watch().at() != "b:1" {
					t.Error("the next watch goes to the node")
				}
			}, "a:1", "b:1")
		})
	}
}

// A node that is going away says so: for some seconds watches go to others.
func TestADrainingNodeIsAvoidedForAWhile(t *testing.T) {
	onBench(t, func(b *bench) {
		b.answer(b.watch(), endOf(pb.EndReason_END_REASON_DRAINING))
		time.Sleep(drainPenalty - time.Millisecond)
		if at := b.watch().at(); at != "b:1" {
			t.Errorf("a watch within the time is at %q", at)
		}
		time.Sleep(time.Millisecond)
		if at := b.watch().at(); at != "a:1" {
			t.Errorf("a watch after it is at %q", at)
		}
	}, "a:1", "b:1")
}

// A node that ends a watch may name the nodes to ask, and the time to wait.
func TestAWatchGoesWhereItsNodeSendsIt(t *testing.T) {
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
			t.Errorf("at %q before its time", w.at())
		}
		time.Sleep(3*time.Second + time.Millisecond)
		if w.at() != "b:1" {
			t.Errorf("at %q after its time", w.at())
		}
		if b.c.penalties.Boxed("a:1", time.Now()) {
			t.Error("a node that has reached a limit is in the penalty box")
		}
	}, "a:1", "b:1", "c:1")
}

// When etcd is restored a running watch asks its own node again, which has the new
// history.
func TestARunningWatchAsksItsNodeForTheNewHistory(t *testing.T) {
	onBench(t, func(b *bench) {
		w := b.watch()
		b.begin(w, "n1", 10)
		b.answer(w, endOf(pb.EndReason_END_REASON_LINEAGE))
		time.Sleep(retry.HerdMax)
		if w.at() != "a:1" {
			t.Fatalf("at %q", w.at())
		}
		if out := w.on.out[len(w.on.out)-1].GetCreate(); out.GetStartRevision() != 11 || out.GetLineage() != 1 {
			t.Errorf("asks for %v", out)
		}
	}, "a:1", "b:1")
}

// A watch that ran for a while is placed anew at once; one that its nodes lose again and
// again waits.
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
		if w.at() != "b:1" { // the first node that it has not just left
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
