package server

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Hurry has units wait for hardly a moment for watches that do not read. For
// tests, before Run.
func (s *Server) Hurry(hold time.Duration) {
	s.units.patience = patience{stalled: 20 * time.Millisecond, hold: hold, sweep: 5 * time.Millisecond}
}

// Each connection has its turn, with what it asked for first; what is gone is
// passed over, and does not stay.
func TestLane(t *testing.T) {
	l := newLane()
	a, b, c := &net.TCPAddr{Port: 1}, &net.TCPAddr{Port: 2}, &net.TCPAddr{Port: 3}
	names := make(map[*unit]string)
	push := func(conn net.Addr, name string) *unit {
		x := &unit{}
		names[x] = name
		l.push(conn, x)
		return x
	}
	gone := func(x *unit) {
		x.state = unitGone
		l.left()
	}
	for i := range 5 {
		push(a, fmt.Sprint("a", i))
	}
	gone(push(b, "gone"))
	push(b, "b0")
	push(c, "c0")
	push(c, "c1")
	got := ""
	for x := l.pop(); x != nil; x = l.pop() {
		got += names[x] + " "
	}
	if want := "a0 b0 c0 a1 c1 a2 a3 a4 "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if l.length != 0 || l.gone != 0 || len(l.turns) != 0 || len(l.queues) != 0 {
		t.Errorf("left: %+v", l)
	}
	for range 100_000 {
		gone(push(a, ""))
		push(b, "")
		gone(l.queues[b][0])
		if n := l.length; n > 3000 {
			t.Fatalf("%d are left of clients that ask and ask no more", n)
		}
		if len(l.queues[b]) > 0 && l.queues[b][0].state == unitGone && l.pop() != nil {
			t.Fatal("one that is gone")
		}
	}
}

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
