package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/nodetest"
)

// load is something that both sides do.
type load struct {
	// Kind is "list", "get", "write", "open", "watch" or "idle".
	Kind string `json:"kind"`
	// Keys is how many keys there are, or watches.
	Keys int  `json:"keys,omitempty"`
	Mode mode `json:"mode,omitempty"`
	// Clients is how many read at a time.
	Clients int `json:"clients,omitempty"`
	// Rate is how many events are delivered per second.
	Rate int `json:"rate,omitempty"`
	// OneNode: all of them at one endpoint.
	OneNode bool `json:"one_node,omitempty"`
}

func (l load) String() string {
	switch l.Kind {
	case "list":
		text := fmt.Sprintf("list %d keys, %s, %d at a time", l.Keys, l.Mode, l.Clients)
		if l.OneNode {
			text += ", at one node"
		}
		return text
	case "get":
		return fmt.Sprintf("get, %s, %d at a time", l.Mode, l.Clients)
	case "watch":
		return fmt.Sprintf("%d watches of a prefix, %d events/s", l.Keys, l.Rate)
	case "open":
		return fmt.Sprintf("open %d watches (%d events/s)", l.Keys, l.Rate)
	case "write":
		return fmt.Sprintf("the writes for %d watches, %d events/s, unwatched", l.Keys, l.Rate)
	}
	return l.Kind
}

// result is what a load cost one side.
type result struct {
	load
	Side  int   `json:"side"`
	Units int64 `json:"units"` // keys listed, gets, events delivered, seconds
	measured
}

// run runs all loads on both sides.
func run(ctx context.Context, cfg config) (results []result, err error) {
	if cfg.cachenode == "" {
		if cfg.cachenode, err = nodetest.Build(ctx, cfg.dir); err != nil {
			return nil, err
		}
	}
	for i, name := range cfg.sides {
		b := &bench{config: cfg, number: i, wanted: regexp.MustCompile(cfg.only)}
		for j, keys := range cfg.keys {
			dir := filepath.Join(cfg.dir, fmt.Sprintf("side-%d-%d", i, keys))
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, err
			}
			if b.side, err = newSide(ctx, name, cfg.cachenode, dir); err != nil {
				return nil, err
			}
			if err := b.all(ctx, keys, j == 0); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		results = append(results, b.results...)
	}
	return results, nil
}

// bench runs the loads of one side.
type bench struct {
	config
	number  int
	side    *side
	wanted  *regexp.Regexp
	results []result
}

// all runs the loads over a number of keys, and the others with the first.
// Each group of loads finds fresh processes: memory that one has left behind
// would be the next one's.
func (b *bench) all(ctx context.Context, keys int, first bool) (err error) {
	if err := b.side.etcd.Start(ctx); err != nil {
		return err
	}
	err = b.side.fill(ctx, keys, b.valueSize)
	if stopped := b.side.etcd.Stop(); err == nil {
		err = stopped
	}
	if err != nil {
		return err
	}
	for _, m := range []mode{serializable, linearizable, paged} {
		if err := b.fresh(ctx, keys, b.listsOf(keys, m)); err != nil {
			return err
		}
	}
	if !first {
		return nil
	}
	if err := b.fresh(ctx, keys, b.getsOf(keys)); err != nil {
		return err
	}
	for _, watches := range b.watches {
		for _, rate := range b.rates {
			if err := b.fresh(ctx, keys, b.watchesOf(watches, rate)); err != nil {
				return err
			}
		}
	}
	return nil
}

// step is a load and what runs it. It returns how many units it did.
type step struct {
	load   load
	run    func(ctx context.Context) (units int64, err error)
	needed bool // by others of the group
}

// fresh runs steps on fresh processes that have read everything once.
func (b *bench) fresh(ctx context.Context, keys int, steps []step) (err error) {
	matches := func(s step) bool { return b.wanted.MatchString(s.load.String()) }
	if !slices.ContainsFunc(steps, matches) {
		return nil
	}
	if err := b.side.start(ctx); err != nil {
		return err
	}
	defer func() {
		if stopped := b.side.stop(); err == nil {
			err = stopped
		}
	}()
	c, err := newCrowd(1, b.side.endpoints())
	if err != nil {
		return err
	}
	err = c.each(ctx, len(b.side.endpoints()), func(ctx context.Context, conn *grpc.ClientConn, _ int) error {
		return list(ctx, conn, linearizable, keys, 0)
	})
	c.close()
	if err != nil {
		return err
	}
	for _, s := range steps {
		if !s.needed && !matches(s) {
			continue
		}
		r := result{load: s.load, Side: b.number}
		r.measured, err = b.side.measure(func() (err error) {
			r.Units, err = s.run(ctx)
			return err
		})
		if err != nil {
			return fmt.Errorf("%v: %w", s.load, err)
		}
		b.results = append(b.results, r)
		b.say("%s: %v: %d in %v, %v of CPU, peak %d MiB", b.side.name, s.load, r.Units, r.Wall.Round(time.Millisecond), r.CPU, r.peak()>>20)
	}
	return nil
}

