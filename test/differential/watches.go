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
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// openStream opens one more watch stream to each side.
func (r *run) openStream() {
	p := &pair{node: r.IntN(len(r.Through)), ids: map[int64]bool{}, spoiled: map[int64]bool{}, counted: true}
	if p.who = r.someone(); len(r.people) > 1 && oneIn(r, 3) {
		p.who = 1
	}
	names := [2]string{"etcd itself", fmt.Sprintf("node %d", p.node) + r.nameOf(p.who)}
	for side, cc := range [2]*grpc.ClientConn{r.Direct, r.Through[p.node]} {
		rec, err := record(r.as(p.who, cc), cc)
		if err != nil {
			r.fatal = err
			p.close()
			return
		}
		p.sides[side] = rec
		loose, cuts := side == direct || r.Loose, r.Cuts
		p.readings[side] = newReading(names[side], loose, r.ident, cuts)
	}
	r.streams = append(r.streams, p)
}

func (p *pair) close() {
	for _, s := range p.sides {
		if s != nil {
			s.close()
		}
	}
}

func (r *run) somePair() *pair { return pick(r, r.streams...) }

// send sends the same on both streams. storm: others write meanwhile.
func (r *run) send(p *pair, req *pb.WatchRequest, storm bool) {
	q := request{WatchRequest: req, low: r.revision, high: r.revision, compacted: r.compacted}
	if storm {
		q.high = math.MaxInt64
	}
	for side := range p.sides {
		r.sendTo(p, side, q)
	}
}

func (r *run) sendTo(p *pair, side int, q request) {
	p.readings[side].requests = append(p.readings[side].requests, q)
	if err := p.sides[side].send(proto.Clone(q.WatchRequest).(*pb.WatchRequest)); err != nil && r.fatal == nil {
		r.fatal = fmt.Errorf("send on a watch stream: %w", err)
	}
}

func cancelOf(id int64) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}}
}

// watchOf asks for a watch, unless nothing can be asked any more.
func (r *run) watchOf(p *pair, req *pb.WatchCreateRequest) bool {
	return r.createWatch(p, req, false)
}

// unclear reports whether a watch has been or is about to be cancelled as
// compacted, so that its ID is in use at etcd and not in the tier.
func (r *run) unclear(p *pair, id int64) bool {
	w := p.readings[direct].open[id]
	return w != nil && w.doomed() && (w.compacted == nil || !r.KeepsEnded)
}

func (r *run) createWatch(p *pair, req *pb.WatchCreateRequest, storm bool) bool {
	if p.half || p.spoiled[req.GetWatchId()] || r.unclear(p, req.GetWatchId()) {
		return false
	}
	r.report.Asked["watch"]++
	p.answers++
	r.send(p, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: req}}, storm)
	return true
}

// watchRequests creates and cancels some watches on a stream. storm: others
// write meanwhile.
func (r *run) watchRequests(storm bool) {
	p := r.somePair()
	if p.half {
		return
	}
	r.await(p)
	for id := range p.ids {
		if !r.unclear(p, id) {
			continue
		}
		if storm {
			return
		}
		r.settle()
		break
	}
	for range 1 + r.IntN(3) {
		if r.IntN(3) > 0 && len(p.ids) < 25 {
			req := r.watch(keysOf(p.ids))
			r.createWatch(p, req, storm)
			if start := req.GetStartRevision(); start > 0 && start < r.compacted {
				break // its ID is in use, and then it is not: see endedIsGone
			}
			continue
		}
		id := pick[int64](r, 4711, -1, -4, math.MaxInt64-1)
		if !storm {
			r.settle() // what comes behind a cancel is a race at etcd
		}
		if len(p.ids) > 0 && r.IntN(8) > 0 {
			id = pick(r, keysOf(p.ids)...)
		}
		if r.unclear(p, id) {
			continue
		}
		if p.ids[id] {
			p.answers++
			delete(p.ids, id)
			if storm {
				p.spoiled[id] = true
			}
		}
		r.send(p, cancelOf(id), storm)
	}
	if oneIn(r, 6) && r.sendProgress(p) { // while watches are being created
		p.counted = false
	}
	if oneIn(r, 10) { // what asks for nothing
		r.send(p, &pb.WatchRequest{}, storm)
	}
	r.await(p)
}

func keysOf(ids map[int64]bool) []int64 {
	out := make([]int64, 0, len(ids))
	for id := range ids {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// await waits until both sides have answered all requests of a stream that
// have an answer, compares the answers, and learns which watches there are.
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

// duringStorm reports whether the nth answer came to a request that was sent
// while others wrote. It errs on the side of yes: a cancel has no place of its
// own in the order of answers.
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

// readPair sorts and judges what both sides of a stream were told.
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
			// Then nothing that is compared with it means anything.
			r.fatal = fmt.Errorf("etcd itself is not as expected: %s\nlast requests %s", reading.complaints, r.lastRequests(p))
		}
		reading.complaints = nil
	}
}

