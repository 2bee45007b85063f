package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

// replayLoads are watches that start at an old revision.
func replayLoads(c *config) (out []load) {
	revisions := []int{c.revisions}
	if long := 10_000; c.revisions < long {
		revisions = append(revisions, long)
	}
	for i, n := range revisions {
		sh := shape{mode: c.modes[0], what: whatPrefix, watches: c.watches[0], size: c.sizes[0]}
		out = append(out, load{
			name: fmt.Sprintf("replay/%d/%d-revisions", sh.watches, n), sides: []string{sideEtcd, sideProxy, sideTier, sideNative, sideBare}, standard: i == 0, whole: true, setup: everywhere(),
			run: func(ctx context.Context, t *trial) error { return replay(ctx, t, sh, n) },
		})
	}
	return out
}

func replay(ctx context.Context, t *trial, sh shape, revisions int) error {
	after, err := t.revision(ctx)
	if err != nil {
		return err
	}
	a := newAudience(t.side, sh, after, revisions)
	defer a.close()
	if _, err := t.write(ctx, a, 0); err != nil {
		return err
	}
	if err := pause(ctx, t.rest/2); err != nil {
		return err
	}
	before, err := t.side.used()
	if err != nil {
		return err
	}
	if err := a.openAndRead(ctx); err != nil {
		return err
	}
	spent, err := t.side.since(before)
	if err != nil {
		return err
	}
	if got, want := a.delivered.Load(), a.expected(); got != want {
		return fmt.Errorf("%d events were delivered, want %d", got, want)
	}
	t.noteTime(figureReplay, spent.all, a.delivered.Load())
	t.note("events/s", unitRate, float64(a.delivered.Load())/spent.wall.Seconds())
	return nil
}

// stormLoads kill a node, so that its watches move.
func stormLoads(c *config) []load {
	sh := shape{mode: c.modes[0], what: whatPrefix, watches: c.watches[len(c.watches)-1], size: c.sizes[0]}
	return []load{{
		name: fmt.Sprintf("storm/%d", sh.watches), sides: []string{sideTier, sideNative}, standard: true, setup: everywhere(),
		run: func(ctx context.Context, t *trial) error { return storm(ctx, t, sh) },
	}}
}

