package hostile

import (
	"context"
	"time"
)

// each calls f perSecond times per second until it fails or ctx ends. It makes up for late calls.
func each(ctx context.Context, perSecond int, f func(int64) error) error {
	const step = 10 * time.Millisecond
	tick := time.NewTicker(step)
	defer tick.Stop()
	began := time.Now()
	for n := int64(0); ; {
		for due := int64(time.Since(began).Seconds() * float64(perSecond)); n < due; n++ {
			if err := f(n); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
