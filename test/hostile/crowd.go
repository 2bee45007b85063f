package hostile

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/shardwatch/shardwatch/client"
)

// clients is the number of the crowd's connections: half of them use the native API, the others
// etcd's.
const clients = 10

// pace is the time between two writes, and between two reads: 1,000 of each in 5 s.
const pace = 5 * time.Millisecond

// patience bounds the wait for the writes of a round after its end, and for a read. A longer wait
// counts as that long.
const patience = 20 * time.Second

// crowd is watches and a reader of one node. Each client watches the prefix /crowd/ and single keys
// below it; the writer puts the keys in turn, each as often as all others. It writes to etcd itself:
// the delay is measured from that write to its arrival at a watch. One more watch and one more reader
// use etcd itself at the same time, from the same process: their delays are those of etcd, of the
// machine and of the crowd's process.
type crowd struct {
	store   *clientv3.Client // of etcd
	natives []*client.Client
	etcds   []*clientv3.Client
	keys    int // watched individually, each by one watch

	ready sync.WaitGroup // watches that have not started
	began time.Time

	mu    sync.Mutex
	puts  []*put  // by number; guarded by mu
	reads []*read // at the node; guarded by mu
	refs  []*read // at etcd itself; guarded by mu

	failed atomic.Pointer[error] // of a watch; the watches must not end
}

// put is a write that the watches must receive.
type put struct {
	at   time.Duration // since began
	late []time.Duration
	ref  time.Duration // delay of the watch at etcd itself; 0: not yet received
}

// read is a read of one key.
type read struct {
	at, took time.Duration
	ended    bool
}

// deliveries is the number of watches that receive a put.
const deliveries = clients + 1

// newCrowd connects to a node.
func newCrowd(s *store, addr string, cfg *tls.Config, watches int) (_ *crowd, err error) {
	c := &crowd{store: s.client, keys: watches - clients, began: time.Now()}
	for i := range clients {
		if i%2 == 0 {
			own := client.Config{Endpoints: []string{addr}, TLS: cfg, RetryFor: patience}
			if s.user != "" {
				own.Username, own.Password = s.user, password
			}
			n, err := client.New(own)
			if err != nil {
				return nil, errors.Join(err, c.close())
			}
			c.natives = append(c.natives, n)
			continue
		}
		own := clientv3.Config{Endpoints: []string{addr}, TLS: cfg, Logger: zap.NewNop(), DialTimeout: patience}
		if s.user != "" {
			own.Username, own.Password = s.user, password
		}
		n, err := clientv3.New(own)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.etcds = append(c.etcds, n)
	}
	return c, nil
}

