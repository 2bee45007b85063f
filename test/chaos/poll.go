package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errHopeless reports that further waiting is useless.
var errHopeless = errors.New("not going to happen")

// poll calls f until it succeeds. It fails with f's last error after the given time, or at once
// with an [errHopeless].
func poll(ctx context.Context, within time.Duration, what string, f func() error) error {
	deadline, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if errors.Is(err, errHopeless) {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		select {
		case <-tick.C:
		case <-deadline.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("wait for %s: %w", what, ctx.Err())
			}
			return fmt.Errorf("waited %v for %s: %w", within, what, err)
		}
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
