package etcddemand

import (
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

func TestDemand(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }
	d := New(10*time.Millisecond, 100*time.Millisecond, 5*time.Second, at(0))
	d.Begin(at(0))
	expect := func(name string, progress kv.Revision, want int) {
		t.Helper()
		if got := d.Due(progress); !got.Equal(at(want)) {
			t.Errorf("%s: due %v, want %v", name, got.Sub(at(0)), at(want).Sub(at(0)))
		}
	}
	expect("idle", 5, 5000)
	d.Add(7, 5, at(100))
	expect("a caller waits: at once", 5, 10)
	for _, next := range []int{20, 40, 80, 100, 100} { // ever later, up to the interval every
		due := d.Due(5)
		d.Sent(due)
		if got := d.Due(5).Sub(due); got != time.Duration(next)*time.Millisecond {
			t.Errorf("next after %v, want %d ms", got, next)
		}
	}
	if d.since != at(100) {
		t.Errorf("the wait began at %v, want 100", d.since)
	}
	d.Add(6, 5, at(900))
	if d.want != 7 || d.since != at(100) {
		t.Error("a lower revision changed the demand")
	}
	d.Add(8, 5, at(900))
	if d.pause != 10*time.Millisecond || d.since != at(100) {
		t.Error("a higher revision must be requested soon, within the same wait")
	}
	if d.Unmet(8) {
		t.Error("a reached revision counts as unmet")
	}
	d.Sent(at(1000))
	expect("met: idle, like all others", 8, 5000)
	d.Add(9, 8, at(2000))
	if d.since != at(2000) {
		t.Error("the new demand did not begin a new wait")
	}
}
