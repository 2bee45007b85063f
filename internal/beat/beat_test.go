package beat

import (
	"testing"
	"testing/synctest"
	"time"
)

// The next beat is the same moment for all callers, and rarer tasks run at a beat.
func TestCallersShareTheirTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seldom = 3 * Every
		next := time.Now().Add(Until(Every))
		for time.Now().Before(next) {
			if got := time.Now().Add(Until(Every)); !got.Equal(next) {
				t.Fatalf("at %v: beat at %v, not %v", time.Now(), got, next)
			}
			if after := time.Now().Add(Until(seldom)).Sub(next); after < 0 || after >= seldom || after%Every != 0 {
				t.Fatalf("at %v: what is done every %v is done %v after the next beat", time.Now(), seldom, after)
			}
			time.Sleep(7 * time.Millisecond)
		}
		time.Sleep(Until(Every))
		if d := Until(Every); d != Every {
			t.Errorf("on a beat, the next one is in %v", d)
		}
	})
}

// Tasks due between two beats run at the previous beat, as often.
func TestOtherIntervalsFallOnTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = Every*2 + Every/2
		time.Sleep(Until(2 * every))
		begin := time.Now()
		for range 10 {
			for _, want := range []time.Duration{2 * Every, 3 * Every} {
				d := Until(every)
				if d != want {
					t.Fatalf("%v after the begin: the next is in %v, want %v", time.Since(begin), d, want)
				}
				time.Sleep(d / 3)
				if rest := Until(every); rest != d-d/3 {
					t.Fatalf("%v before the next: %v", d-d/3, rest)
				}
				time.Sleep(d - d/3)
			}
		}
		if d := time.Since(begin); d != 20*every {
			t.Errorf("20 times in %v, want %v", d, 20*every)
		}
	})
}
