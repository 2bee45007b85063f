package native

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
)

// minWatchStaleness is the smallest max_staleness of a watch. In normal operation
// the age of data varies between zero and about this.
const minWatchStaleness = 100 * time.Millisecond

// Bounds of the interval at which the ages of watches with a staleness bound are
// checked. The interval is half the smallest bound of the stream.
const (
	minLookAtAge = 50 * time.Millisecond
	maxLookAtAge = time.Second
)

// watchStaleness returns the maximum age of data sent to a watch; 0: any age.
func watchStaleness(bound *durationpb.Duration) (time.Duration, error) {
	switch {
	case bound == nil:
		return 0, nil
	case !bound.IsValid() || bound.AsDuration() < minWatchStaleness:
		return 0, &kv.InvalidError{Field: "max_staleness", Reason: fmt.Sprintf("must be %v or more; leave it out to take data of any age", minWatchStaleness)}
	}
	return bound.AsDuration(), nil
}

// ageOf returns the maximum age of a reading; below 0: unknown.
func ageOf(reading *router.Reading) time.Duration {
	if age, known := reading.Age(); known {
		return age
	}
	return -1
}

// ageMessage converts an age for the API; nil: unknown.
func ageMessage(age time.Duration, known bool) *durationpb.Duration {
	if !known {
		return nil
	}
	return durationpb.New(age)
}

// fresh is a revision up to which data includes every write that etcd acknowledged before a time.
type fresh struct {
	revision kv.Revision
	at       time.Time // zero: not known
}

// fresh returns the freshness of the oldest data that the stream's watches read. It is unknown while the
// age of any live watch is unknown, and while there is no live watch. Called by the stream's pump.
func (s *stream) fresh() fresh {
	now := time.Now()
	oldest := fresh{revision: math.MaxInt64}
	for _, w := range s.list() {
		if w.phase != live {
			continue
		}
		age, revision, known := w.inner.AgeAt()
		if !known {
			return fresh{}
		}
		if at := now.Add(-age); oldest.at.IsZero() || at.Before(oldest.at) {
			oldest.at = at
		}
		oldest.revision = min(oldest.revision, revision)
	}
	return oldest
}

// sentAge returns the age of the data that was sent, up to a revision. If the watches have unread events, it is
// the age that the node's data had at an earlier call, plus the time since then: thus it is also known if
// new events come faster than they are sent. It is unknown while they have not reached that data either.
// Called by the stream's pump.
func (p *progress) sentAge(sent kv.Revision) (age time.Duration, known bool) {
	next := p.s.fresh()
	if !next.at.IsZero() && sent >= next.revision {
		p.fresh = next
	}
	known = !p.fresh.at.IsZero() && sent >= p.fresh.revision
	if known {
		age = time.Since(p.fresh.at)
	}
	if known || p.fresh.at.IsZero() {
		p.fresh = next
	}
	return age, known
}

// endStale ends the watches whose data is older than they allow. Called by the
// stream's pump.
func (s *stream) endStale() {
	for _, w := range s.list() {
		if w.maxStaleness == 0 || w.phase != live { // the age of a unit is fixed while it is sent
			continue
		}
		if err := w.stale(time.Now()); err != nil {
			w.end(ended(err, s.api.cfg.Router.Elsewhere(w.rng)))
		}
	}
}

// stale fails if the watch's data is older than the watch allows. While the age is
// unknown, for example while a shard moves to another node, the last known age
// keeps growing. Called by the owner of the watch.
func (w *watch) stale(now time.Time) error {
	if w.maxStaleness == 0 {
		return nil
	}
	age, known := w.inner.Age()
	switch {
	case known:
		w.freshAt = now.Add(-age)
	case w.freshAt.IsZero():
		return &kv.UnavailableError{Why: kv.Stale, RetryAfter: kv.RetrySoon, Detail: fmt.Sprintf("the age of the data is not known yet, the watch allows %v", w.maxStaleness)}
	}
	if age = now.Sub(w.freshAt); age <= w.maxStaleness {
		return nil
	}
	return &kv.UnavailableError{
		Why: kv.Stale, RetryAfter: time.Second,
		Detail: fmt.Sprintf("the data may be %v old, the watch allows %v", age.Round(time.Millisecond), w.maxStaleness),
	}
}

// bound makes the age checks frequent enough for a watch with this bound.
func (p *progress) bound(maxStaleness time.Duration) {
	every := min(max(maxStaleness/2, minLookAtAge), maxLookAtAge)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped || p.ageEvery > 0 && p.ageEvery <= every:
	case p.age == nil:
		p.ageEvery = every
		p.age = time.AfterFunc(every, p.lookAtAge)
	default:
		p.ageEvery = every
		p.age.Reset(every)
	}
}

func (p *progress) lookAtAge() {
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		return
	}
	p.aging = true
	p.age.Reset(p.ageEvery)
	p.mu.Unlock()
	p.look()
}

// agingNow reports whether an age check is due, and resets it.
func (p *progress) agingNow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	due := p.aging
	p.aging = false
	return due
}
