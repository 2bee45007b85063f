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
	// scoutEvery is the time between two looks for a better candidate.
	scoutEvery = 3 * Heartbeat
	// readyPatience is how long a better candidate may take to be ready. etcd takes
	// up to 0.1 s, the period in which it brings watches up to date that begin in
	// the past (mvcc/watchable_store.go, watchResyncPeriod).
	readyPatience = 2 * time.Second
)

var (
	errBetter = errors.New("a better source is ready")
	// errGap rejects a source that continues after the first missing revision, or
	// with a difference that was not requested.
	errGap = errors.New("the source does not continue where the follower is")
)

// stream is a candidate that is followed. Its updates are drawn one by one: so
// the scout can draw the first ones, while another stream still brings what
// happens, and leave the rest to the follower.
type stream struct {
	Candidate
	ctx    context.Context // ends with the stream
	cancel context.CancelCauseFunc
	next   func() (kv.Update, error, bool)
	stop   func()
	begun  bool // the first updates were drawn before it is followed
	// steady: each further progress goes to the consumer. Owned by the goroutine that draws, and
	// by the source while that waits.
	steady bool
}

// open begins to follow c. It sends no request before the first draw.
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

// followed describes how following a candidate ended.
type followed struct {
	Candidate      // the last one, which may have relieved the first
	more      bool // the consumer wants more
	got       bool // something was brought
	err       error
}

// follow follows c until it is lost or no candidate any more. A better one that
// is ready relieves it without a pause, and is followed from then on; without
// relieve c is left for it.
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

// draw passes on the updates of s until it ends, and returns the stream that relieves it; nil
// if none does.
func (r *run) draw(ctx context.Context, s *stream, relieve bool, f *followed) *stream {
	var g sync.WaitGroup
	var relief *stream // the scout's until it has ended
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

// handOn hands on what s brings until it ends, and reports whether the consumer
// wants more. It calls begin with the first update.
func (r *run) handOn(s *stream, begin func()) (more bool, err error) {
	resuming, state := r.from.Load() > 0, kv.Revision(0)
	at, idle := r.position(), (*time.Timer)(nil) // runs while a node is to rescue, and has sent nothing new
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
				continue // the consumer has all before it: nothing begins for it
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

// joins fails with errGap when u is the beginning of an answer to req that leaves
// out revisions: the consumer, which is not shown a second beginning, would take
// the gap for silence. It fails with errNoFurther when u is the beginning of a state
// that the consumer has.
func joins(u kv.Update, req kv.FollowRequest) error {
	if req.Held != nil && req.From == 0 && u.Kind == kv.UpdateBegin && !u.Leap && u.Revision <= req.HeldAt {
		return errNoFurther
	}
	if req.From == 0 || u.Kind != kv.UpdateBegin || u.Revision < req.From && !u.Leap || u.Leap && req.AllowLeap {
		return nil
	}
	return fmt.Errorf("%w: it begins after revision %d, and revision %d is the first that is missing", errGap, u.Revision, req.From)
}

// scout looks for a better candidate than s, not a stale one, and ends s when
// there is one, which it returns if it may relieve s, or when s is none any more.
//
// etcd is better only for a node without another one before it. A node with others
// before it waits until one of them reads etcd itself: otherwise, each change of
// the owner would have all replicas read it for a moment.
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
		gone := better < 0 // any other one is better then
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

// ready opens b, and returns it when it brings what happens from now on; nil, and why
// if b says so, when that takes too long, or s ends before.
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