func (c *crowd) close() error {
	var errs []error
	for _, n := range c.natives {
		errs = append(errs, n.Close())
	}
	for _, n := range c.etcds {
		if err := n.Close(); !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func crowdKey(i int) string { return fmt.Sprintf("/crowd/%06d", i) }

// run watches, writes and reads until ctx ends. It calls ready once all watches have started.
func (c *crowd) run(ctx context.Context, ready func()) {
	var g sync.WaitGroup
	defer g.Wait()
	c.ready.Add(c.keys + clients + 1)
	watch := func(f func() error) {
		g.Go(func() {
			if err := f(); ctx.Err() == nil {
				err = fmt.Errorf("a watch of the crowd ended: %w", err)
				c.failed.CompareAndSwap(nil, &err)
			}
		})
	}
	watch(func() error { return c.watchEtcd(ctx, c.store, "/crowd/", true, c.sawAtEtcd) })
	for i := range c.keys + clients {
		key, prefix := "/crowd/", true
		if i >= clients {
			key, prefix = crowdKey(i-clients), false
		}
		at := i % clients
		watch(func() error {
			if at%2 == 0 {
				return c.watchNative(ctx, c.natives[at/2], key, prefix)
			}
			return c.watchEtcd(ctx, c.etcds[at/2], key, prefix, c.saw)
		})
	}
	c.ready.Wait()
	ready()
	g.Go(func() { c.write(ctx) })
	g.Go(func() {
		c.read(ctx, &c.reads, func(ctx context.Context, n int, key string) (err error) {
			if n%2 == 0 {
				_, err = c.natives[0].Get(ctx, key)
			} else {
				_, err = c.etcds[0].Get(ctx, key)
			}
			return err
		})
	})
	g.Go(func() {
		c.read(ctx, &c.refs, func(ctx context.Context, _ int, key string) error {
			_, err := c.store.Get(ctx, key)
			return err
		})
	})
	<-ctx.Done()
}

func (c *crowd) watchNative(ctx context.Context, n *client.Client, key string, prefix bool) error {
	began := sync.OnceFunc(c.ready.Done)
	defer began()
	r := client.Key(key)
	if prefix {
		r = client.Prefix(key)
	}
	w := n.Watch(ctx, r)
	defer w.Close()
	select {
	case <-w.Started():
	case <-ctx.Done():
		return ctx.Err()
	}
	began()
	for {
		u, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range u.Events {
			c.saw(e.KV.Value)
		}
		for _, k := range u.KVs { // a node that is too slow sends states
			c.saw(k.Value)
		}
	}
}

func (c *crowd) watchEtcd(ctx context.Context, n *clientv3.Client, key string, prefix bool, saw func([]byte)) error {
	began := sync.OnceFunc(c.ready.Done)
	defer began()
	opts := []clientv3.OpOption{clientv3.WithCreatedNotify()}
	if prefix {
		opts = append(opts, clientv3.WithPrefix())
	}
	for r := range n.Watch(ctx, key, opts...) {
		if err := r.Err(); err != nil {
			return err
		}
		began()
		for _, e := range r.Events {
			saw(e.Kv.Value)
		}
	}
	return errors.New("its channel was closed")
}

// saw records the arrival of the put whose number is in the value at a watch of the node, sawAtEtcd
// at the watch of etcd.
func (c *crowd) saw(value []byte) {
	c.delivered(value, func(p *put, took time.Duration) { p.late = append(p.late, took) })
}

func (c *crowd) sawAtEtcd(value []byte) {
	c.delivered(value, func(p *put, took time.Duration) { p.ref = took })
}

func (c *crowd) delivered(value []byte, record func(*put, time.Duration)) {
	now := time.Since(c.began)
	number, _, _ := strings.Cut(string(value), " ")
	n, err := strconv.Atoi(number)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && n < len(c.puts) {
		record(c.puts[n], now-c.puts[n].at)
	}
}

// write puts keys in turn, each at its time, whether or not earlier puts are done.
func (c *crowd) write(ctx context.Context) {
	var g sync.WaitGroup
	defer g.Wait()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		p := &put{at: time.Since(c.began)}
		c.mu.Lock()
		c.puts = append(c.puts, p)
		c.mu.Unlock()
		g.Go(func() { // a failed put arrives at no watch
			_, _ = c.store.Put(ctx, crowdKey(n%c.keys), fmt.Sprintf("%d %s", n, strings.Repeat("v", valueSize)))
		})
	}
}

// read reads keys in turn, linearizable, each at its time, and records the reads.
func (c *crowd) read(ctx context.Context, record *[]*read, get func(ctx context.Context, n int, key string) error) {
	var g sync.WaitGroup
	defer g.Wait()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r := &read{at: time.Since(c.began), took: patience}
		c.mu.Lock()
		*record = append(*record, r)
		c.mu.Unlock()
		g.Go(func() {
			timed, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			err := get(timed, n, crowdKey(n%c.keys))
			c.mu.Lock()
			defer c.mu.Unlock()
			if r.ended = true; err == nil {
				r.took = time.Since(c.began) - r.at
			}
		})
	}
}

// pain is the 99th percentiles of a round, and the number of cores used by the node and by the
// attacker.
type pain struct {
	// Watch and Read are delays through the node, EtcdWatch and EtcdRead at etcd itself at the same
	// time.
	Watch, Read, EtcdWatch, EtcdRead time.Duration
	// Samples is the number of writes, or of reads if there were fewer. Each write has [deliveries]
	// delays, which depend on each other.
	Samples        int
	Node, Attacker float64
}

// measure runs for d and returns the crowd's delays of the writes and reads of that time. It waits for
// late ones. This process runs a garbage collection before the round, to avoid one during it: the
// crowd allocates some MB a second.
func (c *crowd) measure(ctx context.Context, d time.Duration) (func(context.Context) (pain, error), error) {
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	from := time.Since(c.began)
	if err := pause(ctx, d); err != nil {
		return nil, err
	}
	to := time.Since(c.began)
	return func(ctx context.Context) (pain, error) {
		limit := time.Now().Add(patience)
		for {
			p, missing := c.between(from, to)
			if missing == 0 || time.Now().After(limit) {
				if err := c.failed.Load(); err != nil {
					return p, *err
				}
				return p, nil
			}
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return p, err
			}
		}
	}, nil
}

// between returns the percentiles of the operations that began in a period, and the number of
// unfinished ones. An unfinished operation counts as the greatest delay.
func (c *crowd) between(from, to time.Duration) (p pain, missing int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var watches, reads, refWatches, refReads []time.Duration
	writes := 0
	for _, put := range c.puts {
		if put.at < from || put.at >= to {
			continue
		}
		writes++
		watches = append(watches, put.late...)
		if put.ref > 0 {
			refWatches = append(refWatches, put.ref)
		} else {
			missing++
			refWatches = append(refWatches, patience)
		}
		for range deliveries - len(put.late) {
			missing++
			watches = append(watches, patience)
		}
	}
	during := func(all []*read, took *[]time.Duration) {
		for _, r := range all {
			if r.at >= from && r.at < to {
				*took = append(*took, r.took)
				if !r.ended {
					missing++
				}
			}
		}
	}
	during(c.reads, &reads)
	during(c.refs, &refReads)
	return pain{
		Watch: p99(watches), Read: p99(reads), EtcdWatch: p99(refWatches), EtcdRead: p99(refReads),
		Samples: min(writes, len(reads)),
	}, missing
}

// p99 returns the 99th percentile; 0: there are no samples.
func p99(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[(len(ds)-1)*99/100]
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
