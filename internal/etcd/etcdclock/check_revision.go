package etcdclock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/shardwatch/shardwatch/internal/etcd/etcdconn"
	"github.com/shardwatch/shardwatch/internal/kv"
)

// etcd's errors for a revision that it cannot read. They name neither its compact revision nor its
// current one.
var (
	errGone   = errors.New("etcd has compacted the revision")
	errNotYet = errors.New("etcd has not reached the revision")
	// errDiffer reports that one member has compacted a revision and another has not.
	errDiffer = errors.New("etcd's members report different compact revisions")
)

// CheckRevision returns etcd's revision, from a linearizable read that begins after the call. If
// revision cannot be read at etcd, it fails with a *kv.CompactedError, whose Floor is etcd's
// compact revision, or with a *kv.FutureError. Revision 0 can always be read.
//
// Callers share reads: calls during a read wait for the next one, whatever their revisions. A
// thousand concurrent calls cost etcd two reads.
func (c *Reader) CheckRevision(ctx context.Context, revision kv.Revision) (now kv.Revision, err error) {
	c.count.revisionChecks.Add(1)
	if err := c.lineage.err(); err != nil {
		return 0, err
	}
	if revision <= 0 {
		return c.Revision(ctx)
	}
	if floor := c.past.floor(); revision < floor {
		return 0, &kv.CompactedError{Requested: revision, Floor: floor}
	}
	defer c.asked.enter(revision)() // before do: the read that serves us must know
	v, err := c.verdicts.do(ctx, c.judgeAsked)
	switch {
	case err != nil:
		return 0, err
	case revision <= v.gone:
		return 0, c.compacted(ctx, revision)
	case revision > v.now:
		return 0, &kv.FutureError{Requested: revision, Current: v.now}
	}
	return v.now, nil
}

// verdict is the answer for every revision that callers were waiting for when the read began.
type verdict struct {
	now  kv.Revision // etcd's revision
	gone kv.Revision // the highest revision that etcd is known to have compacted, with all below; 0: none
}

// judgeAsked searches the callers' revisions for the lowest one that etcd has not compacted. The
// first read, at the lowest of all, almost always decides; n revisions take at most log2(n)+2
// reads.
func (c *Reader) judgeAsked(ctx context.Context) (verdict, error) {
	floor := c.past.floor()
	asked, v := c.asked.from(floor), verdict{gone: max(0, floor-1)}
	for low, high, try := 0, len(asked), 0; low < high; try = low + (high-low)/2 {
		clock, err := c.probe(ctx, fmt.Sprintf("read etcd as of revision %d", asked[try]), asked[try])
		switch {
		case err == nil:
			v.now, high = clock.Revision, try
		case errors.Is(err, errNotYet):
			high = try
		case errors.Is(err, errGone):
			v.gone, low = asked[try], try+1
		default:
			return verdict{}, err
		}
	}
	if v.now == 0 {
		clock, err := c.readClock(ctx)
		if err != nil {
			return verdict{}, err
		}
		v.now = clock.Revision
	}
	return v, nil
}

// maxLearn bounds the watches that learn one compact revision. One does, unless
// the member that serves it has not applied the compaction yet.
const maxLearn = 10

// compacted returns the *kv.CompactedError for a revision that etcd has compacted, or
// the reason why the compact revision is not known. Callers share the watch that reads
// it.
func (c *Reader) compacted(ctx context.Context, gone kv.Revision) error {
	for range maxLearn {
		if floor := c.past.floor(); floor > gone {
			return &kv.CompactedError{Requested: gone, Floor: floor}
		}
		_, err := c.floors.do(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, c.learnFloor(ctx, gone)
		})
		if err != nil {
			return fmt.Errorf("learn etcd's compact revision, which is above %d: %w", gone, err)
		}
	}
	return etcdconn.Unavailable("find etcd's compact revision", errDiffer)
}

// learnFloor asks etcd for its compact revision, which is above gone. It returns
// nil if the revision stays unknown: see New.
func (c *Reader) learnFloor(ctx context.Context, gone kv.Revision) error {
	if c.past.floor() > gone {
		return nil // an earlier probe has learnt it
	}
	err := c.probeFloor(ctx, gone)
	var compacted *kv.CompactedError
	if errors.As(err, &compacted) {
		c.past.compacted(compacted.Floor)
		return nil
	}
	return err
}

// Compacted notes that etcd's compact revision is at or above floor.
func (c *Reader) Compacted(floor kv.Revision) { c.past.compacted(floor) }

// past stores etcd's compact revision, which only grows, unless etcd is restored from a
// backup. The zero past is empty.
type past struct{ compact atomic.Int64 }

// floor returns the highest known compact revision.
func (p *past) floor() kv.Revision { return kv.Revision(p.compact.Load()) }

// compacted notes that etcd's compact revision is at or above floor.
func (p *past) compacted(floor kv.Revision) {
	for {
		was := p.compact.Load()
		if int64(floor) <= was || p.compact.CompareAndSwap(was, int64(floor)) {
			return
		}
	}
}

// forget drops the compact revision of another history.
func (p *past) forget() { p.compact.Store(0) }

// saw notes etcd's revision. A revision below the compact revision belongs to another history (or
// to a delayed answer), so the remembered compact revision may be wrong and is dropped.
func (p *past) saw(now kv.Revision) {
	if was := p.compact.Load(); int64(now) < was {
		p.compact.CompareAndSwap(was, 0)
	}
}

// askers are the revisions that callers ask about now. The zero askers are empty.
type askers struct {
	mu sync.Mutex
	at map[kv.Revision]int // number of callers; guarded by mu
}

// enter adds a revision; leave removes it.
func (a *askers) enter(revision kv.Revision) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil {
		a.at = make(map[kv.Revision]int)
	}
	a.at[revision]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.at[revision]--; a.at[revision] == 0 {
			delete(a.at, revision)
		}
	}
}

// from returns the requested revisions at or above floor, in order.
func (a *askers) from(floor kv.Revision) []kv.Revision {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []kv.Revision
	for revision := range a.at {
		if revision >= floor {
			out = append(out, revision)
		}
	}
	slices.Sort(out)
	return out
}
