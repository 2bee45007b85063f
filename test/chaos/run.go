package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/check"
	"github.com/shardwatch/shardwatch/internal/etcdtest"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// patience is how long anything that must happen may take. It is a bound for
// tests that hang, not a promise: those are in the report.
const patience = 90 * time.Second

// briefly is how long etcd's own watch may take to tell what others have heard
// already.
const briefly = 5 * time.Second

// Run builds and starts everything, runs the cycles and returns what came of
// them. Violations are in the report; an error says that the run itself could
// not go on, and comes with the report of what was done before.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if err := cfg.Validate(); err != nil {
		return Report{}, fmt.Errorf("chaos: %w", err)
	}
	if cfg.Say == nil {
		cfg.Say = func(string, ...any) {}
	}
	r := &run{cfg: cfg, keys: keyspace{cfg.Prefixes, cfg.Keys}, truth: newTruth(), report: newReport(cfg)}
	err := r.run(ctx)
	r.report.finish()
	if err != nil {
		r.report.Error = err.Error()
	}
	return r.report, err
}

// run is one run.
type run struct {
	cfg      Config
	keys     keyspace
	etcd     *etcd
	requests *requestLog
	cluster  *Cluster
	load     *workload
	truth    *truth
	crowd    *crowd
	mirrors  []*mirror
	answers  answers
	scene    *Scene
	report   Report
	counted  map[kind]int // violations of watchers that are in the report
	passing  *clientv3.Client

	watchesAtEtcd atomic.Int64 // the most seen since the last look
}

func (r *run) run(ctx context.Context) (err error) {
	if err := r.start(ctx); err != nil {
		return err
	}
	defer r.etcd.close()
	defer r.cluster.stop()
	defer func() {
		err = errors.Join(err, r.crowd.close())
		if r.passing != nil {
			err = errors.Join(err, r.passing.Close())
		}
	}()

	g, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	background := func(f func() error) {
		g.Go(func() error {
			if err := f(); err != nil && ctx.Err() == nil {
				return err
			}
			return nil
		})
	}
	background(func() error { return r.truth.run(ctx, r.etcd.client) })
	background(func() error { return r.crowd.run(ctx) })
	background(func() error { return r.sample(ctx) })
	g.Go(func() error {
		defer cancel()
		return r.cycles(ctx)
	})
	return g.Wait()
}

// start brings everything up to the point where watchers can watch.
func (r *run) start(ctx context.Context) (err error) {
	say, cfg := r.cfg.Say, r.cfg
	say("building cachenode and etcd")
	node := cfg.Cachenode
	if node == "" {
		if node, err = build(ctx, cfg.Dir); err != nil {
			return err
		}
	}
	store, err := etcdtest.Binary(ctx)
	if err != nil {
		return err
	}
	say("starting etcd with %d keys under %d prefixes", cfg.Prefixes*cfg.Keys, cfg.Prefixes)
	if r.etcd, err = startEtcd(ctx, store, cfg.Dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.etcd.close()
		}
	}()
	r.requests = &requestLog{etcd: r.etcd}
	r.load = &workload{client: r.etcd.client, keys: r.keys, rate: cfg.Rate, seed: cfg.Seed, percent: cfg.Passed, bigs: cfg.Big}
	if err := r.load.load(ctx); err != nil {
		return err
	}
	say("starting %d nodes with %d shards, %d replicas each", cfg.Nodes, cfg.Shards, cfg.Replicas)
	if r.cluster, err = newCluster(node, cfg.Dir, r.etcd.endpoint, cfg.Nodes, cfg.Shards, cfg.Replicas); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, r.cluster.logs(2000))
			r.cluster.stop()
		}
	}()
	if err := r.cluster.Start(); err != nil {
		return err
	}
	if err := r.cluster.WaitReady(ctx, patience); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 1<<32))
	nodes := r.cluster.targets()
	var ws []wish
	order, has := kinds(cfg.APIs, cfg.Watches)
	for _, k := range order {
		ws = append(ws, wishes(k, has[k], cfg.Mix, r.keys, kv.Revision(r.load.acked.newest()), rng)...)
	}
	if slices.Contains(cfg.APIs, Etcd) && cfg.Passed > 0 {
		if r.passing, err = dialEtcd(addrs(nodes)); err != nil {
			return err
		}
		r.load.passed = &passed{client: r.passing, keys: r.keys, acked: &r.load.acked}
	}
	r.crowd, err = newCrowd(nodes, cfg.Clients, ws, r.truth, rng)
	return err
}

