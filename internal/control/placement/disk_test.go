package placement_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shardwatch/shardwatch/internal/control/placement"
)

// A voter keeps running while its disk is full, whether it led or not. The others lead without it,
// and it votes again when the disk takes writes.
func TestVoterWithAFullDiskKeepsRunning(t *testing.T) {
	for name, leads := range map[string]bool{"leader": true, "follower": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				c := newCluster(t, true)
				logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
				c.edit = func(cfg *placement.Config) { cfg.Logger = logger }
				nodes := []*node{c.add("n1", 3), c.add("n2", 3), c.add("n3", 3)}
				time.Sleep(10 * time.Second)
				c.founded(nodes...)
				lead := leader(t, nodes...)
				full := lead
				if !leads {
					full = without(nodes, lead)[0]
				}
				full.disk.Fail(true)
				if !leads {
					lead.stop() // a follower writes its vote
					lead.start()
				}
				time.Sleep(30 * time.Second)
				select {
				case <-full.done:
					t.Fatalf("the node has ended: %v", full.err)
				default:
				}
				rest := without(nodes, full)
				leader(t, rest...)
				touch(t, rest[0])
				full.disk.Fail(false)
				time.Sleep(30 * time.Second)
				if _, led := full.p.Leader(); !led || !full.p.IsVoter(full.name) {
					t.Error("the node does not vote again")
				}
				if got, want := full.p.Map().Version, rest[0].p.Map().Version; got != want {
					t.Errorf("map of version %d, want %d", got, want)
				}
				for _, n := range nodes {
					n.stop()
				}
				if n := strings.Count(log.String(), "does not vote until the disk"); n != 1 {
					t.Errorf("logged %d times, want once:\n%s", n, &log)
				}
			})
		})
	}
}

// The only voter keeps running while its disk is full, stops in time, and votes again later.
func TestOnlyVoterWithAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, true)
		n := c.add("n1", 1)
		time.Sleep(10 * time.Second)
		c.founded(n)
		n.disk.Fail(true)
		time.Sleep(time.Minute)
		select {
		case <-n.done:
			t.Fatalf("the node has ended: %v", n.err)
		default:
		}
		n.disk.Fail(false)
		time.Sleep(time.Minute)
		touch(t, n)
		n.disk.Fail(true)
		time.Sleep(time.Minute)
		began := time.Now()
		n.stop()
		if took := time.Since(began); n.err != nil || took > 10*time.Second {
			t.Errorf("stopped after %s: %v", took, n.err)
		}
	})
}
