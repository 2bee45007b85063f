package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/shardwatch/shardwatch/internal/beat"
	"github.com/shardwatch/shardwatch/internal/kv"
)

const (
	// scoutEvery is the time between two searches for a better candidate.
	scoutEvery = 3 * Heartbeat
	// readyPatience is how long a better candidate may take to be ready. etcd takes up
	// to 0.1 s, the interval at which it syncs watches that begin in the past
	// (mvcc/watchable_store.go, watchResyncPeriod).
	readyPatience = 2 * time.Second
)

var (
	errBetter = errors.New("a better source is ready")
	// errGap rejects a source that continues after the first missing revision, or with
	// an unrequested difference.
	errGap = errors.New("the source does not continue where the follower is")
)

// stream is a followed candidate. Its updates are pulled one by one, so the scout can
// pull the first ones while another stream is still followed, and leave the rest to the
// follower.
type stream struct {
	Candidate
	ctx    context.Context // ends with the stream
	cancel context.CancelCauseFunc
	next   func() (kv.Update, error, bool)
	stop   func()
	begun  bool // the scout has pulled the first updates
	// steady: each further progress goes to the consumer. Owned by the pulling goroutine, and by
	// the source while that goroutine waits.
	steady bool
}

// open begins to follow c. It sends no request before the first pull.
func (r *run) open(ctx context.Context, c Candidate, req kv.FollowRequest) *stream {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stream{Candidate: c, ctx: ctx, cancel: cancel}
	if progress := req.Progress; progress != nil {
		req.Progress = func(revision kv.Revision) bool {
			if !s.steady || !progress(revision) {
				return false
			}
			r.advance(revision)
			return true
		}
	}
	s.next, s.stop = iter.Pull2(c.Source.Follow(ctx, req))
	return s
}

func (s *stream) close() {
	s.cancel(nil)
	s.stop()
}

// followed describes how the follow of a candidate ended.
type followed struct {
	Candidate      // the last one, which may have replaced the first
	more      bool // the consumer wants more
	got       bool // an update has come
	err       error
}

// follow follows c until it is lost or is no longer a candidate. With relieve, a better
// candidate that is ready replaces it without a pause; without relieve, follow ends
// then.
func (r *run) follow(ctx context.Context, c Candidate, relieve bool) followed {
	var f followed
	for s := r.open(ctx, c, r.request()); s != nil; {
		relief := r.draw(ctx, s, relieve, &f)
		if relief != nil && !f.more {
			relief.close()
			relief = nil
		}
		s = relief
	}
	if f.got {
		r.f.set("", false, nil)
	}
	return f
}

// draw passes on the updates of s until it ends, and returns the stream that replaces it, or
// nil.
func (r *run) draw(ctx context.Context, s *stream, relieve bool, f *followed) *stream {
	var g sync.WaitGroup
	var relief *stream // owned by the scout until it has ended
	begin := func() {
		f.got = true
		if lost := r.f.set(s.Name, s.Direct, s.cancel); !lost.IsZero() {
			r.f.notice(Notice{What: Followed, Source: s.Name, Began: lost, Revision: r.position()}, r.req.Range)
		}
		g.Go(func() { relief = r.scout(ctx, s, relieve) })
	}
	f.Candidate = s.Candidate
	r.f.asks(s.Name)
	if s.begun {
		r.f.hung.remove(s.Name)
		begin()
		begin = nil
	}
	f.more, f.err = r.handOn(s, begin)
	s.close()
	g.Wait()
	return relief
}

// handOn passes on the updates of s until it ends, and reports whether the consumer
// wants more. It calls begin at the first update.
func (r *run) handOn(s *stream, begin func()) (more bool, err error) {
	resuming, state := r.from.Load() > 0, kv.Revision(0)
	at, idle := r.position(), (*time.Timer)(nil) // runs during a rescue while the node has sent nothing new
	defer func() {
		if idle != nil {
			idle.Stop()
		}
	}()
	for {
		u, err, ok := s.next()
		if err != nil {
			return true, err
		}
		if !ok {
			return true, context.Cause(s.ctx)
		}
		if u.Kind == kv.UpdateBegin {
			if err := joins(u, r.request()); err != nil {
				return true, err
			}
		}
		if resuming && !s.Direct && r.stuck == r.from.Load() && !u.Leap {
			// A node reports its position at once: its events, and then its progress.
			switch {
			case u.Kind == kv.UpdateBegin:
				idle = time.AfterFunc(rescueWithin, func() { s.cancel(errNoFurther) })
				continue
			case u.Kind == kv.UpdateReady:
				continue
			case u.Kind == kv.UpdateProgress && u.Revision <= r.position():
				return true, errNoFurther
			}
		}
		if begin != nil {
			begin()
			begin = nil
		}
		switch u.Kind {
		case kv.UpdateBegin:
			if resuming = resuming && !u.Leap; resuming {
				if r.rescuing {
					idle = time.AfterFunc(rescueWithin, func() { s.cancel(errNoFurther) })
				}
				continue // the consumer has everything before it and needs no beginning
			}
			state = u.Revision
		case kv.UpdateReady:
			if resuming {
				continue
			}
			r.advance(state)
		case kv.UpdateBatch:
			r.advance(u.Batch.Revision)
		case kv.UpdateProgress:
			r.advance(u.Revision)
		}
		if idle != nil && r.position() > at {
			idle.Stop()
			idle = nil
		}
		if !r.yield(u, nil) {
			return false, nil
		}
		s.steady = idle == nil
	}
}

