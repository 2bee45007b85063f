package fair_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/shardwatch/shardwatch/internal/fair"
)

// fill takes all turns, and returns how to end them.
func fill(t *testing.T, turns *fair.Turns) (leave func()) {
	t.Helper()
	var all []func()
	for range max(1, runtime.GOMAXPROCS(0)-1) {
		one, err := turns.Take(t.Context(), "first")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return func() {
		for _, one := range all {
			one()
		}
	}
}

// Turns leave a processor to others, and go from client to client; what passes has none
// afterwards.
func TestTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	synctest.Test(t, func(t *testing.T) {
		turns := fair.NewTurns()
		leave := fill(t, turns)
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		for _, name := range []string{"a1", "a2", "b1"} {
			all.Go(func() {
				if err := turns.Pass(t.Context(), name[:1]); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := turns.Pass(ctx, "c"); err == nil {
			t.Error("a turn that was given up has come")
		}
		if taken, waiting := turns.Figures(); taken != 1 || waiting != 3 {
			t.Errorf("%d turns of two processors are taken, %d waited for", taken, waiting)
		}
		leave()
		all.Wait()
		if len(order) != 3 || slices.Index(order, "b1") > slices.Index(order, "a2") {
			t.Errorf("%q passed, want b1 before a2", order)
		}
		if taken, waiting := turns.Figures(); taken != 0 || waiting != 0 {
			t.Errorf("%d turns are taken, %d waited for", taken, waiting)
		}
	})
}
