package fair_test

import (
	"slices"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/fair"
)

// A gate lets in so many at a time, in the turn of their clients, passes over those
// that have nothing to do any more, and refuses when too many wait.
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
		t.Errorf("one too many waits: %v, come again in %v", ok, again)
	}
	if running, waiting := g.Figures(); running != 1 || waiting != 4 {
		t.Errorf("%d are in, %d wait", running, waiting)
	}
	for range 4 {
		g.Leave(time.Millisecond)
	}
	if want := []string{"a0", "a1", "b0 is gone", "a2", "b1"}; !slices.Equal(in, want) {
		t.Errorf("let in %v, want %v", in, want)
	}
	if running, waiting := g.Figures(); running != 0 || waiting != 0 {
		t.Errorf("%d are in, %d wait", running, waiting)
	}
}
