package yield_test

import (
	"context"
	"errors"
	"testing"

	"github.com/shardwatch/shardwatch/internal/yield"
)

// Short work takes no turn. Long work takes one after each n steps, keeps it in between, and takes a new one
// before the next step after a Pause.
func TestBurst(t *testing.T) {
	var b yield.Burst
	taken, left := 0, 0
	var refused error
	take := func(context.Context) (func(), error) {
		if refused != nil {
			return nil, refused
		}
		taken++
		return func() { left++ }, nil
	}
	steps := func(n, wantTaken, wantLeft int) {
		t.Helper()
		for range n {
			b.Step(t.Context(), 4, take)
		}
		if taken != wantTaken || left != wantLeft {
			t.Errorf("%d turns taken, %d of them ended, want %d and %d", taken, left, wantTaken, wantLeft)
		}
	}
	steps(4, 0, 0) // short work
	steps(1, 1, 0)
	steps(2, 1, 0)
	steps(1, 2, 1) // the eighth step
	b.Pause()
	b.Pause()
	steps(1, 3, 2) // the ninth step needs a new turn
	b.End()
	steps(4, 3, 3) // a new burst
	refused = errors.New("not now")
	steps(2, 3, 3)
	b.End()
	steps(0, 3, 3)
}
