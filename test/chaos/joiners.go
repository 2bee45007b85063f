package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/shardwatch/shardwatch/client"
	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
)

// joiners are watchers that repeatedly start late: each starts at an old revision, catches up, is
// judged, and ends.
type joiners struct {
	truth *truth
	keys  keyspace
	all   []*joiner
	gate  *gate // closed: no joiner starts
}

// joiner is one joiner, with its own client.
type joiner struct {
	*joiners
	by     kind
	native *client.Client
	etcd   *clientv3.Client
	rng    *rand.Rand
	busy   atomic.Bool

	mu       sync.Mutex
	joins    int               // guarded by mu
	events   int               // guarded by mu
	catchUps catchUps          // guarded by mu
	broken   []check.Violation // guarded by mu
	doing    string            // guarded by mu; for error messages
}

func newJoiners(nodes []target, apis []string, each int, t *truth, keys keyspace, rng *rand.Rand) (*joiners, error) {
	js := &joiners{truth: t, keys: keys, gate: newGate()}
	for _, api := range apis {
		for range each {
			j := &joiner{joiners: js, by: nativeClient, rng: rand.New(rand.NewPCG(rng.Uint64(), 1))}
			var err error
			if api == Native {
				j.native, err = client.New(client.Config{Endpoints: addrs(nodes)})
			} else {
				j.by = etcdClient
				j.etcd, err = dialEtcd(addrs(nodes))
			}
			if err != nil {
				return nil, errors.Join(err, js.close())
			}
			js.all = append(js.all, j)
		}
	}
	return js, nil
}

func (js *joiners) close() error {
	var errs []error
	for _, j := range js.all {
		if j.native != nil {
			errs = append(errs, j.native.Close())
		} else {
			errs = append(errs, j.etcd.Close())
		}
	}
	return errors.Join(errs...)
}

// run joins until ctx ends.
func (js *joiners) run(ctx context.Context) error {
	var g sync.WaitGroup
	for _, j := range js.all {
		g.Go(func() {
			for ctx.Err() == nil {
				js.gate.pass(ctx)
				j.busy.Store(true)
				j.join(ctx)
				j.busy.Store(false)
				_ = pause(ctx, time.Duration(200+j.rng.IntN(1500))*time.Millisecond)
			}
		})
	}
	g.Wait()
	return ctx.Err()
}

// settle waits until no joiner is running, and starts none until the gate is opened. A joiner that
// does not finish in time is a violation.
func (js *joiners) settle(ctx context.Context, within time.Duration) {
	js.gate.close()
	_ = pause(ctx, 10*time.Millisecond) // joiners that have passed the gate count as busy now
	_ = poll(ctx, within, "late joiners", func() error {
		for _, j := range js.all {
			if j.busy.Load() {
				return errors.New("a joiner has not caught up")
			}
		}
		return nil
	})
	for _, j := range js.all {
		if !j.busy.Load() {
			continue
		}
		j.mu.Lock()
		j.broken = append(j.broken, check.Violation{Promise: check.PromiseReliable, Watcher: j.doing, Expected: "to catch up", Got: fmt.Sprintf("not within %v", within)})
		j.mu.Unlock()
	}
}

// joined waits until each joiner has joined the given number of times since the last take.
func (js *joiners) joined(ctx context.Context, times int, within time.Duration) error {
	return poll(ctx, within, "late joiners", func() error {
		for _, j := range js.all {
			j.mu.Lock()
			n, doing := j.joins, j.doing
			j.mu.Unlock()
			if n < times {
				return fmt.Errorf("%s has joined %d times of %d; now it is %s", j.by, n, times, doing)
			}
		}
		return nil
	})
}

// take adds the results of all joins since the last call to a cycle's parts, and returns the
// violations.
func (js *joiners) take(c *Cycle) (broken []check.Violation) {
	for _, j := range js.all {
		j.mu.Lock()
		p := c.partOf(string(j.by))
		p.Joins += j.joins
		p.Events += j.events
		p.JoinCatchUps.add(j.catchUps)
		p.Violations += len(j.broken)
		c.Events += j.events
		c.Violations += len(j.broken)
		broken = append(broken, j.broken...)
		j.joins, j.events, j.catchUps, j.broken = 0, 0, catchUps{}, nil
		j.mu.Unlock()
	}
	return broken
}

