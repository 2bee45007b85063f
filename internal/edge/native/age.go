package native

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shardwatch/shardwatch/internal/kv"
	"github.com/shardwatch/shardwatch/internal/router"
)

// minWatchStaleness is the least max_staleness of a watch: the age of data that
// is perfectly well moves between nothing and about that.
const minWatchStaleness = 100 * time.Millisecond

// How often the ages of watches with a bound are looked at: twice within the
// smallest bound of a stream, but not more often nor less often than that.
const (
	minLookAtAge = 50 * time.Millisecond
	maxLookAtAge = time.Second
)

// watchStaleness returns the maximum age of the data that a watch is sent; 0: any age.
func watchStaleness(bound *durationpb.Duration) (time.Duration, error) {
	switch {
	case bound == nil:
		return 0, nil
	case !bound.IsValid() || bound.AsDuration() < minWatchStaleness:
		return 0, &kv.InvalidError{Field: "max_staleness", Reason: fmt.Sprintf("must be %v or more; leave it out to take data of any age", minWatchStaleness)}
	}
	return bound.AsDuration(), nil
}

// ageOf returns how old a reading may be; below 0: not known.
func ageOf(reading *router.Reading) time.Duration {
	if age, known := reading.Age(); known {
		return age
	}
	return -1
}

// ageMessage is an age as the API has it.
func ageMessage(age time.Duration, known bool) *durationpb.Duration {
	if !known {
		return nil
	}
	return durationpb.New(age)
}

// age returns the age of the oldest data that the stream's watches are sent. It is unknown while
// that of any watch is unknown, and before the first watch has begun. For the pump that is at the
// stream.
func (s *stream) age() (age time.Duration, known bool) {
	for _, w := range s.list() {
		if w.phase != live {
			continue
		}
		one, ok := w.inner.Age()
		if !ok {
			return 0, false
		}
		age, known = max(age, one), true
	}
	return age, known
}

// endStale ends the watches whose data is older than they allow. For the pump
// that is at the stream.
func (s *stream) endStale() {
	for _, w := range s.list() {
		if w.maxStaleness == 0 || w.phase != live { // a unit that is being sent keeps its age
			continue
		}
		if err := w.stale(time.Now()); err != nil {
			w.end(ended(err, s.api.cfg.Router.Elsewhere(w.rng)))
		}
	}
}

// stale fails when the watch's data is older than it allows. While the age is
// not known, as on the way to a new home, the last known age
// grows. For the owner of the watch.
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

// bound makes the checks of ages frequent enough for a watch with that bound.
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

// agingNow reports whether the ages are to be looked at.
func (p *progress) agingNow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	due := p.aging
	p.aging = false
	return due
}
