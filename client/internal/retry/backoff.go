package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// Base bounds the first wait.
	Base = 50 * time.Millisecond
	// most bounds every wait that no server requested.
	most = 2 * time.Second
	// Settled is how long an attempt must have worked for its next failure to count as the first.
	Settled = time.Second
)

// Backoff returns how long to wait before the attempt after so many failures: no time after
// the first, then a random time below a bound that doubles, so that many clients that failed
// together do not return together ("full jitter",
// aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter). If the server requested
// a delay (after), the wait is that delay plus a random time below the bound, which is then
// at least the delay: clients with the same delay return spread over twice the time.
func Backoff(failures int, after time.Duration) time.Duration {
	if failures <= 1 && after <= 0 {
		return 0
	}
	bound := most
	if failures < 8 {
		bound = min(Base<<max(failures-2, 0), most)
	}
	after = max(after, 0)
	return after + rand.N(max(bound, after)) + time.Millisecond
}

const (
	// herdBase and herdEach bound the time over which the watches of a broken stream
	// resume on other nodes.
	herdBase = 20 * time.Millisecond
	herdEach = 200 * time.Microsecond
	// HerdMax bounds that time for the longest stream.
	HerdMax = 250 * time.Millisecond
)

// Herd returns how long one of so many watches waits after their stream broke: watches
// of other clients left the node, too, and all of them resume on the remaining nodes.
func Herd(watches int) time.Duration {
	return rand.N(min(herdBase+time.Duration(watches)*herdEach, HerdMax))
}

// Sleep waits for d; it returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
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
