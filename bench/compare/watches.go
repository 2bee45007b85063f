package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/shardwatch/shardwatch/internal/testing/proc"
)

// The figures of watch loads.
const (
	figureCPU       = "CPU per delivery, all processes"
	figureAbove     = "… above the same writes unwatched"
	figureBehind    = "… of the etcd behind"
	figureTogether  = "events in a message"
	figureSpeed     = "deliveries/s"
	figureP50       = "latency p50"
	figureP99       = "latency p99"
	figureP999      = "latency p99.9"
	figureOwner     = "latency p99, at the owner"
	figureReplica   = "latency p99, at replicas"
	figurePut       = "etcd's put p50, watched"
	figureUnwatched = "etcd's put p50, unwatched"
	figureWrite     = "CPU per write, unwatched"
	figureReplay    = "CPU per event replayed"
)

// watchLoads are all combinations of the properties of watches. The combinations that differ from the
// usual one in one property, other than the watched range and its size, are standard. --full adds the ones
// that differ in two, except for other value sizes, which show nothing new, and for a part of the keys as
// fast as possible, where etcd's writes are the limit.
func watchLoads(c *config) (out []load) {
	for i, mode := range c.modes {
		for j, what := range c.whats {
			for k, watches := range c.watches {
				for l, size := range c.sizes {
					for m, pace := range c.paces {
						ways := 0
						for _, index := range []int{i, j, k, l, m} {
							ways += min(index, 1)
						}
						w := watchLoad{shape: shape{mode: mode, what: what, watches: watches, size: size}, saturated: pace == paceSaturated}
						sides := []string{sideEtcd, sideProxy, sideTier, sideNative}
						if what == whatPrefix {
							sides = append(sides, sideBare)
						}
						sides = append(sides, w.messaging()...)
						out = append(out, load{
							name: fmt.Sprintf("watch/%s/%s/%d/%dB/%s", mode, what, watches, size, pace), sides: sides, run: w.run, setup: everywhere(),
							standard: ways <= 1 && j == 0 && l == 0, whole: ways <= 1 || ways == 2 && l == 0 && (j == 0 || m == 0),
						})
					}
				}
			}
		}
	}
	// The same watches over keys in one shard and in many.
	for _, shards := range []int{1, 16, 64} {
		w := watchLoad{shape: shape{mode: c.modes[0], what: whatPrefix, watches: c.watches[0], size: c.sizes[0]}}
		out = append(out, load{
			name: fmt.Sprintf("spread/%d-shards", shards), sides: []string{sideEtcd, sideTier, sideNative}, run: w.run, whole: true, setup: over(shards),
		})
	}
	return append(out, load{
		name: "stopped", sides: []string{sideEtcd, sideProxy, sideTier, sideNative, sideBare}, standard: true, setup: everywhere(),
		run: stoppedLoad{shape{mode: c.modes[0], what: whatPrefix, watches: c.watches[0], size: 1 << 10}}.run,
	})
}

// watchLoad is a set of watches and the writes for them.
type watchLoad struct {
	shape
	saturated bool
}

// messaging returns the sides without etcd's API for a load: paced watches that match every event.
// NATS has up to a hundred of them on a connection, and a raw write one.
func (w watchLoad) messaging() (sides []string) {
	if w.what != whatPrefix || w.saturated || w.mode == modeStream {
		return nil
	}
	sides = []string{sideNATS}
	if w.mode == modeConnection {
		sides = append(sides, sideTCP)
	}
	return sides
}

// usualRate is the number of events that a paced load delivers per second, over all watches. With a
// connection for each watch, 50,000 are more than etcd can deliver on two cores.
func usualRate(mode string) int {
	if mode == modeConnection {
		return 20_000
	}
	return 50_000
}

// pace returns the number of events to write, and their rate per second.
func (w watchLoad) pace(c *config) (events int, perSecond float64) {
	const fastest = 1_000 // puts per second, so that the load measures watches
	if w.saturated {
		return max(1, c.deliveries/w.matched()), 0
	}
	rate := c.rate
	if rate == 0 {
		rate = usualRate(w.mode)
	}
	perSecond = min(fastest, float64(rate)/float64(w.matched()))
	return max(1, int(perSecond*c.deliver.Seconds())), perSecond
}

func (w watchLoad) run(ctx context.Context, t *trial) error {
	events, perSecond := w.pace(t.config)
	quiet, unwatched, err := t.unwatched(ctx, w.shape, max(1, events/2), perSecond)
	if err != nil {
		return err
	}
	var large []grpc.DialOption
	if w.saturated {
		large = append(large, grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(10*window))
	}
	a, err := t.audience(ctx, w.shape, events, large...)
	if err != nil {
		return err
	}
	defer a.close()
	if err := pause(ctx, t.rest/2); err != nil { // do not measure garbage from opening the watches
		return err
	}
	watched, spent, failed := t.run(ctx, a, perSecond)
	n, whole := a.delivered.Load(), a.expected()
	if failed != nil && n < whole/10 {
		return failed
	}
	// The cost is recorded even if a side has cut streams before the end.
	base := time.Duration(2 * float64(quiet.all) * float64(n) / float64(whole)) // it had half of the writes
	t.noteTime(figureCPU, spent.all, n)
	t.noteTime(figureAbove, spent.all-base, n)
	if len(t.side.behind()) > 0 {
		t.noteTime(figureBehind, spent.behind, n)
	}
	t.note(figureUnwatched, unitTime, unwatched.quantile(0.5).Seconds())
	t.note(figureTogether, unitCount, float64(a.carried.Load())/float64(max(a.messages.Load(), 1)))
	if failed != nil {
		return fmt.Errorf("after %d of %d deliveries, on which its figures are based: %w", n, whole, failed)
	}
	t.note(figurePut, unitTime, watched.quantile(0.5).Seconds())
	if w.saturated {
		t.note(figureSpeed, unitRate, float64(n)/spent.wall.Seconds())
		return nil
	}
	return t.noteLatency(ctx, a)
}

