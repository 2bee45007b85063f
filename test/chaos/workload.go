package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// writers is the number of goroutines that share the rate of direct writes to etcd, and passers the
// number for writes through the nodes: those may wait for nodes that are down, and must not delay
// direct writes.
const (
	writers = 8
	passers = 6
)

// workload writes: puts, deletes, delete-ranges, transactions over two prefixes, keys with leases,
// and occasionally a big value, directly to etcd and partly through the nodes. It also compacts.
type workload struct {
	// kv returns the target of writes, and a function to call when a write fails.
	kv    func() (c *clientv3.Client, failed func())
	truth *truth // nil: no compactions
	keys  keyspace
	rate  int // writes per second, all writers together
	seed  uint64

	passed  *passed // nil: all writes go directly to etcd
	percent int     // of the writes that go through the nodes
	bigs    int     // big transactions in each run

	runs   uint64 // owned by run's caller; every run has other writes
	writes atomic.Int64
	failed atomic.Int64 // writes without an answer
	acked  ackLog

	gate    *gate // closed: no writes
	writing atomic.Int64

	compacting  sync.Mutex
	compactions int       // guarded by compacting
	compactAt   time.Time // guarded by compacting; the next compaction
}

// load fills the keyspace before any watch starts.
func (w *workload) load(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(w.seed, 0))
	const perTxn = 100
	for i := range w.keys.prefixes {
		for j := 0; j < w.keys.keys; j += perTxn {
			var ops []clientv3.Op
			for k := j; k < min(j+perTxn, w.keys.keys); k++ {
				ops = append(ops, clientv3.OpPut(w.keys.key(i, k), value(rng)))
			}
			c, _ := w.kv()
			r, err := c.Txn(ctx).Then(ops...).Commit()
			if err != nil {
				return fmt.Errorf("load keys: %w", err)
			}
			w.acked.add(r.Header.Revision)
		}
	}
	return nil
}

// run writes until stop is closed, and returns after the answer to the last write. Acknowledged
// writes are in w.acked.
func (w *workload) run(ctx context.Context, stop <-chan struct{}) error {
	w.runs++
	g, ctx := errgroup.WithContext(ctx)
	seeds := uint64(1)
	share := func(n, percent int, one func(context.Context, *rand.Rand) (int64, error)) {
		if percent == 0 {
			return
		}
		every := time.Second * time.Duration(n) * 100 / time.Duration(w.rate*percent)
		for range n {
			seed := w.runs<<8 | seeds
			seeds++
			g.Go(func() error { return w.write(ctx, stop, rand.New(rand.NewPCG(w.seed, seed)), every, one) })
		}
	}
	percent := 0
	if w.passed != nil {
		percent = w.percent
		share(passers, percent, w.passed.one)
	}
	share(writers, 100-percent, w.one)
	g.Go(func() error { return w.big(ctx, stop, rand.New(rand.NewPCG(w.seed, w.runs<<8))) })
	if w.truth != nil {
		g.Go(func() error { return w.compactNowAndThen(ctx, stop, rand.New(rand.NewPCG(w.seed, w.runs<<8|255))) })
	}
	return g.Wait()
}

// hold stops all writes until the gate is opened, and waits until none is in flight.
func (w *workload) hold(ctx context.Context) error {
	w.gate.close()
	if err := pause(ctx, 50*time.Millisecond); err != nil { // writers that have passed the gate are writing now
		return err
	}
	return poll(ctx, patience, "writes to be answered", func() error {
		if n := w.writing.Load(); n > 0 {
			return fmt.Errorf("%d are not", n)
		}
		return nil
	})
}

