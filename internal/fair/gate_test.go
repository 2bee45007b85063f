package fair_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/fair"
)

// A gate bounds concurrent operations, serves clients in turn, skips operations that are no longer needed, and
// refuses when too many wait.
func TestGate(t *testing.T) {
	g := fair.NewGate(1, 4)
	a, b := client(1), client(2)
	var in []string
	enter := func(name string, of int, does bool) (time.Duration, bool) {
		from := a
		if of == 2 {
			from = b
		}
		return g.Enter(from, func() bool {
			in = append(in, name)
			return does
		})
	}
	for _, name := range []string{"a0", "a1", "a2"} {
		enter(name, 1, true)
	}
	enter("b0 is gone", 2, false)
	enter("b1", 2, true)
	if again, ok := enter("a3", 1, true); ok || again < time.Second {
		t.Errorf("over the limit: entered or queued %v, retry after %v", ok, again)
	}
	if running, waiting := g.Figures(); running != 1 || waiting != 4 {
		t.Errorf("%d running, %d waiting", running, waiting)
	}
	for range 4 {
		g.Leave(time.Millisecond)
	}
	if want := []string{"a0", "a1", "b0 is gone", "a2", "b1"}; !slices.Equal(in, want) {
		t.Errorf("entered %v, want %v", in, want)
	}
	if running, waiting := g.Figures(); running != 0 || waiting != 0 {
		t.Errorf("%d running, %d waiting", running, waiting)
	}
}

// Waiting goroutines enter in the turn of their clients. If its context ends, a goroutine leaves the queue, or
// ends the turn that it got meanwhile.
func TestGateWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fair.NewGate(1, 0)
		leave, err := g.Wait(t.Context(), client(1))
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, x := range []struct {
			name string
			of   int
			ctx  context.Context
		}{{"a1", 1, t.Context()}, {"a2", 1, t.Context()}, {"b gone", 2, ctx}, {"b1", 2, t.Context()}} {
			all.Go(func() {
				leave, err := g.Wait(x.ctx, client(x.of))
				if err != nil {
					order = append(order, x.name)
					return
				}
				order = append(order, x.name)
				leave()
			})
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		leave()
		all.Wait()
		if want := []string{"b gone", "a1", "b1", "a2"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
		if running, waiting := g.Figures(); running != 0 || waiting != 0 {
			t.Errorf("%d running, %d waiting", running, waiting)
		}
	})
}

// A turn that is granted while its context ends is not lost.
func TestGateWaitAgainstItsContext(t *testing.T) {
	g := fair.NewGate(1, 0)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 2000 {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				if leave, err := g.Wait(ctx, client(i)); err == nil {
					leave()
				}
			}
		})
	}
	all.Wait()
	if running, waiting := g.Figures(); running != 0 {
		t.Errorf("%d running, %d waiting", running, waiting)
	}
}