// storm kills one of three nodes during writes. Its watches resume on the others at the same time,
// each after its last received revision. The storm ends when they have caught up with the writes
// before their arrival.
func storm(ctx context.Context, t *trial, sh shape) error {
	sh.watches *= len(t.side.ends) // the killed node has as many as the name of the load says
	events, perSecond := watchLoad{shape: sh}.pace(t.config)
	a, err := t.audience(ctx, sh, events)
	if err != nil {
		return err
	}
	defer a.close()
	dead := t.side.nodes.Nodes[0]
	var killed, moved, turn atomic.Int64 // killed: ns since the audience began
	caughtUp := new(histogram)
	a.lost = func(ctx context.Context, s *watchStream, _ error) error {
		if s.end != dead.Client && killed.Load() == 0 {
			return fmt.Errorf("the stream to %s broke, although the node is alive", s.end)
		}
		if err := a.move(ctx, s, t.side.ends[1+turn.Add(1)%2]); err != nil {
			return err
		}
		n := int64(len(s.watches))
		moved.Add(n)
		caughtUp.add(time.Since(a.began)-time.Duration(killed.Load()), n)
		return nil
	}
	before, err := etcdtest.Scrape(ctx, t.side.store)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := pause(gctx, t.rest/2)
		killed.Store(int64(time.Since(a.began)))
		dead.Kill()
		return err
	})
	g.Go(func() error {
		_, _, err := t.run(gctx, a, perSecond)
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	after, err := etcdtest.Scrape(ctx, t.side.store)
	if err != nil {
		return err
	}
	t.note("watches moved", unitCount, float64(moved.Load()))
	t.note("half have caught up after", unitTime, caughtUp.quantile(0.5).Seconds())
	t.note("all have caught up after", unitTime, caughtUp.quantile(1).Seconds())
	t.note("reads at etcd meanwhile", unitCount, float64(after.Ranges()-before.Ranges()))
	return nil
}

// move resumes the watches of a stream on another endpoint, and returns when they have caught up
// with the writes acknowledged before their arrival.
func (a *audience) move(ctx context.Context, s *watchStream, end string) error {
	s.end = end
	conn, err := a.dial(end)
	if err != nil {
		return err
	}
	const tries = 100 // a node may refuse during the takeover
	for i := 1; ; i++ {
		if err = a.create(ctx, s, conn); err == nil {
			break
		}
		if wait := pause(ctx, 50*time.Millisecond); i == tries || wait != nil {
			return errors.Join(err, wait)
		}
	}
	r, now := watched{native: a.native()}, a.newest.Load()
	for slices.ContainsFunc(s.watches, func(p *position) bool { return p.last < now && p.left > 0 }) {
		if err := s.RecvMsg(&r); err != nil {
			return fmt.Errorf("read a watch that has moved: %w", err)
		}
		if err := a.take(s, &r); err != nil {
			return err
		}
	}
	return nil
}

// memoryLoads measure memory: of watches without events, and of keys.
func memoryLoads(c *config) (out []load) {
	add := func(mode string, watches int, standard bool) {
		sh := shape{mode: mode, what: whatPrefix, watches: watches, size: c.sizes[0]}
		out = append(out, load{
			name: fmt.Sprintf("memory/%s/%d-watches", mode, watches), sides: []string{sideEtcd, sideProxy, sideTier, sideNative, sideBare}, standard: standard, whole: true, setup: everywhere(),
			run: func(ctx context.Context, t *trial) error { return heldByWatches(ctx, t, sh) },
		})
	}
	few, many := c.watches[0], c.watches[len(c.watches)-1]
	for _, mode := range c.modes {
		if mode == modeShared {
			add(mode, 10*many, false)
			add(mode, many, true)
			continue
		}
		if many != few {
			add(mode, many, false)
		}
		add(mode, few, mode == modeConnection)
	}
	return append(out, load{
		name: fmt.Sprintf("keys/%d", c.held), sides: []string{sideEtcd, sideTier}, standard: true,
		setup: setup{keys: c.held, size: c.sizes[0], key: keyName}, run: heldByKeys,
	})
}

func heldByWatches(ctx context.Context, t *trial, sh shape) error {
	memory := func() (int64, error) {
		if err := pause(ctx, t.rest); err != nil {
			return 0, err
		}
		return proc.Memory(t.side.all())
	}
	before, err := memory()
	if err != nil {
		return err
	}
	a, err := t.audience(ctx, sh, 0)
	if err != nil {
		return err
	}
	defer a.close()
	after, err := memory()
	if err != nil {
		return err
	}
	t.note("memory per watch", unitBytes, float64(after-before)/float64(sh.watches))
	t.note("memory with all watches", unitBytes, float64(after))
	return nil
}

// heldByKeys measures the additional memory of each process with keys that existed before the cache
// nodes started. It excludes other memory for recent writes, such as the window.
func heldByKeys(ctx context.Context, t *trial) error {
	empty, err := startSide(ctx, t.config, t.side.kind, t.at+"-empty", setup{})
	if err != nil {
		return err
	}
	defer empty.stop() //nolint:errcheck // it is stopped below; this is for failures
	memory := func(s *side) (float64, error) {
		if err := pause(ctx, 2*t.rest); err != nil {
			return 0, err
		}
		n, err := proc.Memory(s.servers())
		return float64(n) / float64(len(s.servers())), err
	}
	without, err := memory(empty)
	if err != nil {
		return err
	}
	if err := empty.stop(); err != nil {
		return err
	}
	with, err := memory(t.side)
	if err != nil {
		return err
	}
	each := (with - without) / float64(t.held)
	t.note("memory per key, in each process", unitBytes, each)
	t.note("… beyond key and value", unitBytes, each-float64(len(keyName(0))+t.sizes[0]))
	return nil
}