// write is one writer, which repeatedly calls one. After a delay it catches up only briefly.
func (w *workload) write(ctx context.Context, stop <-chan struct{}, rng *rand.Rand, every time.Duration, one func(context.Context, *rand.Rand) (int64, error)) error {
	const most = 100 * time.Millisecond
	next := time.Now().Add(time.Duration(rng.Int64N(int64(every))))
	for {
		if !wait(ctx, stop, time.Until(next)) {
			return ctx.Err()
		}
		if late := time.Since(next); late > most {
			next = time.Now().Add(-most)
		}
		next = next.Add(every)
		w.gate.pass(ctx)
		w.writing.Add(1)
		rev, err := one(ctx, rng)
		w.writing.Add(-1)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || rev == 0 { // it may have succeeded: etcd's own watch shows it
			w.failed.Add(1)
			continue
		}
		w.acked.add(rev)
		w.writes.Add(1)
	}
}

// one makes one write and returns etcd's revision in the answer.
func (w *workload) one(ctx context.Context, rng *rand.Rand) (rev int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, failed := w.kv()
	defer func() {
		if err != nil {
			failed()
		}
	}()
	var r clientv3.OpResponse
	switch n := rng.IntN(1000); {
	case n < 100: // two prefixes in one revision
		a := rng.IntN(w.keys.prefixes)
		b := (a + 1 + rng.IntN(w.keys.prefixes-1)) % w.keys.prefixes
		ops := []clientv3.Op{
			clientv3.OpPut(w.keys.key(a, rng.IntN(w.keys.keys)), value(rng)),
			clientv3.OpPut(w.keys.key(b, rng.IntN(w.keys.keys)), value(rng)),
		}
		if rng.IntN(3) == 0 {
			ops[1] = clientv3.OpDelete(w.keys.key(b, rng.IntN(w.keys.keys)))
		}
		r, err = c.Do(ctx, clientv3.OpTxn(nil, ops, nil))
	case n < 200:
		r, err = c.Do(ctx, clientv3.OpDelete(w.keys.any(rng)))
	case n < 220: // some keys in one revision, occasionally many
		p, k, many := rng.IntN(w.keys.prefixes), rng.IntN(w.keys.keys), 5
		if rng.IntN(20) == 0 {
			many = w.keys.keys / 4
		}
		r, err = c.Do(ctx, clientv3.OpDelete(w.keys.key(p, k), clientv3.WithRange(w.keys.key(p, k+many))))
	case n < 223: // etcd deletes it when the lease expires
		grant, gerr := c.Grant(ctx, leaseTTL)
		if gerr != nil {
			return 0, gerr
		}
		r, err = c.Do(ctx, clientv3.OpPut(w.keys.any(rng), value(rng), clientv3.WithLease(grant.ID)))
	case n < 224 && w.bigs > 0: // up to 1 MiB
		key := w.keys.key(rng.IntN(w.keys.prefixes), w.keys.keys)
		r, err = c.Do(ctx, clientv3.OpPut(key, strings.Repeat(value(rng)[:64], 1+rng.IntN(1<<20/64))))
	default:
		r, err = c.Do(ctx, clientv3.OpPut(w.keys.any(rng), value(rng)))
	}
	if err != nil {
		return 0, err
	}
	return revisionOf(r), nil
}

// heat puts keys of one prefix at a rate of perSecond until stop is closed.
func (w *workload) heat(ctx context.Context, stop <-chan struct{}, prefix, perSecond int) error {
	ops := make([]clientv3.Op, min(8, w.keys.keys))
	every := time.Second * time.Duration(len(ops)) / time.Duration(perSecond)
	return w.write(ctx, stop, rand.New(rand.NewPCG(w.seed, w.runs<<8|254)), every, func(ctx context.Context, rng *rand.Rand) (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		// The keys are spread over the prefix and in order. So a cut separates them, and no
		// revision lies between the two new shards.
		step := w.keys.keys / len(ops)
		from := rng.IntN(step)
		for i := range ops {
			ops[i] = clientv3.OpPut(w.keys.key(prefix, from+i*step), value(rng))
		}
		c, failed := w.kv()
		r, err := c.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			failed()
			return 0, err
		}
		return r.Header.Revision, nil
	})
}

// revisionOf returns etcd's revision in an answer to a write.
func revisionOf(r clientv3.OpResponse) int64 {
	switch {
	case r.Put() != nil:
		return r.Put().Header.Revision
	case r.Del() != nil:
		return r.Del().Header.Revision
	}
	return r.Txn().Header.Revision
}

