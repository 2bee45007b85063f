package wait_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/wait"
)

func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var signal wait.Signal
		changed, again := signal.Wait(), signal.Wait()
		if wait.Over(changed) {
			t.Error("a signal without a change has come")
		}
		signal.Notify()
		if !wait.Over(changed) || !wait.Over(again) || wait.Over(signal.Wait()) {
			t.Error("a change notifies those that waited before it, and no others")
		}

		bell := wait.NewBell()
		bell.Wake()
		bell.Wake()
		if !wait.For(t.Context(), bell) || wait.Over(bell) {
			t.Error("two calls before the goroutine receives wake it once")
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if !wait.Sleep(ctx, time.Second) || time.Since(began) != time.Second {
			t.Errorf("slept %v, want a second", time.Since(began))
		}
		if wait.For(ctx, bell) || wait.Sleep(ctx, time.Hour) || time.Since(began) != time.Minute {
			t.Errorf("waited %v, want until the context's end", time.Since(began))
		}
	})
}
