package farewell

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Watches are ended at the configured rate, or faster if half of the remaining time requires it.
// When the time is over, the remaining watches are returned.
func TestWatchesEndAtTheConfiguredRate(t *testing.T) {
	for name, c := range map[string]struct {
		deadline, want time.Duration
		told           int
	}{
		"without a deadline":                 {0, 10 * time.Second, 100},
		"with time to spare":                 {time.Hour, 10 * time.Second, 100},
		"in half of the time":                {8 * time.Second, 4 * time.Second, 100},
		"when the time is over in the midst": {-3 * time.Second, 3 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := 0
				var all []Farewell
				for range 50 { // each of two watches
					all = append(all, Farewell{Client: &net.TCPAddr{}, Watches: 2, End: func() { ended += 2 }})
				}
				ctx := t.Context()
				var cancel context.CancelFunc
				switch {
				case c.deadline > 0:
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				case c.deadline < 0: // no deadline: the context ends without notice
					ctx, cancel = context.WithCancel(ctx)
					time.AfterFunc(-c.deadline, cancel)
				}
				began := time.Now()
				told, left := Send(ctx, all, 10)
				if took := time.Since(began).Round(time.Second / 2); took != c.want {
					t.Errorf("took %v, want %v", took, c.want)
				}
				if told != ended || (c.told > 0 && told != c.told) || told+2*len(left) != 100 {
					t.Errorf("%d watches reported as ended, %d ended, %d farewells left", told, ended, len(left))
				}
				if c.told == 0 && (told < 28 || told > 34) {
					t.Errorf("%d watches ended in 3 s at 10 per second", told)
				}
				if n := EndAll(left); n != 2*len(left) || ended != 100 {
					t.Errorf("%d watches ended by EndAll, %d in all", n, ended)
				}
			})
		})
	}
}

// All watches of a client are ended before those of the next client.
func TestWatchesEndClientByClient(t *testing.T) {
	var all []Farewell
	for i := range 60 {
		all = append(all, Farewell{Client: &net.TCPAddr{Port: i % 3}})
	}
	clients := []net.Addr{all[0].Client, all[1].Client, all[2].Client}
	for i := range all {
		all[i].Client = clients[i%3]
	}
	changes := 0
	for i, f := range ByClient(all) {
		if i > 0 && f.Client != all[i-1].Client {
			changes++
		}
	}
	if changes != 2 {
		t.Errorf("%d changes of client in the order, want 2", changes)
	}
}

func TestDueBy(t *testing.T) {
	for _, x := range []struct {
		all           int
		elapsed, took time.Duration
		want          int
	}{
		{10, 0, time.Second, 0},
		{10, 500 * time.Millisecond, time.Second, 5},
		{10, time.Second, time.Second, 10},
		{10, time.Hour, time.Second, 10},
		{10, 0, 0, 10},
		{10, 0, -time.Second, 10},
		{0, 0, time.Second, 0},
		{100_000, time.Millisecond, 100 * time.Second, 1},
	} {
		if got := dueBy(x.all, x.elapsed, x.took); got != x.want {
			t.Errorf("%+v: got %d", x, got)
		}
	}
}
