package main

import (
	"context"
	"fmt"
	"os"
)

// cancelOnSignal returns a context that ends with the first signal, for an orderly
// shutdown. The second signal calls exit with code 130: the operator does not want
// to wait. stop ends the context and the goroutine, and waits for the goroutine.
func cancelOnSignal(parent context.Context, signals <-chan os.Signal, exit func(code int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; ; n++ {
			select {
			case s := <-signals:
				if n > 1 {
					exit(exitForced)
					return
				}
				cancel(fmt.Errorf("received %s", s))
			case <-quit:
				return
			}
		}
	}()
	return ctx, func() {
		close(quit)
		<-done
		cancel(nil)
	}
}