// noteLatency records the latency of events: for all watches, and if the keys have one owner,
// separately at the owner and at replicas.
func (t *trial) noteLatency(ctx context.Context, a *audience) (err error) {
	var owner string
	if t.side.nodes != nil {
		if owner, err = t.side.owner(ctx, a.key(0), a.key(watchFolders-1)); err != nil {
			return err
		}
	}
	all, near, far := new(histogram), new(histogram), new(histogram)
	for end, h := range a.latency {
		all.merge(h)
		if end == owner {
			near.merge(h)
		} else {
			far.merge(h)
		}
	}
	t.note(figureP50, unitTime, all.quantile(0.5).Seconds())
	t.note(figureP99, unitTime, all.quantile(0.99).Seconds())
	t.note(figureP999, unitTime, all.quantile(0.999).Seconds())
	if near.total() > 0 && far.total() > 0 {
		t.note(figureOwner, unitTime, near.quantile(0.99).Seconds())
		t.note(figureReplica, unitTime, far.quantile(0.99).Seconds())
	}
	return nil
}

// audience opens the watches of a load for future events.
func (t *trial) audience(ctx context.Context, sh shape, events int, options ...grpc.DialOption) (*audience, error) {
	after, err := t.revision(ctx)
	if err != nil {
		return nil, err
	}
	a := newAudience(t.side, sh, after, events)
	a.options = append(a.options, options...)
	if err := a.open(ctx); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// revision returns the revision of the side's etcd.
func (t *trial) revision(ctx context.Context) (int64, error) {
	to, err := t.side.writer()
	if err != nil {
		return 0, err
	}
	defer to.Close()
	return to.revision(ctx)
}

// unwatched writes events without watches, and returns their cost and the durations of the puts.
func (t *trial) unwatched(ctx context.Context, sh shape, events int, perSecond float64) (used, *histogram, error) {
	after, err := t.revision(ctx)
	if err != nil {
		return used{}, nil, err
	}
	before, err := t.side.used()
	if err != nil {
		return used{}, nil, err
	}
	puts, err := t.write(ctx, newAudience(t.side, sh, after, events), perSecond)
	if err != nil {
		return used{}, nil, err
	}
	spent, err := t.side.since(before)
	return spent, puts, err
}

func (t *trial) write(ctx context.Context, a *audience, perSecond float64) (*histogram, error) {
	to, err := t.side.writer()
	if err != nil {
		return nil, err
	}
	defer to.Close()
	return a.write(ctx, to, perSecond)
}

// run writes an audience's events and reads them, and returns the durations of the puts and the
// total cost, up to a failure if there is one.
func (t *trial) run(ctx context.Context, a *audience, perSecond float64) (puts *histogram, spent used, err error) {
	profiled, err := t.profiled()
	if err != nil {
		return nil, spent, err
	}
	defer profiled()
	before, err := t.side.used()
	if err != nil {
		return nil, spent, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		if puts, err = t.write(gctx, a, perSecond); err != nil {
			a.close() // do not wait for events that cannot arrive
		}
		return err
	})
	g.Go(func() error { return a.read(gctx) })
	err = g.Wait()
	if got, want := a.delivered.Load(), a.expected(); err == nil && got != want {
		err = fmt.Errorf("%d events were delivered, want %d", got, want)
	}
	spent, failed := t.side.since(before)
	return puts, spent, errors.Join(err, failed)
}

// profiled profiles the servers until done is called, if configured. View the result with: perf
// report --no-children -i FILE.
func (t *trial) profiled() (done func(), err error) {
	if t.profile == "" {
		return func() {}, nil
	}
	name := filepath.Join(t.profile, strings.ReplaceAll(t.load, "/", "-")+"-"+t.side.kind)
	var pids []string
	for _, pid := range t.side.servers() {
		pids = append(pids, strconv.Itoa(pid))
	}
	p, err := proc.Start(name+".log", "perf", "record", "-F", "499", "-g", "-o", name+".perf", "-p", strings.Join(pids, ","))
	if err != nil {
		return nil, fmt.Errorf("make a profile: %w", err)
	}
	return p.Interrupt, nil
}

// stoppedLoad measures watches, and then the same watches with an additional client that does not
// read.
type stoppedLoad struct{ shape }

func (l stoppedLoad) run(ctx context.Context, t *trial) error {
	events, perSecond := watchLoad{shape: l.shape}.pace(t.config)
	for _, with := range []bool{false, true} {
		a, err := t.audience(ctx, l.shape, events)
		if err != nil {
			return err
		}
		defer a.close()
		label := ", all read"
		if with {
			label = ", one does not read"
			mute, err := t.audience(ctx, shape{mode: modeConnection, what: whatPrefix, watches: 1, size: l.size}, events)
			if err != nil {
				return err
			}
			defer mute.close()
		}
		before, err := proc.Memory(t.side.all())
		if err != nil {
			return err
		}
		if _, _, err := t.run(ctx, a, perSecond); err != nil {
			return err
		}
		a.close()
		all := new(histogram)
		for _, h := range a.latency {
			all.merge(h)
		}
		t.note(figureP50+label, unitTime, all.quantile(0.5).Seconds())
		t.note(figureP99+label, unitTime, all.quantile(0.99).Seconds())
		after, err := proc.Memory(t.side.all())
		if err != nil {
			return err
		}
		t.note("memory grew by"+label, unitBytes, float64(after-before))
	}
	return nil
}
