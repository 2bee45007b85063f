package homing

import (
	"testing"
	"time"
)

// A watch that is moved to its preferred node and does not stay there is moved less and less often.
func TestMovesBecomeLessFrequent(t *testing.T) {
	var m Moves
	now := time.Unix(0, 0)
	for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour} {
		if m.Add(now); !m.Wait(now.Add(want-1)) || m.Wait(now.Add(want)) {
			t.Errorf("move %d: the next one at %v, want after %v", i+1, m.after, want)
		}
	}
	for range 100 {
		m.Add(now)
	}
	if m.after != now.Add(time.Hour) {
		t.Errorf("after many moves: %v", m.after.Sub(now))
	}
	m.Home(time.Now().Add(-settled + time.Minute))
	if m.n == 0 {
		t.Error("a watch that was at its preferred node for a short time no longer waits")
	}
	if m.Home(time.Now().Add(-settled - time.Minute)); m != (Moves{}) {
		t.Errorf("a watch that has settled: %+v", m)
	}
}
