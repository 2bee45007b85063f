package fair_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/fair"
)

// Turns leave one processor free, and alternate between clients. A caller waits for its turn, and holds none
// afterwards.
func TestTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // one turn at a time
	synctest.Test(t, func(t *testing.T) {
		turns := fair.NewTurns()
		leave, err := turns.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var order []string // appended to by the holder of the turn
		var all sync.WaitGroup
		for _, name := range []string{"a1", "a2", "b1"} {
			all.Go(func() {
				leave, err := turns.Take(t.Context(), name[:1])
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name)
				leave()
			})
			synctest.Wait()
		}
		all.Go(func() {
			last, err := turns.Take(t.Context(), "c")
			if err != nil {
				t.Error(err)
				return
			}
			last()
		})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := turns.Take(ctx, "c"); err == nil {
			t.Error("Take succeeds with a cancelled context")
		}
		if taken, waiting := turns.Figures(); taken != 1 || waiting != 4 {
			t.Errorf("with two processors %d turns are taken, %d waited for", taken, waiting)
		}
		leave()
		all.Wait()
		if want := []string{"a1", "b1", "a2"}; !slices.Equal(order, want) {
			t.Errorf("order of turns %q, want %q", order, want)
		}
		if taken, waiting := turns.Figures(); taken != 0 || waiting != 0 {
			t.Errorf("%d turns are taken, %d waited for", taken, waiting)
		}
	})
}

// Clients that take turns continuously yield to other goroutines regularly.
func TestTurnsYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	turns := fair.NewTurns()
	var others, during atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		before := others.Load()
		for range 160 {
			leave, err := turns.Take(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			leave()
		}
		during.Store(others.Load() - before)
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
			others.Add(1)
			runtime.Gosched()
		}
	}
	if n := during.Load(); n < 5 {
		t.Errorf("another goroutine ran %d times during 160 turns", n)
	}
}

// Work of many steps ends its turn after each n steps, for another waiting client, and holds none after its
// end.
func TestTurnsOfManySteps(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // one turn at a time
	synctest.Test(t, func(t *testing.T) {
		turns := fair.NewTurns()
		var order []string
		var all sync.WaitGroup
		for _, client := range []string{"a", "b"} {
			all.Go(func() {
				step, end := turns.Every(t.Context(), client, 2)
				defer end()
				for range 5 {
					if err := step(); err != nil {
						t.Error(err)
					}
					order = append(order, client)
					time.Sleep(time.Millisecond) // lets the other client queue
				}
				end()
			})
			synctest.Wait()
		}
		all.Wait()
		if got, want := strings.Join(order, ""), "aabbaabbab"; got != want {
			t.Errorf("clients of the steps: %s, want %s", got, want)
		}
		if taken, waiting := turns.Figures(); taken != 0 || waiting != 0 {
			t.Errorf("%d turns are taken and %d waited for at the end", taken, waiting)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		leave, err := turns.Take(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		step, end := turns.Every(ctx, "d", 1)
		if step() == nil {
			t.Error("a step succeeds without a turn")
		}
		end() // d has no turn: c keeps its turn
		if taken, _ := turns.Figures(); taken != 1 {
			t.Errorf("%d turns are taken", taken)
		}
		leave()
	})
}
