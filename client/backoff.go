package client

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	backoffBase = 50 * time.Millisecond
	backoffMax  = 2 * time.Second
	// settled is how long something must have worked for its next failure to
	// count as the first one.
	settled = time.Second
)

// backoff returns how long to wait before the attempt that follows so many
// failures: nothing after the first, then a random time below a bound that
// doubles (full jitter), so that many clients do not come back at once.
func backoff(failures int) time.Duration {
	if failures <= 1 {
		return 0
	}
	bound := backoffMax
	if failures < 8 {
		bound = min(backoffBase<<(failures-2), backoffMax)
	}
	return rand.N(bound) + time.Millisecond
}

// spread makes a delay that a server asked for up to a quarter longer.
func spread(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d + rand.N(d/4+1)
}

// sleep waits for d; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
