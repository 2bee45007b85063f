package copies

import (
	"context"
	"errors"
	"testing"
)

// A caller that gives up after its request was accepted does not hear that the renewal has not begun.
func TestRenewFailsWhenItsContextEnds(t *testing.T) {
	s := &Set{renewals: make(chan renewal)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-s.renewals
		cancel()
	}()
	if begun, err := s.Renew(ctx, 1, nil, nil); begun || !errors.Is(err, context.Canceled) {
		t.Errorf("begun: %v, %v; want %v", begun, err, context.Canceled)
	}
}
