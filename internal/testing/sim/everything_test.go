package sim_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/files/testseed"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/sim"
	"github.com/shardwatch/shardwatch/internal/testing/sim/memetcd"
)

// load writes, watches and reads at random until it is stopped.
type load struct {
	c    *sim.Cluster
	from kv.Revision // the oldest revision a watch may start at
	wg   sync.WaitGroup
	stop chan struct{}
}

func startLoad(c *sim.Cluster, seed uint64) *load {
	l := &load{c: c, from: c.Etcd.Revision() + 1, stop: make(chan struct{})}
	for i := range 2 {
		l.wg.Go(func() { l.write(rand.New(rand.NewPCG(seed, uint64(100+i)))) })
	}
	l.wg.Go(func() { l.read(rand.New(rand.NewPCG(seed, 200))) })
	return l
}

func (l *load) end() {
	close(l.stop)
	l.wg.Wait()
}

func (l *load) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-l.stop:
		return false
	}
}

func anyKey(r *rand.Rand) string { return fmt.Sprintf("/d%d/k%d", r.IntN(8), r.IntN(8)) }

// write makes random changes, occasionally many at once.
func (l *load) write(r *rand.Rand) {
	for n := 0; l.sleep(time.Duration(20+r.IntN(250)) * time.Millisecond); n++ {
		value := fmt.Sprint(n)
		var err error
		switch k := r.IntN(20); {
		case k < 12:
			_, err = l.c.Etcd.Put(anyKey(r), value)
		case k < 15:
			_, err = l.c.Etcd.Delete(anyKey(r))
		case k < 16:
			_, err = l.c.Etcd.DeleteRange(kv.Prefix(fmt.Sprintf("/d%d/", r.IntN(8))))
		default:
			keys := map[string]bool{}
			for range 2 + r.IntN(6) {
				keys[anyKey(r)] = true
			}
			var ops []memetcd.Op
			for key := range keys {
				if r.IntN(4) == 0 {
					ops = append(ops, memetcd.OpDelete(kv.Single(key)))
				} else {
					ops = append(ops, memetcd.OpPut(key, value))
				}
			}
			_, err = l.c.Etcd.Txn(ops...)
		}
		if err != nil {
			panic(err) // the test itself is wrong
		}
	}
}

// read checks answers, and accepts refusals.
func (l *load) read(r *rand.Rand) {
	names := l.c.Names()
	for l.sleep(time.Duration(50+r.IntN(500)) * time.Millisecond) {
		ask := sim.Ask{Linearizable: r.IntN(2) == 0, MaxStaleness: time.Duration(100+r.IntN(5000)) * time.Millisecond}
		l.c.CheckRead(names[r.IntN(len(names))], anyRange(r), ask)
	}
}

func anyRange(r *rand.Rand) kv.Range {
	switch r.IntN(4) {
	case 0:
		return kv.Single(anyKey(r))
	case 1:
		return kv.Prefix(fmt.Sprintf("/d%d/", r.IntN(8)))
	case 2:
		a, b := anyKey(r), anyKey(r)
		if a != b {
			return kv.Range{Start: min(a, b), End: max(a, b)}
		}
	}
	return kv.Range{}
}

// watch adds a watcher with random options.
func (l *load) watch(cl *client.Client, r *rand.Rand) {
	req := sim.WatchRequest{Range: anyRange(r), Prev: r.IntN(2) == 0}
	switch r.IntN(4) {
	case 0:
		req.State = true
	case 1:
		req.From = max(l.from, 1+l.c.RevisionAt(time.Now().Add(-time.Duration(r.IntN(20))*time.Second)))
	case 2:
		req.From = l.c.Etcd.Revision() + 1 + kv.Revision(r.IntN(20)) // a future revision
	}
	l.c.WatchBy(cl, req)
}

func TestTwoNodesDieAgainAndAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	s := testseed.Of(t)
	run(t, sim.Config{Seed: s}, func(_ *testing.T, c *sim.Cluster) {
		r := c.Rand()
		clients := []*client.Client{c.Client("client1"), c.Client("client2"), c.Client("client3")}
		l := startLoad(c, s)
		for range 12 {
			l.watch(clients[r.IntN(3)], r)
		}
		for end := time.Now().Add(3 * time.Minute); time.Now().Before(end) && c.Ended() == ""; {
			two := slices.Clone(c.Names())
			r.Shuffle(len(two), func(i, j int) { two[i], two[j] = two[j], two[i] })
			two = two[:2]
			for _, n := range two {
				c.Note("kill %s", n)
				c.Kill(n)
				time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
				l.watch(clients[r.IntN(3)], r)
			}
			for _, n := range two {
				c.Note("restart %s", n)
				c.Restart(n)
				time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
			}
			c.AwaitReady()
			time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		}
		l.end()
	})
}

