package retry

import (
	"testing"
	"time"
)

// The clock of the process's running time stops without beats, keeps pace with them, and
// never goes back.
func TestPulse(t *testing.T) {
	start := time.Unix(100, 0)
	p := NewPulse(100*time.Millisecond, start)
	var last time.Duration
	at := func(d, want time.Duration) {
		t.Helper()
		got := p.at(start.Add(d))
		if got != want || got < last {
			t.Errorf("after %v the process has run for %v, want %v", d, got, want)
		}
		last = got
	}
	at(0, 0)
	at(150*time.Millisecond, 150*time.Millisecond)
	at(time.Hour, 200*time.Millisecond) // stopped
	p.beat(start.Add(time.Hour))
	at(time.Hour, 200*time.Millisecond)
	at(time.Hour+50*time.Millisecond, 250*time.Millisecond)
	for i := range 10 { // runs
		p.beat(start.Add(time.Hour + time.Duration(i+1)*110*time.Millisecond))
	}
	at(time.Hour+1100*time.Millisecond, 1300*time.Millisecond)
	for i := range 10 { // throttled: a second between two beats
		p.beat(start.Add(time.Hour + time.Duration(i+3)*time.Second))
	}
	at(time.Hour+12*time.Second, 3300*time.Millisecond)
}
