package differential

import (
	"fmt"
	"math"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// openStream opens another watch stream to each side.
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

// send sends the same request on both streams. storm: during concurrent writes.
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

// watchOf creates a watch, unless the stream takes no more requests.
func (r *run) watchOf(p *pair, req *pb.WatchCreateRequest) bool {
	return r.createWatch(p, req, false)
}

// unclear reports whether a watch has been or is about to be cancelled as compacted: its ID is in
// use at etcd and not in the tier.
func (r *run) unclear(p *pair, id int64) bool {
	w := p.readings[direct].open[id]
	return w != nil && w.doomed() && (w.compacted == nil || !r.KeepsEnded)
}

func (r *run) createWatch(p *pair, req *pb.WatchCreateRequest, storm bool) bool {
	if p.half || p.spoiled[req.GetWatchId()] {
		return false
	}
	if slices.ContainsFunc(keysOf(p.ids), func(id int64) bool { return r.unclear(p, id) }) {
		if storm {
			return false
		}
		r.settle()
	}
	r.report.Asked["watch"]++
	p.answers++
	r.send(p, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: req}}, storm)
	return true
}

// watchRequests creates and cancels some watches on a stream. storm: during concurrent writes.
func (r *run) watchRequests(storm bool) {
	p := r.somePair()
	if p.half {
		return
	}
	r.await(p)
	for range 1 + r.IntN(3) {
		if r.IntN(3) > 0 && len(p.ids) < 25 {
			req := r.watch(keysOf(p.ids))
			r.createWatch(p, req, storm)
			if start := req.GetStartRevision(); start > 0 && start < r.compacted {
				break // its ID is in use only at times: see endedIsGone
			}
			continue
		}
		id := pick[int64](r, 4711, -1, -4, math.MaxInt64-1)
		if !storm {
			r.settle() // responses after a cancel are a race at etcd
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
	if oneIn(r, 6) { // during the creation of watches
		r.strayProgress(p)
	}
	if oneIn(r, 10) { // an empty request
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

func (r *run) sendProgress(p *pair) bool {
	if p.half {
		return false
	}
	r.send(p, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}, false)
	return true
}

// strayProgress requests progress during writes or creations of watches: the answering side and the
// time are arbitrary.
func (r *run) strayProgress(p *pair) {
	if r.sendProgress(p) {
		p.counted = false
		p.late++
	}
}

// progressStep requests progress, and expects it from the tier if etcd reports it, once and at the
// current revision.
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
					return fmt.Errorf("%s has given progress %v of %d watches, want another, %d", reading.who, reading.progress, len(p.ids), r.revision)
				}
			}
			return nil
		}, p)
		if !p.counted { // requests during concurrent writes are answered, too
			d.progress, t.progress, p.counted = nil, nil, true
		}
	} else {
		// The answers to a watch that is created and cancelled follow the request.
		const fence = math.MaxInt64 - 7
		r.createWatch(p, &pb.WatchCreateRequest{Key: []byte("fence"), WatchId: fence}, false)
		r.await(p)
		if p.ids[fence] {
			p.answers++
			r.send(p, cancelOf(fence), false)
			r.await(p)
		}
	}
	if extra := len(t.progress) - len(d.progress); p.counted && extra > 0 && extra <= p.late && within(d.progress, t.progress) {
		// Answers that etcd has dropped, or sent earlier.
		p.late -= extra
		t.progress = slices.Clone(d.progress)
	}
	if p.counted && !slices.Equal(d.progress, t.progress) {
		r.differ("answers to progress requests: etcd %v, %s %v, with watches %s", d.progress, t.who, t.progress, openOnes(d))
		t.progress = slices.Clone(d.progress)
	}
}

// within reports whether some is a subsequence of all.
func within(some, all []int64) bool {
	for _, x := range all {
		if len(some) > 0 && some[0] == x {
			some = some[1:]
		}
	}
	return len(some) == 0
}

func openOnes(d *reading) (s string) {
	for id, t := range d.open {
		s += fmt.Sprintf("\n  %d: {%s} ended %v", id, oneLine(t.request), t.ended)
	}
	return s
}

// notifyStep waits until both sides have sent a requested progress notification to an idle watch.
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
					return fmt.Errorf("%s: watch {%s} got progress %d, not %d", p.readings[side].who, oneLine(told.request), told.notified, r.revision)
				}
			}
			return nil
		}, p)
	}
}

// streamStep ends a stream, closes its requests, or opens another one.
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
