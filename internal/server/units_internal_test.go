package server

import (
	"testing"
	"testing/synctest"
	"time"
)

// Hurry has units wait for hardly a moment for watches that do not read. For
// tests, before Run.
func (s *Server) Hurry(hold time.Duration) {
	s.units.patience = patience{share: usualPatience().share, stalled: 20 * time.Millisecond, hold: hold, sweep: 5 * time.Millisecond}
}

// ShareFor has watches share units for longer or shorter than usual. For tests, before Run.
func (s *Server) ShareFor(share time.Duration) { s.units.patience.share = share }

// What is made comes to no more than the pace, and those who wait are in turn.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pace{perSecond: 1000}
		for i, want := range []time.Duration{0, 0, 100 * time.Millisecond, 200 * time.Millisecond} {
			if got := p.reserve(100); got != want {
				t.Errorf("reservation %d: wait %v, want %v", i, got, want)
			}
		}
		p.correct(-150) // it was less
		if got := p.reserve(100); got != 150*time.Millisecond {
			t.Errorf("wait %v", got)
		}
		time.Sleep(time.Hour)
		if got := p.reserve(5000); got != 0 {
			t.Errorf("after a pause: wait %v", got)
		}
		if got := p.reserve(1); got != 4900*time.Millisecond {
			t.Errorf("after a big one: wait %v", got)
		}
		none := pace{}
		if none.reserve(1<<40)+none.reserve(1) != 0 {
			t.Error("a pace without a bound has one")
		}
	})
}
