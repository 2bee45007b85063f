package replica

import (
	"testing"
	"testing/synctest"
	"time"
)

// Whoever asks, and whenever: the next beat is the same moment for all, and what
// is done more seldom is done at one.
func TestBeatsFallTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := time.Now().Add(UntilBeat(Heartbeat))
		for time.Now().Before(next) {
			if got := time.Now().Add(UntilBeat(Heartbeat)); !got.Equal(next) {
				t.Fatalf("at %v: beat at %v, not %v", time.Now(), got, next)
			}
			if after := time.Now().Add(UntilBeat(scoutEvery)).Sub(next); after < 0 || after >= scoutEvery || after%Heartbeat != 0 {
				t.Fatalf("at %v: scouts look %v after the next beat", time.Now(), after)
			}
			time.Sleep(7 * time.Millisecond)
		}
		time.Sleep(UntilBeat(Heartbeat))
		if d := UntilBeat(Heartbeat); d != Heartbeat {
			t.Errorf("on a beat, the next one is in %v", d)
		}
	})
}
