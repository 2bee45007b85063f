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
// doubles, so that many clients that failed at once do not come back at once
// ("full jitter", aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter).
// When the server asked to wait for after, it is that and a random time below
// the bound, which then is at least as long: so many as were told the same
// come back spread over twice the time.
func backoff(failures int, after time.Duration) time.Duration {
	if failures <= 1 && after <= 0 {
		return 0
	}
	bound := backoffMax
	if failures < 8 {
		bound = min(backoffBase<<max(failures-2, 0), backoffMax)
	}
	after = max(after, 0)
	return after + rand.N(max(bound, after)) + time.Millisecond
}

const (
	// herdBase and herdEach bound the time over which the watches of a stream
	// that broke come back elsewhere; herdMax bounds it for the longest stream.
	herdBase = 20 * time.Millisecond
	herdEach = 200 * time.Microsecond
	herdMax  = 250 * time.Millisecond
)

// herd returns how long one of so many watches waits whose stream broke: with
// the node went those of other clients, and all go to the nodes that are left.
func herd(watches int) time.Duration {
	return rand.N(min(herdBase+time.Duration(watches)*herdEach, herdMax))
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
