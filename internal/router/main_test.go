package router_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a router over the node until the test ends.
func start(tb testing.TB, h *cachetest.Script, n *cachetest.Node) *router.Router {
	tb.Helper()
	r := router.New(router.Config{Shards: n, Clock: h, Self: n.Self, MaxStaleness: time.Minute})
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		n.Stop()
	})
	return r
}

// bell is a waker that remembers whether it was called.
type bell struct{ rung atomic.Bool }

func newBell() *bell {
	b := &bell{}
	b.Wake() // a new watch is read without a wake-up
	return b
}

func (b *bell) Wake() { b.rung.Store(true) }

// heard reports whether the bell has rung since the last call.
func (b *bell) heard() bool { return b.rung.Swap(false) }
