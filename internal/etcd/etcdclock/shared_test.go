package etcdclock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// All callers that arrive while a fetch is in flight share the result of the next fetch.
func TestSharedFetchBeginsAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shared[int]
		var fetches, inFlight atomic.Int64
		fetch := func(context.Context) (int, error) {
			if n := inFlight.Add(1); n > 1 {
				t.Errorf("%d fetches are in flight, want one at most", n)
			}
			defer inFlight.Add(-1)
			n := int(fetches.Add(1)) // a fetch reads the state at its beginning
			time.Sleep(time.Second)
			return n, nil
		}
		var all sync.WaitGroup
		call := func(want int) {
			all.Go(func() {
				if got, err := s.do(t.Context(), fetch); got != want || err != nil {
					t.Errorf("got %d, %v; want %d", got, err, want)
				}
			})
		}
		call(1)
		synctest.Wait()
		for range 10 {
			call(2)
		}
		synctest.Wait()
		time.Sleep(1500 * time.Millisecond) // in the middle of the second fetch
		for range 10 {
			call(3)
		}
		all.Wait()
		if got := fetches.Load(); got != 3 {
			t.Errorf("%d fetches, want 3", got)
		}
	})
}

// If some of the waiting callers give up, the others still get the result.
func TestSharedFetchSurvivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shared[string]
		fetch := func(ctx context.Context) (string, error) {
			select {
			case <-time.After(time.Second):
				return "there", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		var all sync.WaitGroup
		defer all.Wait()
		all.Go(func() { _, _ = s.do(t.Context(), fetch) }) // occupies the first fetch
		synctest.Wait()
		hasty, cancel := context.WithCancel(t.Context())
		for range 3 {
			all.Go(func() {
				if _, err := s.do(hasty, fetch); !errors.Is(err, context.Canceled) {
					t.Errorf("hasty: %v", err)
				}
			})
		}
		synctest.Wait()
		for range 3 {
			all.Go(func() {
				if got, err := s.do(t.Context(), fetch); got != "there" || err != nil {
					t.Errorf("a patient caller gets %q, %v", got, err)
				}
			})
		}
		time.Sleep(1500 * time.Millisecond)
		cancel()
	})
}

func TestSharedFetchSharesErrors(t *testing.T) {
	var s shared[int]
	boom := errors.New("boom")
	if _, err := s.do(t.Context(), func(context.Context) (int, error) { return 0, boom }); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if got, err := s.do(t.Context(), func(context.Context) (int, error) { return 3, nil }); got != 3 || err != nil {
		t.Errorf("a caller after a failed fetch gets %d, %v", got, err)
	}
}

// A fetch ends when its last caller gives up. Later callers do not get its result.
func TestAFetchThatNoCallerWaitsForEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shared[int]
		var begun, ended atomic.Int64
		fetch := func(ctx context.Context) (int, error) {
			n := int(begun.Add(1))
			select {
			case <-time.After(time.Second):
				return n, nil
			case <-ctx.Done():
				ended.Add(1)
				return 0, ctx.Err()
			}
		}
		var all sync.WaitGroup
		defer all.Wait()
		hasty := func() context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(func() {
				if _, err := s.do(ctx, fetch); !errors.Is(err, context.Canceled) {
					t.Errorf("hasty: %v", err)
				}
			})
			synctest.Wait()
			return cancel
		}
		leaveFetch := hasty()
		leaveNext := hasty() // waits for the next fetch
		leaveNext()          // leaves before the running fetch ends, which begins the next one if a caller waits for it
		synctest.Wait()
		leaveFetch()
		synctest.Wait()
		if begun.Load() != 1 || ended.Load() != 1 {
			t.Errorf("%d fetches began and %d ended early, want 1 and 1", begun.Load(), ended.Load())
		}
		if got, err := s.do(t.Context(), fetch); got != 2 || err != nil {
			t.Errorf("a later caller gets %d, %v", got, err)
		}
	})
}

// A caller waits no longer than the timeout, even while an older fetch hangs. The same holds for a caller that
// arrives meanwhile.
func TestASharedFetchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared[int]{timeout: 3 * time.Second}
		hang := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
		began := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				came := time.Now()
				if _, err := s.do(t.Context(), hang); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if waited := time.Since(came); waited > 3*time.Second {
					t.Errorf("a caller waited %v, want at most 3s", waited)
				}
			})
			time.Sleep(time.Second)
		}
		all.Wait()
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("took %v, want 4s: the timeout of the second fetch starts with its first caller", took)
		}
	})
}
