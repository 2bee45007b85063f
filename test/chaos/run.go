package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/testing/check"
	"github.com/shardwatch/shardwatch/internal/testing/etcdtest"
)

// patience bounds each wait for a required event. It detects hangs and is not a promise: those are
// in the report.
const patience = 90 * time.Second

// briefly bounds the time until etcd's own watch reports events that others have received.
const briefly = 5 * time.Second

// Run builds and starts everything, runs the cycles and returns their report. Violations are in the
// report; an error means that the run itself could not continue, and comes with the report of the
// earlier cycles.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if err := cfg.Validate(); err != nil {
		return Report{}, fmt.Errorf("chaos: %w", err)
	}
	if cfg.Say == nil {
		cfg.Say = func(string, ...any) {}
	}
	report := newReport(cfg)
	err := runSites(ctx, cfg, &report)
	if err != nil {
		report.Error = err.Error()
	}
	return report, err
}

// site is a set-up for several faults, with its cycles.
type site struct {
	members int
	network bool
	flags   []string // of the nodes, in addition to the flags of all sites
	faults  []Fault  // one for each cycle
}

// perSite bounds the cycles of a site, because all history since its start is in memory.
const perSite = 30

// sites distributes the cycles: the faults take turns, and those that need a different etcd or
// different nodes have a site of their own.
func sites(cfg Config) []site {
	var out []site
	at := map[string]int{} // the site with free cycles, by kind
	for i := range cfg.Cycles {
		f, _ := faultNamed(cfg.Faults[i%len(cfg.Faults)])
		members := cfg.Members
		if f.Needs.Members > 0 {
			members = f.Needs.Members
		}
		var flags []string
		if f.Flags != nil {
			flags = f.Flags(cfg)
		}
		what := fmt.Sprint(members, flags, f.Overtakes)
		n, ok := at[what]
		if !ok || len(out[n].faults) == perSite {
			n = len(out)
			at[what] = n
			out = append(out, site{members: members, flags: flags})
		}
		out[n].faults = append(out[n].faults, f)
		out[n].network = out[n].network || f.Needs.Network
	}
	return out
}

func runSites(ctx context.Context, cfg Config, report *Report) (err error) {
	cfg.Say("building cachenode and etcd")
	if cfg.Cachenode == "" {
		if cfg.Cachenode, err = build(ctx, cfg.Dir); err != nil {
			return err
		}
	}
	if cfg.clients, err = buildClients(ctx, cfg.Dir); err != nil {
		return err
	}
	if cfg.programs, err = buildPrograms(ctx, cfg.Dir); err != nil {
		return err
	}
	store, err := etcdtest.Binary(ctx)
	if err != nil {
		return err
	}
	turns := map[string]int{}
	for i, s := range sites(cfg) {
		here := cfg
		here.Members, here.Dir = s.members, filepath.Join(cfg.Dir, fmt.Sprintf("site-%d", i+1))
		here.Seed += uint64(i) << 32
		if err := os.Mkdir(here.Dir, 0o700); err != nil { // an existing directory may have data
			return fmt.Errorf("make room for a site: %w", err)
		}
		r := &run{
			cfg: here, site: s, turns: turns, keys: keyspace{cfg.Prefixes, cfg.Keys}, truth: newTruth(), report: report,
		}
		if err := r.run(ctx, store); err != nil {
			return err
		}
	}
	return nil
}

// run is the run of one site.
type run struct {
	cfg      Config
	site     site
	turns    map[string]int // cycles so far, by fault
	keys     keyspace
	network  *network // nil: everything is on loopback
	etcd     *etcd
	requests requestLogs
	cluster  *Cluster
	load     *workload
	truth    *truth
	crowd    *crowd
	joiners  *joiners
	guests   []*joiners // joiners of a fault; see [Scene.join]
	mirrors  []*checked
	programs []*program
	answers  answers
	scene    *Scene
	report   *Report
	counted  map[kind]int // number of watcher violations already in the report
	passing  *clientv3.Client

	watchesAtEtcd atomic.Int64 // maximum since the last look
	lists         nodeLists
}