// cycles runs the cycles and repeats those that are void.
func (r *run) cycles(ctx context.Context) error {
	if c := r.crowd.mirrors; c != nil {
		r.mirrors = newMirrors(ctx, c, r.keys)
	}
	r.cfg.Say("starting %d watches over %d clients", r.cfg.Watches, len(r.crowd.groups))
	if err := r.crowd.reach(ctx, r.load.acked.newest(), patience); err != nil {
		return r.withLogs(err)
	}
	r.scene = &Scene{
		Cluster: r.cluster, Away: r.cfg.Away, Asleep: r.cfg.Asleep, Say: r.cfg.Say,
		keys: r.keys, acked: &r.load.acked, crowd: r.crowd, answers: &r.answers, apis: r.cfg.APIs,
	}
	known := Faults()
	for done, tries := 0, 0; done < r.cfg.Cycles; tries++ {
		if tries >= 3*r.cfg.Cycles {
			return fmt.Errorf("%d of %d cycles were void: the machine does not reach %d writes/s", tries-done, tries, r.cfg.MinRate)
		}
		name := r.cfg.Faults[done%len(r.cfg.Faults)]
		r.scene.Seed = r.cfg.Seed + uint64(tries)
		c, err := r.cycle(ctx, known[name])
		c.Number = len(r.report.Cycles) + 1
		r.report.add(c)
		r.cfg.Say("cycle %d/%d: %s", done+1, r.cfg.Cycles, c)
		if err != nil {
			return r.withLogs(err)
		}
		if c.Void == "" {
			done++
		}
	}
	return nil
}

// cycle writes, strikes, waits until all is well, and judges.
func (r *run) cycle(ctx context.Context, f Fault) (c Cycle, err error) {
	c = Cycle{Fault: f.Name()}
	if _, err := r.requests.next(ctx); err != nil {
		return c, err
	}
	r.watchesAtEtcd.Store(0)
	began, writes := time.Now(), r.load.writes.Load()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	readersDone := r.readEverywhere(ctx, stop)
	go func() { stopped <- r.load.run(ctx, stop) }()
	strike := func() error {
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		r.crowd.take() // measure from here
		if err := f.Strike(ctx, r.scene); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		if err := r.cluster.WaitReady(ctx, patience); err != nil {
			return err
		}
		if err := r.crowd.reach(ctx, r.load.acked.newest(), patience); err != nil {
			return err
		}
		return pause(ctx, r.cfg.Duration-time.Since(began))
	}
	err = strike()
	close(stop)
	err = errors.Join(err, <-stopped)
	readersDone()
	c.Seconds = time.Since(began).Seconds()
	c.WritesPerSecond = float64(r.load.writes.Load()-writes) / c.Seconds
	if r.scene.last != nil {
		c.Node, c.Owned = r.scene.last.Name, r.scene.owned
	}
	if err != nil {
		r.count(&c)
		return c, err
	}
	if c.WritesPerSecond < float64(r.cfg.MinRate) {
		c.Void = fmt.Sprintf("%.0f writes/s, fewer than %d", c.WritesPerSecond, r.cfg.MinRate)
	}
	return c, r.judge(ctx, &c)
}

