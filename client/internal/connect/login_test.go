package connect

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client/internal/outcome"
)

// A call that waits too long for the login of another one is retried, and its own node is not penalised,
// because it was not asked. If the call itself is canceled, its cause is kept.
func TestAWaitForAnotherLoginIsTriedAgain(t *testing.T) {
	l := NewLogin("ann", func() (string, error) { return "secret", nil })
	l.turn <- struct{}{} // another call is logging in
	for what, wait := range map[string]func() error{
		"before a write": func() error { return l.Ready(t.Context(), nil, time.Millisecond) },
		"in a read": func() error {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, outcome.ErrSlow)
			defer cancel()
			_, err := l.get(ctx, nil)
			return err
		},
	} {
		err := wait()
		if v := outcome.Judge(err); !errors.Is(err, outcome.ErrLogin) || !v.Retry || v.Penalise {
			t.Errorf("%s: %v: %+v", what, err, v)
		}
	}
	left := errors.New("the program has changed its mind")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(left)
	if err := l.Ready(ctx, nil, time.Minute); !errors.Is(err, left) {
		t.Error(err)
	}
}
