package client

import (
	"testing"
	"time"
)

// A watch that is moved to its home and does not stay there is moved ever more
// seldom.
func TestHoming(t *testing.T) {
	var h homing
	now := time.Unix(0, 0)
	for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour} {
		if h.add(now); h.after != now.Add(want) {
			t.Errorf("move %d: the next one after %v, want %v", i+1, h.after.Sub(now), want)
		}
	}
	for range 100 {
		h.add(now)
	}
	if h.after != now.Add(time.Hour) {
		t.Errorf("after many moves: %v", h.after.Sub(now))
	}
}