// join starts at an old revision and watches until it has all events up to the revision at its
// start.
func (j *joiner) join(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := check.Watch{Range: kv.Single(j.keys.any(j.rng)), Prev: j.rng.IntN(3) == 0}
	switch j.rng.IntN(4) {
	case 0:
		w.Range, w.Merged = kv.Prefix("/"), true
	case 1, 2:
		w.Range = kv.Prefix(j.keys.prefix(j.rng.IntN(j.keys.prefixes)))
	}
	until := j.truth.history().Head()
	w.Start = j.start(int64(until))
	w.Name = fmt.Sprintf("%s joiner of %v from %d", j.by, w.Range, w.Start)
	j.mu.Lock()
	j.doing = w.Name
	j.mu.Unlock()
	c := check.NewChecker(w)
	var r catchUps
	var err error
	enough := func() bool { return c.Complete(j.truth.history(), until) }
	if j.by == nativeClient {
		r, err = j.joinNative(ctx, w, c, enough)
	} else {
		r, err = j.joinEtcd(ctx, w, c, enough)
	}
	if ctx.Err() != nil {
		return
	}
	// Events may arrive before etcd's own watch reports them.
	if terr := j.truth.reach(ctx, int64(c.Reached()), patience); terr != nil {
		return // the run fails for another reason
	}
	if err == nil {
		c.Finish(j.truth.history(), until)
	} else {
		c.Judge(j.truth.history())
	}
	broken, _ := c.Violations()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.joins++
	j.events += c.Events()
	j.catchUps.add(r)
	j.broken = append(j.broken, broken...)
	if err != nil && !errors.Is(err, errGone) {
		j.broken = append(j.broken, check.Violation{Promise: check.PromiseResumable, Watcher: w.Name, Expected: "to continue", Got: err.Error()})
	}
}

// errGone reports the expected end of a join: etcd has compacted its start.
var errGone = errors.New("compacted")

// start chooses a revision that the truth has. A restored etcd also has older events, for which a
// watch cannot be judged.
func (j *joiner) start(head int64) kv.Revision {
	return max(j.anyStart(head), j.truth.now.Load().base+1)
}

// anyStart chooses a revision: near the head, anywhere above etcd's compact revision, exactly
// there, or, if the API can serve it, much older.
func (j *joiner) anyStart(head int64) kv.Revision {
	compacted := max(j.truth.compacted.Load(), 1)
	switch n := j.rng.IntN(8); {
	case n < 3:
		return kv.Revision(max(2, head-j.rng.Int64N(500)))
	case n < 6 || j.by != nativeClient:
		return kv.Revision(compacted + j.rng.Int64N(max(1, head-compacted)) + 1)
	case n == 6:
		return kv.Revision(max(2, compacted+j.rng.Int64N(3)-1))
	}
	return kv.Revision(2 + j.rng.Int64N(max(1, head-1)))
}

func (j *joiner) joinNative(ctx context.Context, w check.Watch, c *check.Checker, enough func() bool) (r catchUps, err error) {
	opts := []client.WatchOption{client.FromRevision(int64(w.Start)), client.WithProgress(), client.OnResume(func(client.Resume) {})}
	if w.Prev {
		opts = append(opts, client.WithPrevKV())
	}
	cw := j.native.Watch(ctx, client.Between(w.Range.Start, w.Range.End), opts...)
	defer cw.Close()
	for !enough() {
		u, err := cw.Next(ctx)
		var compacted *client.CompactedError
		switch {
		case errors.As(err, &compacted):
			r.Relists++
			return r, errGone
		case err != nil:
			return r, err
		}
		op := opFrom(&u)
		switch op.Kind {
		case check.OpDelta:
			r.Deltas++
		case check.OpState:
			r.Resyncs++
		}
		c.Feed(op)
		c.Judge(j.truth.history())
	}
	return r, nil
}

func (j *joiner) joinEtcd(ctx context.Context, w check.Watch, c *check.Checker, enough func() bool) (r catchUps, err error) {
	key, end := w.Range.Etcd()
	opts := []clientv3.OpOption{clientv3.WithRev(int64(w.Start)), clientv3.WithFragment()}
	if len(end) > 0 {
		opts = append(opts, clientv3.WithRange(string(end)))
	}
	if w.Prev {
		opts = append(opts, clientv3.WithPrevKV())
	}
	if enough() {
		return r, nil
	}
	e := newEtcdWatch(newWatcher(wish{by: j.by, watch: w}, j.truth))
	e.watcher.checker = c // e passes its updates
	for resp := range j.etcd.Watch(ctx, string(key), opts...) {
		if err := resp.Err(); err != nil {
			if resp.CompactRevision > 0 && e.next <= resp.CompactRevision && resp.CompactRevision <= j.truth.compacted.Load() {
				return r, errGone
			}
			return r, err
		}
		e.delivered(resp.Events)
		c.Judge(j.truth.history())
		if enough() {
			return r, nil
		}
	}
	return r, errors.New("the channel was closed")
}
