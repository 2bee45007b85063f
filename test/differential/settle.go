package differential

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// await waits until both sides have answered all requests of a stream that have an answer, compares
// the answers, and records the existing watches.
func (r *run) await(p *pair) {
	r.until("all requests of a stream are answered", func() error {
		r.readPair(p)
		for side, reading := range p.readings {
			if n := len(reading.controls); n < p.answers {
				return fmt.Errorf("%s gave %d of %d answers to creates and cancels, last requests %s", p.readings[side].who, n, p.answers, r.lastRequests(p))
			}
		}
		return nil
	}, p)
	d, t := p.readings[direct], p.readings[through]
	for ; p.matched < min(len(d.controls), len(t.controls)); p.matched++ {
		want, got := d.controls[p.matched], t.controls[p.matched]
		hide := sameEtcd()
		if r.duringStorm(p, p.matched) {
			hide = append(hide, "revision")
		}
		w, g := normal(want, hide).(*pb.WatchResponse), normal(got, hide).(*pb.WatchResponse)
		if strings.HasSuffix(w.GetCancelReason(), permissionDenied) && g.GetCancelReason() == "mvcc: watcher range is empty" {
			r.tolerate(emptyIsEmpty())
			g.CancelReason = w.GetCancelReason()
		}
		if h := g.GetHeader(); w.GetCanceled() && g.GetCanceled() && h.GetRevision() < w.GetHeader().GetRevision() {
			r.tolerate(cancelsLag())
			h.Revision = w.GetHeader().GetRevision()
		}
		if !proto.Equal(w, g) {
			r.differ("answer %d on a watch stream of %s\nto one of %s\n%s", p.matched, t.who, r.lastRequests(p), unequal(w, g))
		}
	}
	if len(d.controls) > p.answers || len(t.controls) > p.answers {
		r.differ("answers on a watch stream: etcd %d, %s %d, expected %d\nlast requests %s", len(d.controls), t.who, len(t.controls), p.answers, r.lastRequests(p))
		p.answers = max(len(d.controls), len(t.controls))
	}
	clear(p.ids)
	for id := range d.open {
		p.ids[id] = true
	}
}

// duringStorm reports whether the nth answer may be for a request during concurrent writes. It errs
// towards true: a cancel has no fixed place in the order of answers.
func (r *run) duringStorm(p *pair, n int) bool {
	if c := p.readings[direct].controls[n]; c.GetCreated() {
		created := 0
		for _, before := range p.readings[direct].controls[:n] {
			if before.GetCreated() {
				created++
			}
		}
		i := nthCreate(p.readings[direct].requests, created)
		return i < 0 || p.readings[direct].requests[i].high == math.MaxInt64
	}
	all := p.readings[direct].requests
	return slices.ContainsFunc(all[max(0, len(all)-8):], func(q request) bool { return q.high == math.MaxInt64 })
}

func (r *run) lastRequests(p *pair) string {
	s := ""
	all := p.readings[through].requests
	for _, q := range all[max(0, len(all)-6):] {
		s += "\n  " + cut(oneLine(q.WatchRequest), 300)
	}
	return s
}

// readPair processes and judges the responses to both sides of a stream.
func (r *run) readPair(p *pair) {
	for side, rec := range p.sides {
		reading := p.readings[side]
		told, sent, _, err := rec.from(reading.at)
		for i, resp := range told {
			reading.take(resp, min(sent[i], len(reading.requests)))
			if side == through {
				r.report.Events += len(resp.GetEvents())
			}
		}
		reading.at += len(told)
		if err != nil && r.ctx.Err() == nil && r.fatal == nil {
			r.differ("the watch stream of %s ended: %v\nlast requests %s", reading.who, err, r.lastRequests(p))
			r.fatal = errors.New("a watch stream ended")
		}
		if side == through || len(reading.complaints) == 0 {
			for _, c := range reading.complaints {
				r.differ("%s\nnode %d, last requests %s", c, p.node, r.lastRequests(p))
			}
		} else if r.fatal == nil {
			// Comparisons with it are then meaningless.
			r.fatal = fmt.Errorf("etcd itself is not as expected: %s\nlast requests %s", reading.complaints, r.lastRequests(p))
		}
		reading.complaints = nil
	}
}

// until waits for a condition, and checks it after each response of the streams. A missing response
// is a difference.
func (r *run) until(what string, ok func() error, pairs ...*pair) {
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.Patience)
	defer cancel()
	for r.fatal == nil {
		var bells []<-chan struct{}
		for _, p := range pairs {
			for side, rec := range p.sides {
				// The bell of unread responses has already rung: look again.
				told, _, next, _ := rec.from(p.readings[side].at)
				if len(told) > 0 {
					r.readPair(p)
					_, _, next, _ = rec.from(p.readings[side].at)
				}
				bells = append(bells, next)
			}
		}
		err := ok()
		if err == nil {
			return
		}
		switch wait(ctx, bells) {
		case nil:
		default:
			if r.ctx.Err() == nil {
				r.differ("not within %v: %s: %v", r.cfg.Patience, what, err)
				r.fatal = fmt.Errorf("gave up waiting: %s", what)
			}
			return
		}
	}
}