// big runs the big transactions, one per second.
func (w *workload) big(ctx context.Context, stop <-chan struct{}, rng *rand.Rand) error {
	const keys, size = 8, 170 << 10 // etcd's limit is 1.5 MiB
	for range w.bigs {
		if !wait(ctx, stop, time.Second) {
			return ctx.Err()
		}
		w.gate.pass(ctx)
		p, ops := rng.IntN(w.keys.prefixes), make([]clientv3.Op, keys)
		for i := range ops {
			ops[i] = clientv3.OpPut(w.keys.key(p, w.keys.keys+1+i), strings.Repeat(value(rng)[:64], size/64))
		}
		for range 2 { // the second has the first one's values as previous values
			timed, cancel := context.WithTimeout(ctx, 5*time.Second)
			c, failed := w.kv()
			r, err := c.Txn(timed).Then(ops...).Commit()
			cancel()
			if err != nil {
				w.failed.Add(1)
				failed()
				continue
			}
			w.acked.add(r.Header.Revision)
		}
	}
	return nil
}

// wait waits for d. It returns false if stop is closed or ctx ends earlier.
func wait(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
	case <-ctx.Done():
	}
	return false
}

// compactNowAndThen compacts every 10 to 30 s, across all runs: at the head, just below it, or much
// earlier.
func (w *workload) compactNowAndThen(ctx context.Context, stop <-chan struct{}, rng *rand.Rand) error {
	const back = 10_000
	for wait(ctx, stop, 100*time.Millisecond) {
		w.compacting.Lock()
		due := time.Now().After(w.compactAt)
		if due {
			w.compactAt = time.Now().Add(10*time.Second + time.Duration(rng.Int64N(int64(20*time.Second))))
		}
		w.compacting.Unlock()
		if !due {
			continue
		}
		head := w.acked.newest()
		at := head
		switch rng.IntN(3) {
		case 0:
			at--
		case 1:
			at -= rng.Int64N(back)
		}
		timed, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, _ = w.compact(timed, at) // etcd may be down: the next compaction replaces this one
		cancel()
	}
	return ctx.Err()
}

// compact compacts etcd up to a revision, but not above the truth's revision, and returns etcd's
// compact revision.
func (w *workload) compact(ctx context.Context, at int64) (int64, error) {
	w.compacting.Lock()
	defer w.compacting.Unlock()
	at = min(at, int64(w.truth.history().Head()))
	if at <= w.truth.compacted.Load() {
		return w.truth.compacted.Load(), nil
	}
	w.truth.compacted.Store(at) // first: a client may notice before this call returns
	w.compactions++
	c, failed := w.kv()
	if _, err := c.Compact(ctx, at); err != nil {
		failed()
		return at, fmt.Errorf("compact at %d: %w", at, err)
	}
	return at, nil
}

// ackLog has the newest acknowledged revision at each time.
type ackLog struct {
	mu   sync.Mutex
	at   []time.Time // guarded by mu; increasing
	revs []int64     // guarded by mu; increasing
}

// ackMemory bounds the log: no read needs older entries.
const ackMemory = 100_000

// reset clears the log for another history of etcd.
func (a *ackLog) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.revs = nil, nil
}

func (a *ackLog) add(rev int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.revs); n > 0 && a.revs[n-1] >= rev {
		return
	}
	if len(a.revs) >= 2*ackMemory {
		a.at = append([]time.Time(nil), a.at[ackMemory:]...)
		a.revs = append([]int64(nil), a.revs[ackMemory:]...)
	}
	a.at, a.revs = append(a.at, time.Now()), append(a.revs, rev)
}

// newest returns the newest revision acknowledged; 0: none.
func (a *ackLog) newest() int64 { return a.before(time.Now()) }

// before returns the newest revision acknowledged by t; 0: none.
func (a *ackLog) before(t time.Time) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := sort.Search(len(a.at), func(i int) bool { return a.at[i].After(t) })
	if n == 0 {
		return 0
	}
	return a.revs[n-1]
}
