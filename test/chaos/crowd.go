package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/check"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// crowd is all watchers of a run, spread over some clients.
type crowd struct {
	clients  []*client.Client
	watchers []*watcher
	truth    *truth
}

func newCrowd(endpoints []string, clients int, ws []wish, t *truth) (*crowd, error) {
	c := &crowd{truth: t}
	for range clients {
		cl, err := client.New(client.Config{Endpoints: endpoints})
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.clients = append(c.clients, cl)
	}
	for _, w := range ws {
		c.watchers = append(c.watchers, newWatcher(w, t))
	}
	return c, nil
}

// run watches until ctx ends. What is seen is judged all the while, so that
// it need not be kept.
func (c *crowd) run(ctx context.Context) error {
	var g sync.WaitGroup
	defer g.Wait()
	for i, w := range c.watchers {
		g.Go(func() { w.run(ctx, c.clients[i%len(c.clients)]) })
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
	for _, cl := range c.clients {
		errs = append(errs, cl.Close())
	}
	return errors.Join(errs...)
}

// reach waits until every watcher has everything up to rev, as far as its
// range is touched by it.
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

// finish judges every watcher up to rev.
func (c *crowd) finish(rev int64) {
	for _, w := range c.watchers {
		w.finish(kv.Revision(rev))
	}
}

// take returns what the watchers measured since the last call.
func (c *crowd) take() measured {
	out := measured{moves: map[string]int{}}
	var worst time.Duration
	for _, w := range c.watchers {
		m := w.take()
		out.events += m.events
		for _, r := range m.reasons {
			out.moves[r]++
		}
		if m.gap > worst {
			worst = m.gap
			out.worst = fmt.Sprintf("%v at revision %d, %s", m.gap.Round(time.Millisecond), m.gapAt, w.wish.watch.Name)
		}
		switch {
		case m.events == 0: // nothing to be late with
		case m.moved:
			out.gaps.Moved = append(out.gaps.Moved, m.gap)
		default:
			out.gaps.Stayed = append(out.gaps.Stayed, m.gap)
		}
	}
	return out
}

// measured is what all watchers measured in a window.
type measured struct {
	gaps   gaps
	worst  string         // the longest gap and whose it was
	moves  map[string]int // by nodes and reason
	events int
}

// violations returns the first violations of all watchers, and how many there
// were.
func (c *crowd) violations() (first []check.Violation, all int) {
	const most = 100
	for _, w := range c.watchers {
		vs, n := w.violations()
		all += n
		first = append(first, vs[:min(len(vs), most-len(first))]...)
	}
	return first, all
}
