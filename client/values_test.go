package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
	"github.com/shardwatch/shardwatch/client/internal/tree"
)

// A read that fails blames its node, unless the program itself stood still, goes where it
// is sent, tries others first, and starts afresh when a node has answered.
func TestAReadBlamesTheNodeThatFails(t *testing.T) {
	onBench(t, func(b *bench) {
		ctx := context.Background()
		a, err := b.c.attempts(ctx, Range{})
		if err != nil {
			t.Fatal(err)
		}
		fails := func(addr string, err error) error {
			a.addr, a.began = addr, b.c.pulse.Wait()
			return a.failed(ctx, err)
		}
		boxed := func(addr string) bool { return b.c.pool.Boxed(addr) }
		notHere, err := status.New(codes.Unavailable, "x").WithDetails(&errdetails.ErrorInfo{Domain: outcome.Domain, Reason: "NOT_HERE", Metadata: map[string]string{"endpoints": "c:1"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := fails("a:1", notHere.Err()); err != nil || boxed("a:1") || !slices.Equal(a.hints, []string{"c:1"}) || !slices.Equal(a.tried, retry.Tried{"a:1"}) {
			t.Errorf("sent elsewhere: %v, hints %v, tried %v, in the penalty box: %t", err, a.hints, a.tried, boxed("a:1"))
		}
		if err := fails("b:1", outcome.ErrRefused); err != nil || !boxed("b:1") || len(a.hints) != 0 {
			t.Errorf("refused: %v, hints %v, in the penalty box: %t", err, a.hints, boxed("b:1"))
		}
		a.worked()
		if boxed("b:1") || len(a.tried) != 0 || a.failures != 0 {
			t.Errorf("after an answer: tried %v, %d failures, in the penalty box: %t", a.tried, a.failures, boxed("b:1"))
		}
		a.addr, a.began = "c:1", retry.Wait{Began: time.Now().Add(-time.Hour), Ran: b.c.pulse.Ran()} // the process stood still
		if err := a.failed(ctx, outcome.ErrSlow); err != nil || boxed("c:1") {
			t.Errorf("after a stall: %v, in the penalty box: %t", err, boxed("c:1"))
		}
		if err := fails("c:1", status.Error(codes.InvalidArgument, "x")); !errors.Is(err, ErrInvalid) || boxed("c:1") {
			t.Errorf("invalid: %v", err)
		}
		time.Sleep(b.c.cfg.RetryFor)
		if err := fails("a:1", outcome.ErrSlow); !errors.Is(err, ErrUnavailable) || !errors.Is(err, outcome.ErrSlow) {
			t.Errorf("after the time for attempts: %v", err)
		}
	}, "a:1", "b:1", "c:1")
}

// What a mirror has applied when it ends is told before its end.
func TestTheLastChangeComesBeforeTheEnd(t *testing.T) {
	for range 50 { // both are ready: select takes either
		m := &Mirror{done: make(chan struct{}), ready: make(chan struct{}), changed: make(chan struct{})}
		kvs := func(revision int64, keys ...string) View {
			u := Update{Kind: KindResync, Revision: revision}
			for _, k := range keys {
				u.KVs = append(u.KVs, KeyValue{Key: []byte(k), ModRevision: revision})
			}
			return apply(m.hash, View{}, &u)
		}
		m.hash = tree.NewHasher()
		m.set(kvs(2, "a"))
		var told []int
		var last error
		for ch, err := range m.Changes(context.Background()) {
			if last = err; err != nil {
				break
			}
			if told = append(told, len(ch.Events)); len(told) == 1 {
				m.set(kvs(3, "b", "c"))
				m.end(outcome.ErrEnded)
			}
		}
		if !slices.Equal(told, []int{1, 3}) || !errors.Is(last, outcome.ErrEnded) {
			t.Fatalf("told changes of %v events, then %v", told, last)
		}
	}
}