// listsOf are the lists of all keys, by more and more clients.
func (b *bench) listsOf(keys int, m mode) (steps []step) {
	add := func(l load) {
		times := max(2, (b.listed+keys*l.Clients-1)/(keys*l.Clients))
		steps = append(steps, step{load: l, run: func(ctx context.Context) (int64, error) {
			endpoints := b.side.endpoints()
			if l.OneNode {
				endpoints = endpoints[:1]
			}
			c, err := newCrowd(l.Clients, endpoints)
			if err != nil {
				return 0, err
			}
			defer c.close()
			return int64(times * l.Clients * keys), c.each(ctx, times, func(ctx context.Context, conn *grpc.ClientConn, _ int) error {
				return list(ctx, conn, m, keys, b.page)
			})
		}})
	}
	most := 0
	for _, clients := range b.clients {
		add(load{Kind: "list", Keys: keys, Mode: m, Clients: clients})
		most = max(most, clients)
	}
	if m == linearizable {
		add(load{Kind: "list", Keys: keys, Mode: m, Clients: most, OneNode: true})
	}
	return steps
}

// getsOf are reads of single keys, and what it costs to do nothing.
func (b *bench) getsOf(keys int) (steps []step) {
	for _, m := range []mode{serializable, linearizable} {
		for _, clients := range b.clients {
			times := (b.gets + clients - 1) / clients
			steps = append(steps, step{load: load{Kind: "get", Mode: m, Clients: clients}, run: func(ctx context.Context) (int64, error) {
				c, err := newCrowd(clients, b.side.endpoints())
				if err != nil {
					return 0, err
				}
				defer c.close()
				return int64(times * clients), c.each(ctx, times, func(ctx context.Context, conn *grpc.ClientConn, i int) error {
					return get(ctx, conn, m, keyName(i*7919%keys))
				})
			}})
		}
	}
	idle := min(5*time.Second, time.Duration(b.gets)*time.Millisecond) // gets are few in a short run
	return append(steps, step{load: load{Kind: "idle"}, run: func(ctx context.Context) (int64, error) {
		select {
		case <-time.After(idle):
			return max(1, int64(idle/time.Second)), nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}})
}

// watchesOf is so many watches of a prefix, and the same writes without them.
func (b *bench) watchesOf(watches, delivered int) []step {
	rate := max(1, delivered/watches)
	events := max(1, int(b.deliver.Seconds()*float64(rate)))
	var w *watchers
	return []step{
		{needed: true, load: load{Kind: "write", Keys: watches, Rate: delivered}, run: func(ctx context.Context) (int64, error) {
			cli, err := b.side.writer()
			if err != nil {
				return 0, err
			}
			defer cli.Close()
			return int64(events), write(ctx, cli, events, rate, b.eventSize)
		}},
		{needed: true, load: load{Kind: "open", Keys: watches, Rate: delivered}, run: func(ctx context.Context) (n int64, err error) {
			cli, err := b.side.writer()
			if err != nil {
				return 0, err
			}
			defer cli.Close()
			r, err := cli.Get(ctx, watchPrefix)
			if err != nil {
				return 0, err
			}
			w, err = openWatchers(ctx, b.side.endpoints(), watches, b.perStream, r.Header.Revision, int64(events))
			return int64(watches), err
		}},
		{needed: true, load: load{Kind: "watch", Keys: watches, Rate: delivered}, run: func(ctx context.Context) (int64, error) {
			defer w.close()
			cli, err := b.side.writer()
			if err != nil {
				return 0, err
			}
			defer cli.Close()
			g, ctx := errgroup.WithContext(ctx)
			g.Go(func() error { return write(ctx, cli, events, rate, b.eventSize) })
			g.Go(w.run)
			err = g.Wait()
			if want := int64(events) * int64(watches); err == nil && w.delivered.Load() != want {
				err = fmt.Errorf("%d events were delivered, want %d", w.delivered.Load(), want)
			}
			return w.delivered.Load(), err
		}},
	}
}
