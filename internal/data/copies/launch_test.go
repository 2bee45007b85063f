package copies

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/replica"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

// silent is the clock before the first answer of etcd.
type silent struct{ Clock }

func (silent) Last() (kv.Revision, time.Time, uint64) { return 0, time.Time{}, 0 }
func (silent) LookNow()                               {}

// A copy uses its part of a saved history, or of the seed of its predecessors. The rest is freed once the copy is
// loaded, and its own content when it ends.
func TestACopyFreesUnusedHistory(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := New(Config{Clock: silent{}})
	defer s.running.Wait()
	defer stop()
	launch := func(cfg cache.Config) *Copy {
		return s.launch(ctx, 1, 1, cfg, &replica.Failover{
			Candidates: func() []replica.Candidate {
				return []replica.Candidate{{Name: replica.Etcd, Direct: true, Source: empty{}}}
			},
			Warm:   func() []replica.Candidate { return nil },
			Logger: slog.New(slog.DiscardHandler),
		})
	}
	restarted := func() (*Copy, weak.Pointer[cache.Past]) {
		cfg := cache.Defaults()
		cfg.History = &cache.Past{Progress: 5, Floor: 4, DeltaFloor: 4}
		return launch(cfg), weak.Make(cfg.History)
	}
	inheriting := func() (*Copy, weak.Pointer[cache.Seed]) {
		cfg := cache.Defaults()
		cfg.Stateless, cfg.Seed = true, cache.Empty(5)
		return launch(cfg), weak.Make(cfg.Seed)
	}

	h, past := restarted()
	<-h.Cache.Ready()
	if floor := h.Cache.Floor(); floor != 4 {
		t.Errorf("the floor is %d, want 4: the history is not used", floor)
	}
	testkit.Eventually(t, "the history is freed", func() bool {
		runtime.GC()
		return past.Value() == nil
	})
	heir, seed := inheriting()
	<-heir.Cache.Ready()
	testkit.Eventually(t, "the seed is freed", func() bool {
		runtime.GC()
		return seed.Value() == nil
	})
	runtime.KeepAlive(h)
	runtime.KeepAlive(heir)

	if cache.Inherit(h.Cache.Range(), false, h.Cache) == nil {
		t.Error("nothing can be inherited from a running copy")
	}
	h.stop()
	<-h.done
	if cache.Inherit(h.Cache.Range(), false, h.Cache) != nil {
		t.Error("the content of a copy that has ended is not released")
	}
}
