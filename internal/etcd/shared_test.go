package etcd

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever comes while a fetch is in flight gets the result of the next, and
// all of them the same one.
func TestSharedFetchBeginsAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shared[int]
		var fetches atomic.Int64
		fetch := func(context.Context) (int, error) {
			n := int(fetches.Add(1)) // what a reader sees is decided when it begins
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
		time.Sleep(1500 * time.Millisecond) // the second fetch is half done
		for range 10 {
			call(3)
		}
		all.Wait()
		if got := fetches.Load(); got != 3 {
			t.Errorf("%d fetches, want 3", got)
		}
	})
}

// The caller that fetches gives up: another one of those who wait takes over.
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
		all.Go(func() { _, _ = s.do(t.Context(), fetch) }) // occupies the first place
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
					t.Errorf("patient: %q, %v", got, err)
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
		t.Errorf("after an error: %d, %v", got, err)
	}
}
