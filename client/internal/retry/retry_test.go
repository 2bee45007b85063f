package retry

import (
	"strings"
	"testing"
	"time"
)

func TestPenalties(t *testing.T) {
	var p Penalties
	now := time.Unix(0, 0)
	addrs := []string{"a", "b", "c"}
	expect := func(want, tried string, at time.Duration) {
		t.Helper()
		if got := p.Choose(addrs, strings.Fields(tried), now.Add(at)); got != want {
			t.Errorf("after %v, having tried %q: %q, want %q", at, tried, got, want)
		}
	}
	expect("a", "", 0)
	expect("b", "a", 0)
	expect("c", "b a", 0)
	expect("b", "b a c", 0)
	p.Add("a", now, 0)
	expect("b", "", 0)
	expect("a", "", penaltyBase)
	p.Add("b", now, 0)
	expect("c", "", 0)
	expect("c", "c", 0)
	p.Add("c", now, 5*time.Second)
	expect("a", "", 0)
	p.Add("a", now, 0)
	expect("b", "", 0)
	for range 100 {
		p.Add("b", now, 0)
	}
	expect("a", "b", penaltyMax)
	p.Clear("c")
	expect("c", "", 0)
	if got := (&Penalties{}).Choose(nil, nil, now); got != "" {
		t.Errorf("no node to choose from: %q", got)
	}
}

func TestBackoff(t *testing.T) {
	for failures := range 100 {
		for range 20 {
			d := Backoff(failures, 0)
			if failures <= 1 && d != 0 || failures > 1 && (d <= 0 || d > most+time.Millisecond) {
				t.Fatalf("after %d failures: %v", failures, d)
			}
		}
	}
}

// Clients that got the same answer, or lost the same node, return spread over the whole
// time: no tenth of it gets more than twice its share.
func TestHerdsSpread(t *testing.T) {
	for name, c := range map[string]struct {
		wait     func() time.Duration
		from, to time.Duration
	}{
		"a server's delay":       {func() time.Duration { return Backoff(1, time.Second) }, time.Second, 2 * time.Second},
		"a delay after failures": {func() time.Duration { return Backoff(10, 100*time.Millisecond) }, 100 * time.Millisecond, most + 100*time.Millisecond},
		"failures":               {func() time.Duration { return Backoff(10, 0) }, 0, most},
		"a stream of 1000":       {func() time.Duration { return Herd(1000) }, 0, 220 * time.Millisecond},
		"a stream of 100000":     {func() time.Duration { return Herd(100000) }, 0, HerdMax},
		"a stream of one":        {func() time.Duration { return Herd(1) }, 0, herdBase + herdEach},
	} {
		var tenths [10]int
		for range 10000 {
			at := c.wait() - c.from
			if at < 0 || at > c.to-c.from+time.Millisecond {
				t.Fatalf("%s: %v is not between %v and %v", name, c.from+at, c.from, c.to)
			}
			tenths[min(10*at/(c.to-c.from), 9)]++
		}
		for i, n := range tenths {
			if n < 500 || n > 2000 {
				t.Errorf("%s: %d of 10000 in tenth %d", name, n, i)
			}
		}
	}
}

// The first waits are short: their bound doubles from 50 ms on.
func TestTheFirstBackoffsAreShort(t *testing.T) {
	for failures, bound := range map[int]time.Duration{2: Base, 3: 2 * Base, 4: 4 * Base, 7: 32 * Base} {
		var longest time.Duration
		for range 1000 {
			longest = max(longest, Backoff(failures, 0))
		}
		if longest > bound+time.Millisecond || longest < bound/2 {
			t.Errorf("after %d failures: up to %v, want %v", failures, longest, bound)
		}
	}
}

// A node that fails again is tried last.
func TestANodeThatFailsAgainIsTriedLast(t *testing.T) {
	var tr Tried
	for _, addr := range []string{"a", "b", "a"} {
		tr.Add(addr)
	}
	var p Penalties
	if got := p.Choose([]string{"a", "b"}, tr, time.Unix(0, 0)); got != "b" || len(tr) != 2 {
		t.Errorf("tries %q after %v", got, tr)
	}
}
