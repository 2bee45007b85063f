package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// What etcd says of a revision that it cannot read at. It says no more than
// that: neither its compact revision nor its current one.
var (
	errGone   = errors.New("etcd has compacted the revision")
	errNotYet = errors.New("etcd has not come to the revision")
	// errDiffer says that of two members, one had compacted and one had not.
	errDiffer = errors.New("etcd's members do not agree on what is compacted")
)

// Verify tells, by a linearizable read that begins after the call, etcd's
// revision, and whether revision can be read there: it fails with a
// *kv.CompactedError whose Floor is etcd's compact revision, or with a
// *kv.FutureError. Revision 0 can always be read.
//
// Callers share reads: those who come while one is in flight wait for the next,
// whatever their revisions. A thousand of them cost etcd two.
func (c *Client) Verify(ctx context.Context, revision kv.Revision) (now kv.Revision, err error) {
	c.count.verifyCalls.Add(1)
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
	if err != nil {
		return 0, err
	}
	return v.on(revision)
}

// verdict decides about every revision that was asked about when it was found.
type verdict struct {
	now kv.Revision // etcd's revision
	// floor is a compact revision of etcd's. What was asked about and lies above
	// was not compacted when now was read, though etcd may have compacted more.
	floor kv.Revision
}

func (v verdict) on(revision kv.Revision) (now kv.Revision, err error) {
	switch {
	case revision < v.floor:
		return 0, &kv.CompactedError{Requested: revision, Floor: v.floor}
	case revision > v.now:
		return 0, &kv.FutureError{Requested: revision, Current: v.now}
	}
	return v.now, nil
}

// maxJudge bounds the reads for one verdict. Two or three do, but for
// compactions in between and members that are behind.
const maxJudge = 10

// judgeAsked reads as of the lowest revision that somebody asks about: if etcd
// can do that, it could for all. If it has compacted that one, the compact
// revision decides about some of them, and the others are asked for again: the
// member that told it may know less than the one that read.
func (c *Client) judgeAsked(ctx context.Context) (verdict, error) {
	for range maxJudge {
		floor := c.past.floor()
		lowest, asked := c.asked.lowest(floor)
		if !asked {
			return verdict{floor: floor}, nil
		}
		clock, err := c.probe(ctx, fmt.Sprintf("read etcd as of revision %d", lowest), lowest)
		switch {
		case err == nil:
			return verdict{now: clock.Revision, floor: floor}, nil
		case errors.Is(err, errNotYet):
			clock, err := c.readClock(ctx)
			if err != nil {
				return verdict{}, err
			}
			if clock.Revision < lowest {
				return verdict{now: clock.Revision, floor: floor}, nil
			}
		case errors.Is(err, errGone):
			if err := c.learnFloor(ctx, lowest); err != nil {
				return verdict{}, err
			}
		default:
			return verdict{}, err
		}
	}
	return verdict{}, unavailable("find out what etcd has compacted", errDiffer)
}

// learnFloor asks etcd for its compact revision, which is above gone: a watch
// from there is cancelled with it. The member that is watched may be behind and
// have compacted nothing yet; then nothing is learnt, and that is no error.
func (c *Client) learnFloor(ctx context.Context, gone kv.Revision) error {
	req := kv.FollowRequest{Range: kv.Single(c.cfg.ProbeKey), From: gone}
	err := c.watchFrom(ctx, req, &position{from: gone}, func(kv.Update) bool { return false })
	var compacted *kv.CompactedError
	switch {
	case errors.As(err, &compacted):
		c.past.compacted(compacted.Floor)
	case errors.Is(err, errEnough), errors.Is(err, errTooLarge): // it has something to tell from there
	case errors.Is(err, errToken): // forgotten: the next read logs in
	case errors.Is(err, errSilent):
		return unavailable("learn etcd's compact revision", err)
	default:
		return fmt.Errorf("learn etcd's compact revision: %w", err)
	}
	return nil
}

// past remembers etcd's compact revision, which only grows, unless etcd is
// restored from a backup. The zero past knows nothing.
type past struct{ compact atomic.Int64 }

// floor returns the highest compact revision heard of.
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

// forget forgets what was known of another history.
func (p *past) forget() { p.compact.Store(0) }

// saw notes etcd's revision. One below the compact revision is that of another
// history (or an old answer that came late): what is remembered may be wrong.
func (p *past) saw(now kv.Revision) {
	if was := p.compact.Load(); int64(now) < was {
		p.compact.CompareAndSwap(was, 0)
	}
}

// askers are the revisions that are asked about now. The zero askers are none.
type askers struct {
	mu sync.Mutex
	at map[kv.Revision]int // how many ask; guarded by mu
}

// enter adds a revision, and returns what takes it away again.
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

// lowest returns the lowest revision at or above floor that is asked about.
func (a *askers) lowest(floor kv.Revision) (lowest kv.Revision, asked bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for revision := range a.at {
		if revision >= floor && (!asked || revision < lowest) {
			lowest, asked = revision, true
		}
	}
	return lowest, asked
}