func (r *run) run(ctx context.Context, store string) (err error) {
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.start(ctx, store); err != nil {
		return err
	}
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
	var members []*clientv3.Client
	for _, m := range r.etcd.members {
		members = append(members, m.client)
	}
	background(func() error { return r.truth.run(ctx, members...) })
	background(func() error { return r.crowd.run(ctx) })
	background(func() error { return r.joiners.run(ctx) })
	for _, p := range r.programs {
		background(func() error { return p.run(ctx) })
	}
	background(func() error { return r.sample(ctx) })
	background(func() error { return r.lists.run(ctx, r.cluster) })
	g.Go(func() error {
		defer cancel()
		return r.cycles(ctx)
	})
	return g.Wait()
}

// close ends everything that start has started, even if start failed.
func (r *run) close() error {
	var errs []error
	if r.joiners != nil {
		errs = append(errs, r.joiners.close())
	}
	if r.crowd != nil {
		errs = append(errs, r.crowd.close())
	}
	if r.passing != nil {
		errs = append(errs, r.passing.Close())
	}
	if r.cluster != nil {
		r.cluster.stop()
	}
	if r.etcd != nil {
		errs = append(errs, r.etcd.close())
	}
	if r.network != nil {
		errs = append(errs, r.network.close())
	}
	return errors.Join(errs...)
}

