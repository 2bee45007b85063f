package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// crowd is all watchers of a run, distributed over several clients of each kind.
type crowd struct {
	groups   []group
	program  string
	remotes  []*remotes     // the groups that are processes
	mirrors  *client.Client // of the native API; nil: it is not used
	watchers []*watcher
	truth    *truth
	gate     *gate // slow watchers wait here
	// still: streams stay on their nodes unless there is a fault.
	still *atomic.Bool
}

// group is the watchers of one client.
type group interface {
	// run watches until ctx ends.
	run(ctx context.Context)
	close() error
}

// newCrowd distributes the watchers of each kind over the given number of clients. One native
// client runs in a separate process, from program, the path of this repository's chaos command;
// with an empty path it runs in this process.
func newCrowd(nodes []target, clients int, program string, ws []wish, t *truth, rng *rand.Rand) (*crowd, error) {
	if clients == 1 {
		program = "" // the mirrors need a client in this process
	}
	c := &crowd{program: program, truth: t, gate: newGate(), still: &atomic.Bool{}}
	of := map[kind][][]*watcher{}
	for i, wish := range ws {
		w := newWatcher(wish, t)
		w.gate = c.gate
		c.watchers = append(c.watchers, w)
		if of[wish.by] == nil {
			of[wish.by] = make([][]*watcher, clients)
		}
		of[wish.by][i%clients] = append(of[wish.by][i%clients], w)
	}
	for i := range clients {
		for _, k := range slices.Sorted(maps.Keys(of)) {
			if len(of[k][i]) == 0 {
				continue
			}
			g, err := c.newGroup(k, nodes, of[k][i], i, rng)
			if err != nil {
				return nil, errors.Join(err, c.close())
			}
			c.groups = append(c.groups, g)
		}
	}
	return c, nil
}

// remoteClient is the native client with a separate process.
const remoteClient = 0

// slowStream is the stream that is a slow reader, with all its watches.
const slowStream = 1

func (c *crowd) newGroup(k kind, nodes []target, ws []*watcher, i int, rng *rand.Rand) (group, error) {
	switch k {
	case etcdClient:
		return newEtcdClients(nodes, ws, i%2 == 0)
	case etcdStream:
		s, err := newStream(nodes, ws, rand.New(rand.NewPCG(rng.Uint64(), 0)))
		if err != nil {
			return nil, err
		}
		s.sleeps, s.still = i == slowStream, c.still
		return s, nil
	}
	if i == remoteClient && c.program != "" {
		r := &remotes{bin: c.program, nodes: nodes, watches: ws}
		c.remotes = append(c.remotes, r)
		return r, nil
	}
	n, err := newNatives(nodes, watchesOf(ws))
	if err != nil {
		return nil, err
	}
	c.mirrors = n.client
	return n, nil
}

// run watches until ctx ends. Updates are judged on arrival, so they need not be kept.
func (c *crowd) run(ctx context.Context) error {
	var g sync.WaitGroup
	defer g.Wait()
	for _, group := range c.groups {
		g.Go(func() { group.run(ctx) })
	}
	for pause(ctx, 200*time.Millisecond) == nil {
		for _, w := range c.watchers {
			w.judge()
		}
	}
	return ctx.Err()
}

func (c *crowd) close() error {
	var errs []error
	for _, g := range c.groups {
		errs = append(errs, g.close())
	}
	return errors.Join(errs...)
}

// reach waits until every watcher has all events in its range up to rev.
func (c *crowd) reach(ctx context.Context, rev int64, within time.Duration) error {
	if err := c.truth.reach(ctx, rev, within); err != nil {
		return err
	}
	return poll(ctx, within, fmt.Sprintf("all watchers to reach revision %d", rev), func() error {
		var first error
		behind := 0
		for _, w := range c.watchers {
			if err := w.complete(kv.Revision(rev)); err != nil {
				behind++
				if first == nil {
					first = err
				}
			}
		}
		if behind > 0 {
			return fmt.Errorf("%d of %d are behind, such as: %w", behind, len(c.watchers), first)
		}
		return nil
	})
}

// finish judges every watcher up to rev, with all its updates. The truth gets time to receive them:
// a lease may expire, or a write arrive late, after the writers have stopped.
func (c *crowd) finish(ctx context.Context, rev int64, within time.Duration) {
	rest := c.watchers
	_ = poll(ctx, within, "etcd's own watch", func() error {
		rest = slices.DeleteFunc(slices.Clone(rest), func(w *watcher) bool { return w.finish(kv.Revision(rev), false) })
		if len(rest) > 0 {
			return fmt.Errorf("%d watchers have seen more", len(rest))
		}
		return nil
	})
	for _, w := range rest {
		w.finish(kv.Revision(rev), true)
	}
}

// take returns the measurements of the watchers since the last call, by kind.
func (c *crowd) take() map[kind]*measured {
	out := map[kind]*measured{}
	for _, w := range c.watchers {
		m := out[w.wish.by]
		if m == nil {
			m = &measured{moves: map[string]int{}}
			out[w.wish.by] = m
		}
		m.watches++
		m.add(w.take(), w.wish.watch.Name)
	}
	return out
}

// measured has the measurements of some watchers in a window.
type measured struct {
	watches  int
	late     delays
	catchUps catchUps
	longest  time.Duration  // of the delays
	worst    string         // that delay and its watcher
	moves    map[string]int // by nodes and reason
	events   int
}

func (m *measured) add(w window, name string) {
	m.events += w.events
	m.catchUps.add(w.catchUps)
	for _, r := range w.reasons {
		m.moves[r]++
	}
	if w.asleep {
		return
	}
	if w.gap > m.longest {
		m.longest = w.gap
		m.worst = fmt.Sprintf("%v at revision %d, %s", w.gap.Round(time.Millisecond), w.gapAt, name)
	}
	switch {
	case w.events == 0: // it has no event that could be late
	case w.moved:
		m.late.Moved = append(m.late.Moved, w.gap)
	default:
		m.late.Stayed = append(m.late.Stayed, w.gap)
	}
}

// violations returns the first violations of all watchers, and their number by kind.
func (c *crowd) violations() (first []check.Violation, all map[kind]int) {
	const most = 100
	all = map[kind]int{}
	for _, w := range c.watchers {
		vs, n := w.violations()
		all[w.wish.by] += n
		first = append(first, vs[:min(len(vs), most-len(first))]...)
	}
	return first, all
}