// readEverywhere reads a little from every node, whatever happens to it, until
// stop is closed. The function it returns waits for the end of it.
func (r *run) readEverywhere(ctx context.Context, stop <-chan struct{}) (wait func()) {
	var g sync.WaitGroup
	for i, n := range r.cluster.Nodes {
		for j, api := range r.cfg.APIs {
			reader, err := newReader(api, n, &r.load.acked)
			if err != nil {
				r.answers.add(answer{api: api}, err)
				continue
			}
			gently := pace{at: 2, most: math.MaxInt, every: 100 * time.Millisecond, patience: 3 * time.Second}
			g.Go(func() {
				defer reader.close()
				reader.read(ctx, stop, gently, r.keys, r.scene.Seed<<8|uint64(i*2+j), &r.answers)
			})
		}
	}
	return g.Wait
}

// judge waits until all have etcd's revision and checks what was seen. Void
// cycles are judged as well: a violation is one at any rate.
func (r *run) judge(ctx context.Context, c *Cycle) error {
	rev, err := r.etcd.revision(ctx)
	if err != nil {
		return err
	}
	late := r.crowd.reach(ctx, rev, patience)
	if err := r.truth.reach(ctx, rev, patience); err != nil {
		return err // without the truth there is nothing to judge by
	}
	r.crowd.finish(ctx, rev, briefly)
	c.part(r.crowd.take())
	r.count(c)
	c.WatchesAtEtcd = int(r.watchesAtEtcd.Load())
	counts, err := r.requests.next(ctx)
	if err != nil {
		return err
	}
	c.ListsAtEtcd, c.ListSample, c.ListsPassed = counts.Lists, counts.Sample, counts.Passed

	for _, m := range r.mirrors {
		r.found(c, string(nativeClient), m.judge(ctx, r.truth, rev, patience))
	}
	r.listEverywhere(ctx, c, rev)
	_ = r.truth.reach(ctx, r.answers.newest(), briefly) // what is beyond is wrong
	for api, j := range r.answers.judge(r.truth.history) {
		c.read(api, j)
		r.found(c, api, j.broken)
	}
	if p := r.load.passed; p != nil {
		judged, unknown, broken := p.judge(r.truth.history)
		c.Written, c.Unknown = judged, unknown
		r.found(c, Etcd, broken)
	}
	return late
}

// count notes what the watchers saw go wrong since the last call.
func (r *run) count(c *Cycle) {
	first, all := r.crowd.violations()
	r.report.note(first)
	for k, n := range all {
		c.broken(string(k), n-r.counted[k])
	}
	r.counted = all
}

// found notes what else has gone wrong.
func (r *run) found(c *Cycle, by string, vs []check.Violation) {
	c.broken(by, len(vs))
	r.report.note(vs)
}

// listEverywhere lists everything at every node, by every API.
func (r *run) listEverywhere(ctx context.Context, c *Cycle, rev int64) {
	for _, n := range r.cluster.Nodes {
		for _, api := range r.cfg.APIs {
			answer, err := r.everything(ctx, api, n)
			if err == nil {
				r.answers.add(answer, nil)
				continue
			}
			// After the fault has healed there is no excuse.
			r.found(c, api, []check.Violation{{
				Promise: check.PromiseEqual, Watcher: fmt.Sprintf("list of everything at %s by the API %s", n.Name, api), Revision: kv.Revision(rev),
				Expected: "an answer", Got: err.Error(),
			}})
		}
	}
}

// everything lists all keys at one node.
func (r *run) everything(ctx context.Context, api string, n *Node) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reader, err := newReader(api, n, &r.load.acked)
	if err != nil {
		return answer{}, err
	}
	defer reader.close()
	return reader.ask(ctx, question{r: kv.Prefix("/")})
}

// sample looks at etcd all the time for the most watches it has.
func (r *run) sample(ctx context.Context) error {
	for {
		m, err := r.etcd.metrics(ctx)
		if err != nil {
			return err
		}
		n := int64(m.sum("etcd_debugging_mvcc_watcher_total"))
		for old := r.watchesAtEtcd.Load(); n > old && !r.watchesAtEtcd.CompareAndSwap(old, n); old = r.watchesAtEtcd.Load() {
		}
		if err := pause(ctx, 300*time.Millisecond); err != nil {
			return err
		}
	}
}

func (r *run) withLogs(err error) error {
	return fmt.Errorf("%w\n%s", err, r.cluster.logs(3000))
}
