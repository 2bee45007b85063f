package server_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/shardwatch/shardwatch/api/proto/shardwatch/v1"
	"github.com/shardwatch/shardwatch/internal/cache"
	"github.com/shardwatch/shardwatch/internal/edge/server"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/cachetest"
	"github.com/shardwatch/shardwatch/internal/testing/testkit"
)

const (
	state  = pb.SyncKind_SYNC_KIND_STATE
	resync = pb.SyncKind_SYNC_KIND_RESYNC
	delta  = pb.SyncKind_SYNC_KIND_DELTA
)

// forgetful makes caches keep no deletions, and no events before the last revision.
func forgetful(c *cache.Config) { c.WindowBytes, c.TombstoneBytes = 1, 0 }

// full returns a history with the given number of keys of 1 KB.
func full(keys int) *cachetest.Script {
	h := cachetest.New()
	value := strings.Repeat("v", 1000)
	for i := range keys {
		h.Commit(cachetest.Put(fmt.Sprintf("%c/%05d", 'a'+i%26, i), value))
	}
	h.Commit(cachetest.Delete("a/gone"), cachetest.Delete("z/gone"))
	return h
}

// Clients that need the same state at the same time share one unit, and its chunks are encoded
// once. Clients that arrive shortly afterwards share it, too.
func TestAHerdSharesAUnit(t *testing.T) {
	const clients, keys = 30, 1000
	for name, tune := range map[string]func(*cache.Config){"resync": forgetful, "delta": short} {
		t.Run(name, func(t *testing.T) {
			h := full(keys)
			// Even on a slow machine, the last client arrives in time.
			r := startStopped(t, h, options{server: func(c *server.Config) { brief(c); c.Patience.Share = time.Hour }, cache: tune}, func(*server.Server) {})
			r.serving()
			var wg sync.WaitGroup
			for range clients {
				s := watchOn(t, dial(t, r.clients))
				wg.Go(func() {
					f := follow(t, h, kv.Range{})
					f.until(f.on(s), h.Now())
					if f.units[resync]+f.units[delta] != 1 {
						t.Errorf("a client was sent %v", f.units)
					}
				})
			}
			wg.Wait()
			stats := r.server.Units()
			kind := delta
			if name == "resync" {
				kind = resync
			}
			sent := stats.Sent[kind]
			if sent.Batches != clients || sent.Keys < clients*keys || sent.Bytes < clients*keys*1000 {
				t.Errorf("sent: %+v", sent)
			}
			if made := sent.Bytes / max(1, stats.Made); made < clients/4 {
				t.Errorf("%d bytes were encoded to send %d", stats.Made, sent.Bytes)
			}
			testkit.Eventually(t, "nobody waits", func() bool {
				now := r.server.Units()
				return now.Waiting == 0 && now.Running == 0
			})
		})
	}
}

// A client that does not read keeps the only slot only for a moment, then others have their turn.
// When the client reads again, it continues from its last position, or begins the unit again if the
// unit has been dropped.
func TestUnitsThatAreNotRead(t *testing.T) {
	for name, hold := range map[string]time.Duration{"held": time.Hour, "dropped": time.Second} {
		t.Run(name, func(t *testing.T) {
			h := full(8000)
			r := startStopped(t, h, options{
				server: func(c *server.Config) {
					brief(c)
					c.MaxResyncs, c.FragmentBytes = 1, 64<<10
					c.Patience.Stalled, c.Patience.Hold, c.Patience.Sweep = 20*time.Millisecond, hold, 5*time.Millisecond
				}, cache: forgetful,
			}, func(*server.Server) {})
			r.serving()
			slow := follow(t, h, kv.Range{})
			stuck := slow.on(watchOn(t, dial(t, r.clients)))
			for slow.unit == nil {
				slow.take(stuck.next())
			}
			quick := follow(t, h, kv.Range{Start: "b", End: "c"})
			quick.until(quick.on(watchOn(t, dial(t, r.clients))), h.Now())
			if hold < time.Hour {
				again := quick.began - 1 // a slow machine may begin its unit again, too
				testkit.Eventually(t, "the unit is dropped", func() bool { return r.server.Units().Abandoned > int64(again) })
			}
			slow.until(stuck, h.Now())
			if slow.units[resync] != 1 {
				t.Errorf("%v", slow.units)
			}
			if (slow.began > 1) != (hold < time.Hour) {
				t.Errorf("the slow client began %d units", slow.began)
			}
		})
	}
}

// The number of units in flight is bounded. Other watches wait for a slot, both those that request
// the state and those that fell behind.
func TestUnitsWaitForASlot(t *testing.T) {
	h := full(100)
	r := start(t, h, options{server: func(c *server.Config) { c.MaxResyncs = 1 }})
	r.serving()
	r.node.Gate(1).Limit(h.Now())
	h.Commit(cachetest.Put("a/late", "1")) // the gate delays this event
	s := r.watch()
	const watches = 50
	for i := range watches {
		key := fmt.Sprintf("a/%05d", 26*i)
		s.create(&pb.CreateWatch{WatchId: int64(i + 1), Key: []byte(key), Start: &pb.CreateWatch_StateFirst{StateFirst: true}})
	}
	testkit.Eventually(t, "one unit has begun, and the other watches wait", func() bool {
		u := r.server.Units()
		return u.Running == 1 && u.Waiting == watches-1
	})
	s.cancel(watches)
	if e := s.ended(watches); e.GetReason() != pb.EndReason_END_REASON_CANCELED || e.GetResumeRevision() != 0 {
		t.Errorf("a watch cancelled while it waited: %v", e)
	}
	r.node.Gate(1).Limit(0)
	for ends := 0; ends < watches-1; {
		if m := s.next(); m.GetSync().GetEnd() {
			ends++
		} else if m.GetEnded() != nil {
			t.Fatalf("got %v", m)
		}
	}
	testkit.Eventually(t, "no unit is left", func() bool {
		u := r.server.Units()
		return u.Running == 0 && u.Waiting == 0 && u.Begun >= watches-1 && u.Sent[state].Batches == watches-1 && u.Waited > 0
	})
}

// Streams that end while their watches wait leave no unit behind.
func TestUnitsOfStreamsThatEnd(t *testing.T) {
	h := full(3000)
	r := start(t, h, options{server: func(c *server.Config) { brief(c); c.MaxResyncs, c.ResyncRate = 2, 4<<20 }, cache: forgetful})
	r.serving()
	for i := range 30 {
		s := r.watch()
		for id := range int64(10) {
			s.create(&pb.CreateWatch{
				WatchId: id + 1, Key: []byte{byte('a' + id)}, RangeEnd: []byte{0}, AllowSync: true,
				Start: &pb.CreateWatch_StartRevision{StartRevision: first},
			})
		}
		for range i {
			s.next()
		}
		s.end()
	}
	testkit.Eventually(t, "no unit is left", func() bool {
		u := r.server.Units()
		return u.Running == 0 && u.Waiting == 0 && r.node.Idle() == nil && r.server.Status().GetWatches() == 0
	})
}
