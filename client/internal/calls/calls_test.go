package calls

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/shardwatch/shardwatch/client/internal/connect"
	"github.com/shardwatch/shardwatch/client/internal/keyrange"
	"github.com/shardwatch/shardwatch/client/internal/nodes"
	"github.com/shardwatch/shardwatch/client/internal/outcome"
	"github.com/shardwatch/shardwatch/client/internal/retry"
)

// A failed read penalises its node unless the process itself was suspended, uses the nodes
// that the error names, tries other nodes first, and starts afresh after an answer.
func TestAReadBlamesTheNodeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		pulse := retry.NewPulse(time.Second/12, time.Now())
		go pulse.Run(ctx)
		ready := make(chan struct{})
		close(ready)
		pool := nodes.New(nodes.Config{})
		defer func() {
			cancel()
			pool.Close()
		}()
		const retryFor = 10 * time.Second
		a, err := New(Config{
			Pool: pool, Pulse: pulse, Connect: new(connect.Options), RetryFor: retryFor, Ready: ready, Closed: ctx, Judge: outcome.Judge,
		}).Begin(ctx, keyrange.Range{})
		if err != nil {
			t.Fatal(err)
		}
		fails := func(addr string, err error) error {
			a.addr, a.began = addr, pulse.Wait()
			return a.Failed(ctx, err)
		}
		boxed := func(addr string) bool { return pool.Boxed(addr) }
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
		a.Worked()
		if boxed("b:1") || len(a.tried) != 0 || a.failures != 0 {
			t.Errorf("after an answer: tried %v, %d failures, in the penalty box: %t", a.tried, a.failures, boxed("b:1"))
		}
		a.addr, a.began = "c:1", retry.Wait{Began: time.Now().Add(-time.Hour), Ran: pulse.Ran()} // the process was suspended
		if err := a.Failed(ctx, outcome.ErrSlow); err != nil || boxed("c:1") {
			t.Errorf("after a stall: %v, in the penalty box: %t", err, boxed("c:1"))
		}
		if err := fails("c:1", status.Error(codes.InvalidArgument, "x")); !errors.Is(err, outcome.ErrInvalid) || boxed("c:1") {
			t.Errorf("invalid: %v", err)
		}
		time.Sleep(retryFor)
		if err := fails("a:1", outcome.ErrSlow); !errors.Is(err, outcome.ErrUnavailable) || !errors.Is(err, outcome.ErrSlow) {
			t.Errorf("after RetryFor: %v", err)
		}
	})
}

// If the deadline of a call ends an attempt, the error has the failure of the attempt before.
func TestADeadlineDoesNotHideTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a := &Attempts{cfg: &Config{
			Pool: nodes.New(nodes.Config{}), Pulse: retry.NewPulse(time.Second/12, time.Now()),
			Connect: new(connect.Options), RetryFor: time.Minute, Closed: t.Context(), Judge: outcome.Judge,
		}}
		defer a.cfg.Pool.Close()
		a.deadline = a.cfg.RetryFor
		a.addr, a.began = "a:1", a.cfg.Pulse.Wait()
		if err := a.Failed(ctx, status.Error(codes.Unavailable, "the certificate is wrong")); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		a.addr = "b:1"
		for _, interrupted := range []error{status.FromContextError(ctx.Err()).Err(), ctx.Err()} {
			err := a.Failed(ctx, interrupted)
			if !errors.Is(err, outcome.ErrUnavailable) || !strings.Contains(err.Error(), "last answer, of a:1: the certificate is wrong") {
				t.Errorf("%v: %v", interrupted, err)
			}
		}
		if err := a.Failed(ctx, status.Error(codes.Unavailable, "draining")); !strings.Contains(err.Error(), "last answer, of b:1: draining") {
			t.Error(err)
		}
	})
}