// joins fails with errGap when u begins an answer to req that skips revisions: the
// consumer does not see a second beginning, and would take the gap for a quiet range.
// It fails with errNoFurther when u begins a state that the consumer has.
func joins(u kv.Update, req kv.FollowRequest) error {
	if req.Held != nil && req.From == 0 && u.Kind == kv.UpdateBegin && !u.Leap && u.Revision <= req.HeldAt {
		return errNoFurther
	}
	if req.From == 0 || u.Kind != kv.UpdateBegin || u.Revision < req.From && !u.Leap || u.Leap && req.AllowLeap {
		return nil
	}
	return fmt.Errorf("%w: it begins after revision %d, and revision %d is the first that is missing", errGap, u.Revision, req.From)
}

// scout searches for a better candidate than s that is not stale. It ends s when it
// finds one, which it returns if it may replace s, or when s is no longer a candidate.
//
// etcd is better only if no other candidate comes before it. A node with others before it
// waits until one of them reads etcd itself: otherwise, all replicas would read etcd
// for a moment at each change of the owner.
func (r *run) scout(ctx context.Context, s *stream, relieve bool) *stream {
	tick := time.NewTimer(beat.Until(scoutEvery))
	defer tick.Stop()
	called := r.f.scout.Wait()
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case <-tick.C:
			tick.Reset(beat.Until(scoutEvery))
		case <-called:
			called = r.f.scout.Wait()
		}
		candidates := r.f.Candidates()
		better := slices.IndexFunc(candidates, func(c Candidate) bool { return c.Name == s.Name })
		gone := better < 0 // then any other candidate is better
		if gone {
			better = len(candidates)
		}
		for i, b := range candidates[:better] {
			switch {
			case r.f.stale.has(b.Name), r.avoids(b), b.Direct && i > 0 && !gone:
				continue
			case !probe(s.ctx, b, r.req.Range, r.req.Lineage):
				continue
			}
			var relief *stream
			if relieve && r.from.Load() > 0 {
				var err error
				if relief, err = r.ready(ctx, s, b); relief == nil {
					if !gone && candidates[better].Away && errors.As(err, new(*kv.CompactedError)) {
						s.cancel(errOvertaken)
						return nil
					}
					continue
				}
			}
			r.f.notice(Notice{What: BetterSource, Source: b.Name}, r.req.Range)
			s.cancel(errBetter)
			return relief
		}
		if gone {
			s.cancel(errBetter)
			return nil
		}
	}
}

// ready opens b, and returns its stream when it is live. It returns nil when that takes
// too long or s ends first, and the error if b fails.
func (r *run) ready(ctx context.Context, s *stream, b Candidate) (*stream, error) {
	req := r.request()
	req.AllowLeap = false
	next := r.open(ctx, b, req)
	patience, done := context.WithTimeout(s.ctx, readyPatience)
	defer done()
	stop := context.AfterFunc(patience, func() { next.cancel(nil) })
	for {
		u, err, ok := next.next()
		if ok && err == nil {
			err = joins(u, req)
		}
		if ok && err == nil && u.Kind != kv.UpdateReady {
			continue
		}
		if next.begun = ok && err == nil && stop(); next.begun {
			return next, nil
		}
		stop()
		next.close()
		r.f.Logger.Debug("a better source is not ready", "source", b.Name, "range", r.req.Range, "error", err)
		return nil, err
	}
}

// probe reports whether the candidate would serve the range.
func probe(ctx context.Context, c Candidate, rng kv.Range, lineage uint64) bool {
	p, ok := c.Source.(interface {
		Probe(ctx context.Context, r kv.Range, lineage uint64) error
	})
	return !ok || p.Probe(ctx, rng, lineage) == nil
}