// until waits until something is so, looking whenever one of the streams is
// told something. What does not come in time is a difference.
func (r *run) until(what string, ok func() error, pairs ...*pair) {
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.Patience)
	defer cancel()
	for r.fatal == nil {
		var bells []<-chan struct{}
		for _, p := range pairs {
			for side, rec := range p.sides {
				// The bell of what is not read yet has rung already: look again.
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

// poll asks again and again until something is so.
func (r *run) poll(what string, ok func() error) {
	for end := time.Now().Add(r.cfg.Patience); r.fatal == nil; time.Sleep(20 * time.Millisecond) { // between two looks
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

// wait returns when one of the bells rings, or with an error when ctx ends.
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
	case <-time.After(time.Second): // none rings for what is judged, not told
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pairSettled returns what is missing on a stream.
func (r *run) pairSettled(p *pair) error {
	r.readPair(p)
	gone := map[int]bool{} // cancelled as compacted, or going to be
	for i, d := range p.readings[direct].all {
		t := at(p.readings[through].all, i)
		if d == nil || t == nil || d.broken || t.broken {
			continue
		}
		gone[i] = d.compacted != nil
		// etcd cancels what starts below the compact revision within a moment.
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

// settle waits until every watch on both sides was told everything, and
// compares how they stand.
func (r *run) settle() {
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.Patience)
	defer cancel()
	if err := r.truth.reach(ctx, r.revision); err != nil {
		r.fatal = err
		return
	}
	for _, p := range r.streams {
		r.await(p)
		r.until("every watch was told everything", func() error { return r.pairSettled(p) }, p)
		r.compareEnds(p)
		if !r.KeepsEnded {
			r.forgetEnded(p)
		}
		r.forgetRevoked(p)
	}
}

// forgetEnded cancels at etcd the watches that were cancelled as compacted: in
// the tier, they are gone already.
func (r *run) forgetEnded(p *pair) {
	d := p.readings[direct]
	for _, id := range keysOf(p.ids) {
		if d.open[id] != nil && d.open[id].compacted != nil && !p.half {
			r.tolerate(endedIsGone())
			r.cancelDirect(p, id)
		}
	}
}

// cancelDirect cancels at etcd a watch that is gone in the tier.
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

// compareEnds compares which watches were cancelled as compacted, and how.
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

func (r *run) sendProgress(p *pair) bool {
	if p.half {
		return false
	}
	r.send(p, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}, false)
	return true
}

// progressStep asks for progress, and expects it of the tier when etcd gives
// it, once and at the revision of now.
func (r *run) progressStep() {
	p := r.somePair()
	if p.half {
		return
	}
	r.settle()
	if err := r.Behind(r.ctx); err != nil && r.fatal == nil {
		r.fatal = err
	}
	if r.fatal != nil {
		return
	}
	expected := len(p.ids) > 0
	for _, t := range p.readings[direct].open {
		expected = expected && !t.ended && t.request.GetStartRevision() <= r.revision
	}
	d, t := p.readings[direct], p.readings[through]
	before := [2]int{len(d.progress), len(t.progress)}
	if !r.sendProgress(p) {
		return
	}
	if expected {
		r.until("progress", func() error {
			for side, reading := range p.readings {
				if n := len(reading.progress); n <= before[side] || reading.progress[n-1] != r.revision {
					return fmt.Errorf("%s has given progress %v of %d watches, want one more, %d", reading.who, reading.progress, len(p.ids), r.revision)
				}
			}
			return nil
		}, p)
		if !p.counted { // what was asked for while others wrote is answered, too
			d.progress, t.progress, p.counted = nil, nil, true
		}
	} else {
		// A watch that is created and cancelled stands behind the request.
		const fence = math.MaxInt64 - 7
		r.createWatch(p, &pb.WatchCreateRequest{Key: []byte("fence"), WatchId: fence}, false)
		r.await(p)
		if p.ids[fence] {
			p.answers++
			r.send(p, cancelOf(fence), false)
			r.await(p)
		}
	}
	if p.counted && !slices.Equal(d.progress, t.progress) {
		r.differ("answers to progress requests: etcd %v, %s %v, with watches %s", d.progress, t.who, t.progress, openOnes(d))
		t.progress = slices.Clone(d.progress)
	}
}

func openOnes(d *reading) (s string) {
	for id, t := range d.open {
		s += fmt.Sprintf("\n  %d: {%s} ended %v", id, oneLine(t.request), t.ended)
	}
	return s
}

// notifyStep waits until both sides have told the progress of a quiet watch
// that asked for it.
func (r *run) notifyStep() {
	p := r.somePair()
	r.settle()
	for id, d := range p.readings[direct].open {
		t := p.readings[through].open[id]
		if t == nil || d.ended || t.ended || t.broken || !d.request.GetProgressNotify() || d.request.GetStartRevision() > r.revision {
			continue
		}
		r.until("a notification of progress", func() error {
			for side, told := range []*told{d, t} {
				if told.notified != r.revision {
					return fmt.Errorf("%s: watch {%s} is told of %d, not %d", p.readings[side].who, oneLine(told.request), told.notified, r.revision)
				}
			}
			return nil
		}, p)
	}
}

// streamStep ends a stream, or our side of it, or opens another one.
func (r *run) streamStep() {
	switch {
	case len(r.streams) < 3 || len(r.streams) < 6 && oneIn(r, 2):
		r.openStream()
	case oneIn(r, 3):
		p := r.somePair()
		r.await(p)
		if !p.half {
			p.half = true
			for _, s := range p.sides {
				_ = s.stream.CloseSend() // never fails
			}
		}
	default:
		r.settle()
		i := r.IntN(len(r.streams))
		r.streams[i].close()
		r.streams = slices.Delete(r.streams, i, i+1)
	}
}
