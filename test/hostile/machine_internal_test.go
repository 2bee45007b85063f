package hostile

import (
	"strings"
	"testing"
	"time"
)

// A process that has exceeded its share pauses until it is within it.
func TestAShareIsNotExceeded(t *testing.T) {
	began := time.Unix(100, 0)
	for _, c := range []struct {
		cores    float64
		took     time.Duration
		used     time.Duration
		wantOver time.Duration
	}{
		{0.5, time.Second, time.Second / 2, 0},
		{0.5, time.Second, time.Second, time.Second},
		{0.5, time.Second, 0, -time.Second},
		{2, time.Second, 3 * time.Second, time.Second / 2},
		{0, time.Second, time.Hour, 0},
	} {
		s := share{cores: c.cores, began: began, used: time.Minute}
		if got := s.over(began.Add(c.took), time.Minute+c.used); got != c.wantOver {
			t.Errorf("%v cores used %v in %v: over by %v, want %v", c.cores, c.used, c.took, got, c.wantOver)
		}
	}
}

// The control's delays are printed between the calm and the attacked ones, and no bound applies to
// them.
func TestControlsAreShown(t *testing.T) {
	r := Row{Attack: "lists", MaxRatio: 2, Did: report{Done: map[string]int{"lists": 1}}}
	r.Before.Watch, r.Control.Watch, r.During.Watch = time.Millisecond, 9*time.Millisecond, 2*time.Millisecond
	if got, want := r.delays(watchDelay), "1.0 ms → 9.0 ms → 2.0 ms"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if over := r.Exceeded(); len(over) > 0 {
		t.Errorf("within twice the calm delay: %q", over)
	}
	r.During.Watch = 3 * time.Millisecond
	if over := r.Exceeded(); len(over) != 1 || over[0] != "watch p99" {
		t.Errorf("three times the calm delay, below the control's: %q", over)
	}
	r = Row{Attack: control}
	if got := r.delays(watchDelay); strings.Count(got, "→") != 1 {
		t.Errorf("a row without a control: %q", got)
	}
}