// TestEverything runs if SIM_EVERYTHING is set. It hangs occasionally: gRPC holds a
// stream's lock while it waits for a timer, and while another goroutine waits for that
// lock, the time of a bubble stands still.
func TestEverything(t *testing.T) {
	if os.Getenv("SIM_EVERYTHING") == "" {
		t.Skip("set SIM_EVERYTHING=1 to run it")
	}
	s := testseed.Of(t)
	nodes := 3 + int(s%3)
	run(t, sim.Config{Seed: s, Nodes: nodes}, func(_ *testing.T, c *sim.Cluster) {
		m := &mayhem{c: c, r: c.Rand(), load: startLoad(c, s)}
		for i := range 3 {
			m.clients = append(m.clients, c.Client(fmt.Sprintf("client%d", i+1)))
		}
		for range 10 {
			m.watch()
		}
		for end := time.Now().Add(5 * time.Minute); time.Now().Before(end) && c.Ended() == ""; {
			m.step()
		}
		m.load.end()
		m.mend()
		c.AwaitReady()
	})
}

// mayhem injects random faults, up to three at a time. It may kill all nodes that have a
// shard and compact revisions that they have not seen: no watch may end.
type mayhem struct {
	c       *sim.Cluster
	r       *rand.Rand
	load    *load
	clients []*client.Client
	active  []fault
}

// fault is a fault that lasts for a while.
type fault struct {
	what  string
	hosts []string // the affected hosts
	until time.Time
	end   func()
}

func (m *mayhem) watch() { m.load.watch(m.clients[m.r.IntN(len(m.clients))], m.r) }

// step ends the expired faults, begins another one, and waits.
func (m *mayhem) step() {
	now := time.Now()
	m.active = slices.DeleteFunc(m.active, func(f fault) bool {
		if now.Before(f.until) {
			return false
		}
		m.c.Note("ends: %s", f.what)
		f.end()
		return true
	})
	if m.r.IntN(3) == 0 {
		m.watch()
	}
	if len(m.active) < 3 {
		m.fault()
	}
	time.Sleep(time.Duration(200+m.r.IntN(3000)) * time.Millisecond)
}

// mend ends all faults.
func (m *mayhem) mend() {
	m.c.Note("all faults are ended")
	for _, f := range m.active {
		f.end()
	}
	m.c.HealAll()
}

// touched reports whether a host has a fault.
func (m *mayhem) touched(host string) bool {
	return slices.ContainsFunc(m.active, func(f fault) bool { return slices.Contains(f.hosts, host) })
}

// begins records a fault that lasts at most 12 s.
func (m *mayhem) begins(what string, end func(), hosts ...string) {
	d := time.Duration(200+m.r.IntN(12000)) * time.Millisecond
	m.c.Note("begins: %s, for %v", what, d)
	m.active = append(m.active, fault{what, hosts, time.Now().Add(d), end})
}

func (m *mayhem) fault() {
	c := m.c
	names := c.Names()
	victim := names[m.r.IntN(len(names))]
	hosts := append(names, sim.Etcd, "client1")
	a, b := hosts[m.r.IntN(len(hosts))], hosts[m.r.IntN(len(hosts))]
	quiet := len(m.active) == 0
	switch kind := m.r.IntN(12); {
	case kind < 5 && m.touched(victim):
	case kind >= 5 && kind < 8 && (a == b || m.touched(a) || m.touched(b)):
	case kind < 3:
		c.Kill(victim)
		m.begins("kill "+victim, func() { c.Restart(victim) }, victim)
		if quiet && m.r.IntN(2) == 0 {
			c.Note("its disk is wiped")
			c.Wipe(victim)
		}
	case kind == 3:
		c.Note("drain %s", victim)
		c.Stop(victim)
		m.begins("stopped "+victim, func() { c.Restart(victim) }, victim)
	case kind == 4:
		c.Pause(victim)
		m.begins("pause "+victim, func() { c.Resume(victim) }, victim)
	case kind < 7:
		c.Cut(a, b)
		m.begins("cut "+a+" "+b, func() { c.Heal(a, b) }, a, b)
	case kind == 7:
		c.CutOneWay(a, b)
		m.begins("cut one way "+a+" "+b, func() { c.Heal(a, b) }, a, b)
	case kind == 8:
		c.LoseGossip(0.3)
		m.begins("gossip loses 30 %", func() { c.LoseGossip(0) })
	case kind == 9 && !m.touched("etcd itself"):
		c.Etcd.Pause()
		m.begins("etcd hangs", c.Etcd.Resume, "etcd itself")
	case kind == 10 && !m.touched("etcd itself"):
		c.Etcd.Stop()
		m.begins("etcd is stopped", func() { _ = c.Etcd.Start() }, "etcd itself")
	case kind == 11:
		if at := c.RevisionAt(time.Now().Add(-time.Duration(m.r.IntN(30)) * time.Second)); at > c.Etcd.CompactRevision() {
			c.Note("compact at %d", at)
			_ = c.Etcd.Compact(at)
		}
	}
}
