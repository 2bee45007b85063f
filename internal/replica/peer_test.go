package replica

import (
	"testing"
	"testing/synctest"
	"time"
)

// Whoever asks, and whenever: the next beat is the same moment for all, and a
// ping goes a little before it.
func TestBeatsFallTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := time.Now().Add(UntilBeat())
		for time.Now().Before(next) {
			if got := time.Now().Add(UntilBeat()); !got.Equal(next) {
				t.Fatalf("at %v: beat at %v, not %v", time.Now(), got, next)
			}
			ping := time.Now().Add(untilBeat(pingAhead))
			if before := next.Sub(ping); before != pingAhead && before != pingAhead-Heartbeat {
				t.Fatalf("at %v: ping at %v, %v before the beat", time.Now(), ping, before)
			}
			time.Sleep(7 * time.Millisecond)
		}
		time.Sleep(UntilBeat())
		if d := UntilBeat(); d != Heartbeat {
			t.Errorf("on a beat, the next one is in %v", d)
		}
	})
}