// start starts etcd and the nodes, and creates the clients. It does not wait until the nodes are
// ready.
func (r *run) start(ctx context.Context, store string) (err error) {
	say, cfg := r.cfg.Say, r.cfg
	var etcdHosts, nodeHosts []*host
	if r.site.network {
		var names []string
		for i := range cfg.Members + cfg.Nodes + spares {
			names = append(names, fmt.Sprint(i))
		}
		if r.network, err = newNetwork(ctx, names); err != nil {
			return fmt.Errorf("make a network: %w", err)
		}
		etcdHosts, nodeHosts = r.network.hosts[:cfg.Members], r.network.hosts[cfg.Members:]
	}
	say("starting an etcd of %d members with %d keys under %d prefixes", cfg.Members, cfg.Prefixes*cfg.Keys, cfg.Prefixes)
	if r.etcd, err = startEtcd(ctx, store, cfg.Dir, cfg.Members, etcdHosts); err != nil {
		return err
	}
	r.requests = newRequestLogs(r.etcd)
	r.load = &workload{kv: r.etcd.kv, gate: newGate(), keys: r.keys, rate: cfg.Rate, seed: cfg.Seed, percent: cfg.Passed, bigs: cfg.Big}
	if cfg.Compact {
		r.load.truth = r.truth
	}
	if err := r.load.load(ctx); err != nil {
		return err
	}
	say("starting %d nodes with %d shards, %d replicas each", cfg.Nodes, cfg.Shards, cfg.Replicas)
	if r.cluster, err = newCluster(cfg, cfg.Cachenode, r.site.flags, r.etcd.endpoints(), nodeHosts); err != nil {
		return err
	}
	if err := r.cluster.Start(); err != nil {
		return r.withLogs(err)
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
	if r.joiners, err = newJoiners(nodes, cfg.APIs, cfg.Joiners, r.truth, r.keys, rng); err != nil {
		return err
	}
	if slices.Contains(cfg.APIs, Native) {
		r.programs = newPrograms(cfg, nodes, r.keys, rand.New(rand.NewPCG(cfg.Seed, 1<<35)))
	}
	r.crowd, err = newCrowd(nodes, cfg.Clients, cfg.clients, ws, r.truth, rng)
	return err
}

// cycles runs the cycles and repeats those that are void.
func (r *run) cycles(ctx context.Context) error {
	if c := r.crowd.mirrors; c != nil {
		r.mirrors = newMirrors(ctx, c, r.keys)
	}
	// Clients connect while the cluster forms.
	r.cfg.Say("%d watches over %d clients connect to starting nodes", r.cfg.Watches, len(r.crowd.groups))
	if err := r.cluster.WaitReady(ctx, patience); err != nil {
		return r.withLogs(err)
	}
	if err := r.crowd.reach(ctx, r.load.acked.newest(), patience); err != nil {
		return r.withLogs(err)
	}
	r.scene = &Scene{
		Cluster: r.cluster, Say: r.cfg.Say, etcd: r.etcd, network: r.network,
		keys: r.keys, load: r.load, truth: r.truth, crowd: r.crowd, answers: &r.answers, apis: r.cfg.APIs,
	}
	r.scene.settle = func(ctx context.Context) { r.joiners.settle(ctx, patience) }
	r.scene.join = r.join
	wanted := len(r.site.faults)
	for done, tries := 0, 0; done < wanted; tries++ {
		if tries >= 3*wanted {
			return fmt.Errorf("%d of %d cycles were void: the machine does not reach %d writes/s", tries-done, tries, r.cfg.MinRate)
		}
		f := r.site.faults[done]
		r.scene.Seed, r.scene.Turn = r.cfg.Seed+uint64(tries), r.turns[f.Name]
		c, err := r.cycle(ctx, f)
		if err != nil {
			c.Error = err.Error()
		}
		r.report.add(c)
		r.cfg.Say("cycle %d: %s", len(r.report.Cycles), c)
		if r.cfg.Done != nil {
			err = errors.Join(err, r.cfg.Done(r.report.Cycles[len(r.report.Cycles)-1]))
		}
		if err != nil {
			return r.withLogs(err)
		}
		if c.Void == "" {
			done++
			r.turns[f.Name]++
		}
	}
	return nil
}

// cycle writes, injects the fault, heals it, waits until the cluster is healthy, and judges.
func (r *run) cycle(ctx context.Context, f Fault) (c Cycle, err error) {
	shards := r.cfg.Shards * max(1, f.Shards)
	c = Cycle{Fault: f.Name, Seed: r.cfg.Seed, Started: time.Now().UTC(), WatchesAllowed: shards*r.cfg.Replicas + r.cfg.Members + fills}
	if _, err := r.requests.next(ctx); err != nil {
		return c, err
	}
	r.watchesAtEtcd.Store(0)
	r.lists.take(ctx, r.cluster)
	r.joiners.gate.open()
	r.scene.judge = func(ctx context.Context, rev int64) { r.judgeReads(ctx, &c, rev) }
	compactions := r.load.compactions
	counts := time.Duration(0) // the time that counts for the write rate
	writes, began := r.load.writes.Load(), time.Now()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	readersDone := r.readEverywhere(ctx, stop)
	go func() { stopped <- r.load.run(ctx, stop) }()
	strike := func() error {
		if err := pause(ctx, 2*time.Second); err != nil {
			return err
		}
		r.crowd.take() // measure from here
		broke := time.Now()
		if err := r.breaks(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		c.Broken = time.Since(broke).Seconds()
		if f.NoWrites {
			counts -= time.Since(broke)
		}
		mended := time.Now()
		if err := r.cluster.WaitReady(ctx, patience); err != nil {
			return err
		}
		c.Ready = time.Since(mended).Seconds()
		if err := r.crowd.reach(ctx, r.load.acked.newest(), patience); err != nil {
			return err
		}
		return pause(ctx, r.cfg.Duration-time.Since(began))
	}
	err = strike()
	close(stop)
	err = errors.Join(err, <-stopped)
	readersDone()
	counts += time.Since(began)
	c.Seconds = time.Since(began).Seconds()
	c.WritesPerSecond = float64(r.load.writes.Load()-writes) / counts.Seconds()
	c.Compactions = r.load.compactions - compactions
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

// fills is the permitted number of watch streams at etcd besides those of the tier's shards: they
// serve clients of etcd's API with start revisions below the windows.
const fills = 2

// join implements [Scene.join].
func (r *run) join(ctx context.Context, nodes []*Node, times int) (stop func(context.Context) error, err error) {
	js, err := newJoiners((&Cluster{Nodes: nodes}).targets(), r.cfg.APIs, r.cfg.Joiners, r.truth, r.keys, r.scene.rng())
	if err != nil {
		return nil, err
	}
	r.guests = append(r.guests, js)
	ctx, cancel := context.WithCancel(ctx)
	var g sync.WaitGroup
	g.Go(func() { _ = js.run(ctx) })
	return func(ctx context.Context) error {
		err := js.joined(ctx, times, patience)
		js.settle(ctx, patience)
		cancel()
		g.Wait()
		return errors.Join(err, js.close())
	}, nil
}

// breaks injects a fault and heals it, also after an error.
func (r *run) breaks(ctx context.Context, f Fault) error {
	mend, err := f.Inject(ctx, r.scene)
	if err == nil {
		err = pause(ctx, f.For/time.Duration(r.cfg.Short))
	}
	if mend == nil {
		return err
	}
	if err != nil { // also when the run was interrupted
		hasty, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(err, mend(hasty))
	}
	return mend(ctx)
}

// readEverywhere sends a few reads to every node, in any state of it, until stop is closed. The
// returned function waits for their end.
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

// judge waits until all watchers have etcd's revision, and checks the updates. It also judges void
// cycles: a violation does not depend on the write rate.
func (r *run) judge(ctx context.Context, c *Cycle) error {
	r.joiners.settle(ctx, patience)
	rev, err := r.etcd.revision(ctx)
	if err != nil {
		return err
	}
	late := r.crowd.reach(ctx, rev, patience)
	if err := r.truth.reach(ctx, rev, patience); err != nil {
		return err // without the truth, the cycle cannot be judged
	}
	r.judgeReads(ctx, c, rev)
	c.part(r.crowd.take())
	r.count(c)
	c.note(r.joiners.take(c))
	for _, js := range r.guests {
		c.note(js.take(c))
	}
	r.guests = nil
	c.WatchesAtEtcd = int(r.watchesAtEtcd.Load())
	counts, err := r.requests.next(ctx)
	if err != nil {
		return err
	}
	c.ListsAtEtcd, c.ListSample, c.ListsPassed = max(counts.Lists, r.lists.take(ctx, r.cluster)), counts.Sample, counts.Passed
	for _, m := range r.mirrors {
		r.found(c, string(nativeClient), m.judge(ctx, r.truth, rev, patience))
	}
	r.listEverywhere(ctx, c, rev)
	r.judgeReads(ctx, c, rev)
	return late
}

// judgeReads judges the reads, writes and output, and finishes the watchers at a revision that all
// have reached.
func (r *run) judgeReads(ctx context.Context, c *Cycle, rev int64) {
	r.crowd.finish(ctx, rev, briefly)
	_ = r.truth.reach(ctx, r.answers.newest(), briefly) // a later revision is a violation
	for api, j := range r.answers.judge(r.truth.history()) {
		c.read(api, j)
		r.found(c, api, j.broken)
	}
	for _, p := range r.programs {
		r.found(c, string(nativeClient), p.judge(ctx, r.truth, rev, patience))
		p.count(c)
	}
	if p := r.load.passed; p != nil {
		judged, unknown, broken := p.judge(r.truth.history())
		c.Written += judged
		c.Unknown = addUp(c.Unknown, unknown)
		r.found(c, Etcd, broken)
	}
}

// count adds the violations of the watchers since the last call.
func (r *run) count(c *Cycle) {
	first, all := r.crowd.violations()
	if r.counted == nil {
		r.counted = map[kind]int{}
	}
	c.note(r.report.fresh(first))
	for k, n := range all {
		c.broken(string(k), n-r.counted[k])
	}
	r.counted = all
}

// found records other violations.
func (r *run) found(c *Cycle, by string, vs []check.Violation) {
	c.broken(by, len(vs))
	c.note(vs)
}

// listEverywhere lists everything at every node by every API.
func (r *run) listEverywhere(ctx context.Context, c *Cycle, rev int64) {
	for _, n := range r.cluster.Nodes {
		for _, api := range r.cfg.APIs {
			answer, err := r.everything(ctx, api, n)
			if err == nil {
				r.answers.add(answer, nil)
				continue
			}
			// After the fault has healed, every list must succeed.
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

// sample polls etcd for its number of watch streams and keeps the maximum.
func (r *run) sample(ctx context.Context) error {
	for {
		n := int64(0)
		for _, member := range r.etcd.members {
			if m, err := member.metrics(ctx); err == nil { // it may be down
				n += int64(m.sum("etcd_debugging_mvcc_watch_stream_total"))
			}
		}
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

func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make room: %w", err)
	}
	return nil
}