// poll checks a condition repeatedly until it holds.
func (r *run) poll(what string, ok func() error) {
	for end := time.Now().Add(r.cfg.Patience); r.fatal == nil; time.Sleep(20 * time.Millisecond) { // between two checks
		err := ok()
		if err == nil || r.ctx.Err() != nil {
			return
		}
		if time.Now().After(end) {
			r.differ("not within %v: %s: %v", r.cfg.Patience, what, err)
			r.fatal = fmt.Errorf("gave up waiting: %s", what)
		}
	}
}

// wait returns when one of the bells rings. It fails when ctx ends.
func wait(ctx context.Context, bells []<-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rung := make(chan struct{}, len(bells))
	for _, b := range bells {
		go func() {
			select {
			case <-b:
				rung <- struct{}{}
			case <-ctx.Done():
			}
		}()
	}
	select {
	case <-rung:
		return nil
	case <-time.After(time.Second): // judgements ring no bell
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pairSettled returns an error that names a missing response of a stream.
func (r *run) pairSettled(p *pair) error {
	r.readPair(p)
	gone := map[int]bool{} // cancelled as compacted, now or soon
	for i, d := range p.readings[direct].all {
		t := at(p.readings[through].all, i)
		if d == nil || t == nil || d.broken || t.broken {
			continue
		}
		gone[i] = d.compacted != nil
		// etcd cancels watches from below the compact revision within a moment.
		if !d.ended && d.doomed() {
			return fmt.Errorf("%s: watch {%s} is not cancelled", p.readings[direct].who, oneLine(d.request))
		}
		if d.compacted != nil && t.compacted == nil && !t.ended {
			return fmt.Errorf("%s: watch {%s} is not cancelled as compacted: {%s}", p.readings[through].who, oneLine(d.request), oneLine(d.compacted))
		}
	}
	for _, reading := range p.readings {
		reading.judge(r.truth, r.compacted, r.revision)
		if err := reading.complete(r.truth, r.revision, gone); err != nil {
			return fmt.Errorf("%s: %w", reading.who, err)
		}
	}
	return nil
}

func at(all []*told, i int) *told {
	if i < len(all) {
		return all[i]
	}
	return nil
}

// settle waits until every watch on both sides has received all events, and compares the ends of
// watches.
func (r *run) settle() {
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.Patience)
	defer cancel()
	if err := r.truth.reach(ctx, r.revision); err != nil {
		r.fatal = err
		return
	}
	for _, p := range r.streams {
		r.await(p)
		r.until("every watch received all events", func() error { return r.pairSettled(p) }, p)
		r.compareEnds(p)
		if !r.KeepsEnded {
			r.forgetEnded(p)
		}
		r.forgetRevoked(p)
	}
}

// forgetEnded cancels at etcd the watches that were cancelled as compacted: the tier has already
// removed them.
func (r *run) forgetEnded(p *pair) {
	d := p.readings[direct]
	for _, id := range keysOf(p.ids) {
		if d.open[id] != nil && d.open[id].compacted != nil && !p.half {
			r.tolerate(endedIsGone())
			r.cancelDirect(p, id)
		}
	}
}

// cancelDirect cancels at etcd a watch that no longer exists in the tier.
func (r *run) cancelDirect(p *pair, id int64) {
	d := p.readings[direct]
	n := len(d.controls)
	r.sendTo(p, direct, request{WatchRequest: cancelOf(id)})
	r.until("etcd cancels a watch", func() error {
		r.readPair(p)
		if len(d.controls) == n {
			return fmt.Errorf("watch %d", id)
		}
		return nil
	}, p)
	d.controls = d.controls[:n]
	delete(p.readings[through].open, id)
	delete(p.ids, id)
}

// compareEnds compares the cancels of watches as compacted.
func (r *run) compareEnds(p *pair) {
	for i, d := range p.readings[direct].all {
		t := at(p.readings[through].all, i)
		if d == nil || t == nil || t.broken {
			continue
		}
		if d.compacted == nil && t.compacted == nil {
			continue
		}
		if d.compacted == nil || t.compacted == nil || !proto.Equal(normal(d.compacted, sameEtcd()), normal(t.compacted, sameEtcd())) {
			t.broken = true
			r.differ("watch {%s} is compacted\netcd   {%s}\nnode %d {%s}", oneLine(d.request), oneLine(d.compacted), p.node, oneLine(t.compacted))
		}
	}
}
