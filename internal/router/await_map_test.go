package router_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
)

// A stream that begins before the shard map is known waits a bounded time for it.
func TestAwaitMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := cachetest.NewNode("here", cachetest.New(), nil)
		defer n.Stop()
		r := router.New(router.Config{Shards: n, Self: "here"})

		began := time.Now()
		err := r.AwaitMap(t.Context())
		if away := (*kv.UnavailableError)(nil); !errors.As(err, &away) || away.Why != kv.NotReady || away.RetryAfter == 0 {
			t.Errorf("without a map: %v", err)
		}
		if held := time.Since(began); held < time.Second || held > 10*time.Second {
			t.Errorf("waited for %v", held)
		}

		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := r.AwaitMap(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled client: %v", err)
		}

		held := make(chan error)
		go func() { held <- r.AwaitMap(t.Context()) }()
		synctest.Wait()
		r.Kick() // without a map
		synctest.Wait()
		select {
		case err := <-held:
			t.Fatalf("returned without a map: %v", err)
		default:
		}
		n.Use(cachetest.Map(1, nil, "elsewhere"))
		r.Kick()
		began = time.Now()
		if err := errors.Join(<-held, r.AwaitMap(t.Context())); err != nil || time.Since(began) != 0 {
			t.Errorf("with a map: %v, %v late", err, time.Since(began))
		}
	})
}

// A stream does not wait if the map is known, even without a Kick.
func TestAwaitMapLooksAtTheMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := cachetest.NewNode("here", cachetest.New(), nil)
		defer n.Stop()
		r := router.New(router.Config{Shards: n, Self: "here"})
		held := make(chan error)
		go func() { held <- r.AwaitMap(t.Context()) }()
		time.Sleep(time.Second)
		n.Use(cachetest.Map(1, nil, "elsewhere"))
		if err := <-held; err != nil {
			t.Errorf("a map that arrived meanwhile: %v", err)
		}
		began := time.Now()
		if err := r.AwaitMap(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("a known map: %v, after %v", err, time.Since(began))
		}
	})
}
