package gateway

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Probes within a second share an answer. If a later attempt fails, the last answer remains.
func TestProbesShareAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var away error
		s := newShared(t.Context(), time.Minute, func(context.Context) (int, error) {
			asked++
			return asked, away
		})
		expect := func(want int, wantErr error) {
			t.Helper()
			if got, err := s.get(t.Context()); got != want || !errors.Is(err, wantErr) {
				t.Errorf("got %d, %v, want %d, %v", got, err, want, wantErr)
			}
		}
		expect(1, nil)
		time.Sleep(sharedFor - time.Nanosecond) // of fake time
		expect(1, nil)
		time.Sleep(time.Nanosecond)
		expect(2, nil)
		away = errors.New("etcd is away")
		time.Sleep(sharedFor)
		expect(2, away)
		expect(2, away)
		away = nil
		time.Sleep(sharedFor)
		expect(4, nil)
	})
}

// A client that leaves does not end the attempt that others wait for, and others wait only until their own
// deadline. The end of the gateway ends the attempt.
func TestAnAttemptOutlivesItsProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		answer, attempts := make(chan int), 0
		s := newShared(life, time.Hour, func(ctx context.Context) (int, error) {
			attempts++
			select {
			case n := <-answer:
				return n, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		leaving, leave := context.WithCancel(t.Context())
		go func() { _, _ = s.get(leaving) }()
		synctest.Wait()
		leave()
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.get(late); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a probe at its deadline: %v", err)
		}
		answer <- 7
		if n, err := s.get(t.Context()); n != 7 || err != nil || attempts != 1 {
			t.Errorf("got %d, %v after %d attempts, want the answer of the first attempt", n, err, attempts)
		}
		time.Sleep(sharedFor)
		end()
		if n, err := s.get(t.Context()); n != 7 || !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the gateway: %d, %v", n, err)
		}
	})
}
