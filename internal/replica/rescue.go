package replica

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/shardwatch/shardwatch/internal/kv"
)

// outcome is the result of a rescue.
type outcome uint8

const (
	lost       outcome = iota // no answering node has the missing events
	unanswered                // no node answers
	rescued                   // missing events have come
	ended                     // the consumer has stopped
)

// rescue takes the events that the candidates no longer have from the window of any other
// node, or else the differences.
func (r *run) rescue(ctx context.Context) outcome {
	r.rescuing = true
	defer func() { r.req.AllowLeap, r.rescuing = false, false }()
	silent, heard := false, false
	var level []string // nodes that are not ahead of this one, so their differences do not help
	for _, what := range []What{GapFilled, Leapt} {
		r.req.AllowLeap = what == Leapt
		for _, c := range r.f.Warm() {
			if r.f.hung.has(c.Name) || r.f.rejects(c.Name) {
				silent = true
				continue
			}
			if slices.Contains(level, c.Name) {
				continue
			}
			from := r.from.Load()
			last := r.follow(ctx, c, false)
			if !last.more || ctx.Err() != nil {
				return ended
			}
			if r.from.Load() > from {
				r.f.notice(Notice{What: what, Source: c.Name, Began: r.gone, Revision: r.position()}, r.req.Range)
				r.gone = time.Time{}
				return rescued
			}
			if answered(last.err) {
				heard = true
			} else {
				silent = true
			}
			switch {
			case errors.Is(last.err, errNoFurther), errors.Is(last.err, ErrStale):
				level = append(level, c.Name)
			case errors.Is(last.err, ErrSilent):
				r.f.hung.add(c.Name)
			}
			r.f.Logger.Debug("this node does not have the missing events", "peer", c.Name, "range", r.req.Range, "from", from, "leap", r.req.AllowLeap, "error", last.err)
		}
	}
	if silent && !heard {
		return unanswered
	}
	return lost
}

// answered reports whether err is a peer's answer, not a failure to reach
// it.
func answered(err error) bool {
	var compacted *kv.CompactedError
	var elsewhere *kv.NotHereError
	var unavailable *kv.UnavailableError
	return errors.Is(err, errNoFurther) || errors.Is(err, ErrStale) || errors.As(err, &compacted) || errors.As(err, &elsewhere) || errors.As(err, &unavailable)
}

// verdict collects the candidates' answers of one round, on the missing history and on the request.
type verdict struct {
	compacted *kv.CompactedError
	direct    bool // etcd itself has answered so
	open      bool // a node did not answer, and may have it
	refused   bool // a node answers that the request is invalid
}

func (v *verdict) add(c Candidate, err error) {
	v.refused = v.refused || errors.As(err, new(*kv.InvalidError))
	var gone *kv.CompactedError
	switch {
	case errors.Is(err, errNoFurther), errors.Is(err, ErrStale): // it answers, and has no newer events
	case !errors.As(err, &gone):
		v.open = true
	case v.compacted == nil || c.Direct:
		v.compacted, v.direct = gone, v.direct || c.Direct
	}
}

// err returns the compacted history, if it is certain: by etcd's answer, or by the answers of all
// nodes. A node or an etcd that does not answer may still have it.
func (v *verdict) err() *kv.CompactedError {
	if v.open && !v.direct {
		return nil
	}
	return v.compacted
}

func notReady(err error) bool {
	var unavailable *kv.UnavailableError
	var elsewhere *kv.NotHereError // its shard map is older than ours for the moment
	return errors.As(err, &elsewhere) || (errors.As(err, &unavailable) && unavailable.Why == kv.NotReady)
}
