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

// writers is how many goroutines share the rate of what goes to etcd
// directly, and passers of what goes through the nodes: those wait for nodes
// that are not there, and nobody waits for them.
const (
	writers = 8
	passers = 6
)

// workload writes: puts, deletes, small delete-ranges, and transactions over
// two prefixes, directly to etcd and a part of them through the nodes.
type workload struct {
	client *clientv3.Client
	keys   keyspace
	rate   int // writes per second, all writers together
	seed   uint64

	passed  *passed // nil: all go to etcd directly
	percent int     // of the writes that go through the nodes
	bigs    int     // big transactions in each run

	runs   uint64 // owned by run's caller; every run writes something else
	writes atomic.Int64
	acked  ackLog
}

// load fills the keyspace before anybody watches.
func (w *workload) load(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(w.seed, 0))
	const perTxn = 100
	for i := range w.keys.prefixes {
		for j := 0; j < w.keys.keys; j += perTxn {
			var ops []clientv3.Op
			for k := j; k < min(j+perTxn, w.keys.keys); k++ {
				ops = append(ops, clientv3.OpPut(w.keys.key(i, k), value(rng)))
			}
			r, err := w.client.Txn(ctx).Then(ops...).Commit()
			if err != nil {
				return fmt.Errorf("load keys: %w", err)
			}
			w.acked.add(r.Header.Revision)
		}
	}
	return nil
}

// run writes until stop is closed, and returns when the last write is
// answered. What etcd acknowledged is in w.acked.
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
	return g.Wait()
}

// write is one writer, which calls one again and again. When it falls behind
// its pace it does not rush to make up for more than a moment.
func (w *workload) write(ctx context.Context, stop <-chan struct{}, rng *rand.Rand, every time.Duration, one func(context.Context, *rand.Rand) (int64, error)) error {
	const most = 100 * time.Millisecond
	next := time.Now().Add(time.Duration(rng.Int64N(int64(every))))
	for {
		if wait := time.Until(next); wait > 0 {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-stop:
				t.Stop()
				return nil
			case <-ctx.Done():
				t.Stop()
				return ctx.Err()
			}
		}
		select {
		case <-stop:
			return nil
		default:
		}
		if late := time.Since(next); late > most {
			next = time.Now().Add(-most)
		}
		next = next.Add(every)
		rev, err := one(ctx, rng)
		if err != nil {
			return fmt.Errorf("write to etcd: %w", err)
		}
		if rev > 0 { // it was answered
			w.acked.add(rev)
			w.writes.Add(1)
		}
	}
}

// one makes one write and returns etcd's revision in the answer.
func (w *workload) one(ctx context.Context, rng *rand.Rand) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	switch n := rng.IntN(100); {
	case n < 10: // two prefixes in one revision
		a := rng.IntN(w.keys.prefixes)
		b := (a + 1 + rng.IntN(w.keys.prefixes-1)) % w.keys.prefixes
		ops := []clientv3.Op{
			clientv3.OpPut(w.keys.key(a, rng.IntN(w.keys.keys)), value(rng)),
			clientv3.OpPut(w.keys.key(b, rng.IntN(w.keys.keys)), value(rng)),
		}
		if rng.IntN(3) == 0 {
			ops[1] = clientv3.OpDelete(w.keys.key(b, rng.IntN(w.keys.keys)))
		}
		r, err := w.client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return 0, err
		}
		return r.Header.Revision, nil
	case n < 20:
		r, err := w.client.Delete(ctx, w.keys.any(rng))
		if err != nil {
			return 0, err
		}
		return r.Header.Revision, nil
	case n < 22: // up to five keys in one revision
		p, k := rng.IntN(w.keys.prefixes), rng.IntN(w.keys.keys)
		r, err := w.client.Delete(ctx, w.keys.key(p, k), clientv3.WithRange(w.keys.key(p, k+5)))
		if err != nil {
			return 0, err
		}
		return r.Header.Revision, nil
	}
	r, err := w.client.Put(ctx, w.keys.any(rng), value(rng))
	if err != nil {
		return 0, err
	}
	return r.Header.Revision, nil
}

// big makes the run's big transactions, one a second.
func (w *workload) big(ctx context.Context, stop <-chan struct{}, rng *rand.Rand) error {
	const keys, size = 8, 170 << 10 // etcd takes 1.5 MiB
	for range w.bigs {
		t := time.NewTimer(time.Second)
		select {
		case <-t.C:
		case <-stop:
			t.Stop()
			return nil
		}
		p, ops := rng.IntN(w.keys.prefixes), make([]clientv3.Op, keys)
		for i := range ops {
			ops[i] = clientv3.OpPut(w.keys.key(p, w.keys.keys+i), strings.Repeat(value(rng)[:64], size/64))
		}
		for range 2 { // the second has the first one's as previous values
			r, err := w.client.Txn(ctx).Then(ops...).Commit()
			if err != nil {
				return fmt.Errorf("write %d MiB to etcd: %w", keys*size>>20, err)
			}
			w.acked.add(r.Header.Revision)
		}
	}
	return nil
}

// ackLog knows which revision had been acknowledged at what time.
type ackLog struct {
	mu   sync.Mutex
	at   []time.Time // guarded by mu; increasing
	revs []int64     // guarded by mu; increasing
}

// ackMemory bounds the log: older entries are of no use to anybody.
const ackMemory = 100_000

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

// before returns the newest revision that was acknowledged at t; 0: none.
func (a *ackLog) before(t time.Time) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := sort.Search(len(a.at), func(i int) bool { return a.at[i].After(t) })
	if n == 0 {
		return 0
	}
	return a.revs[n-1]
}
