package gateway

import (
	"context"
	"time"
)

// sharedFor is how long the answer to a probe is shared.
const sharedFor = time.Second

// shared is the answer to a health probe. Anyone may send probes, as often as connections allow: those within
// sharedFor share one answer, and there is one attempt at a time.
type shared[T any] struct {
	ask     func(context.Context) (T, error)
	life    context.Context //nolint:containedctx // of the gateway
	timeout time.Duration   // of an attempt

	turn chan struct{} // held by the asking probe, which owns the fields below
	at   time.Time     // when the last attempt ended
	last T             // of the last attempt that succeeded
	err  error         // of the last attempt
}

func newShared[T any](life context.Context, timeout time.Duration, ask func(context.Context) (T, error)) *shared[T] {
	return &shared[T]{ask: ask, life: life, timeout: timeout, turn: make(chan struct{}, 1)}
}

// get returns the last answer. If err is not nil, the answer is older than sharedFor, or zero if there was
// none.
func (s *shared[T]) get(ctx context.Context) (last T, err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return last, context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if s.at.IsZero() || time.Since(s.at) >= sharedFor {
		// Not with ctx: clients that leave at once would start one attempt after the other.
		asking, cancel := context.WithTimeout(s.life, s.timeout)
		defer cancel()
		answer, err := s.ask(asking)
		if s.at, s.err = time.Now(), err; err == nil {
			s.last = answer
		}
	}
	return s.last, s.err
}
