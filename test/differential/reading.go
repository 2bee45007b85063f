package differential

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// request is a request that was sent on a stream to both sides, with its time in revisions.
type request struct {
	*pb.WatchRequest
	// low and high are bounds of etcd's revision when the sides received it: they are equal without
	// concurrent writes.
	low, high int64
	// compacted was the compact revision at that time.
	compacted int64
}

// reading has the responses of one stream, sorted by watch and judged. It belongs to one
// goroutine.
type reading struct {
	who string
	// loose: the server is etcd itself, which has weaker guarantees.
	loose    bool
	identity *pb.ResponseHeader // of the observed etcd
	cuts     []string

	requests []request // all sent requests
	at       int       // the number of responses read from the recorder
	member   uint64
	controls []*pb.WatchResponse
	open     map[int64]*told
	all      []*told // in the order of creation; nil: refused
	progress []int64 // answers to progress requests
	newest   int64   // the newest header of events
	// revoked are the IDs of watches that ended because their owner lost the right to read.
	revoked []int64
	unended *told // has received some of its fragments

	complaints []string
}

// told has the responses of one watch.
type told struct {
	request   *pb.WatchCreateRequest
	forbidden int64 // the compact revision at the request
	index     int   // of the request on its stream
	wish      wish
	// last is the revision up to which all events were received and judged. Before the first event
	// of a watch from now, it may have to be reset to low.
	last, low int64
	begun     bool
	header    int64 // the newest header's revision
	notified  int64 // newest progress for this watch only
	fragments []*mvccpb.Event
	queue     []said // not judged yet
	compacted *pb.WatchResponse
	ended     bool // it must get no more messages
	broken    bool // a difference was reported
}

// doomed reports whether the watch is going to be cancelled as compacted.
func (t *told) doomed() bool {
	start := t.request.GetStartRevision()
	return start > 0 && start < t.forbidden
}

// said is one message to a watch: events, or progress up to a revision.
type said struct {
	events  []*mvccpb.Event
	promise int64
}

func newReading(who string, loose bool, identity *pb.ResponseHeader, cuts []string) *reading {
	return &reading{who: who, loose: loose, identity: identity, cuts: cuts, open: map[int64]*told{}}
}

func (r *reading) complain(t *told, format string, args ...any) {
	where := ""
	if t != nil {
		if t.broken {
			return // one report is enough
		}
		t.broken = true
		where = fmt.Sprintf(" watch {%s}:", cut(oneLine(t.request), 300))
	}
	r.complaints = append(r.complaints, fmt.Sprintf("%s:%s %s", r.who, where, fmt.Sprintf(format, args...)))
}

// take processes one response. sent is the number of requests sent before its arrival.
func (r *reading) take(resp *pb.WatchResponse, sent int) {
	r.checkHeader(resp)
	if r.unended != nil && (resp.GetCreated() || resp.GetCanceled() || r.open[resp.GetWatchId()] != r.unended) {
		r.complain(r.unended, "a response between its fragments: %s", shorten(oneLine(resp)))
	}
	switch {
	case resp.GetCreated():
		r.created(resp, sent)
	case resp.GetCanceled():
		r.cancelled(resp)
	case resp.GetWatchId() == -1 && len(resp.GetEvents()) == 0:
		r.promised(resp, sent)
	default:
		r.news(resp)
	}
}

func (r *reading) checkHeader(resp *pb.WatchResponse) {
	h := resp.GetHeader()
	if r.member == 0 {
		r.member = h.GetMemberId()
	}
	if h.GetMemberId() == 0 || h.GetMemberId() != r.member || h.GetClusterId() != r.identity.GetClusterId() || h.GetRaftTerm() != r.identity.GetRaftTerm() {
		r.complain(nil, "header {%s} on a stream of member %d of {%s}", oneLine(h), r.member, oneLine(r.identity))
	}
}

// created processes the answer to a create request. Answers arrive in order.
func (r *reading) created(resp *pb.WatchResponse, sent int) {
	r.controls = append(r.controls, resp)
	index := nthCreate(r.requests[:sent], len(r.all))
	if index < 0 {
		r.complain(nil, "created, but not requested: %s", oneLine(resp))
		return
	}
	if resp.GetCanceled() {
		r.all = append(r.all, nil)
		return
	}
	req := r.requests[index]
	t := &told{request: req.GetCreateRequest(), forbidden: req.compacted, index: index, wish: wishOf(req.GetCreateRequest())}
	if from := t.request.GetStartRevision(); from > 0 {
		t.last, t.low = from-1, from-1
	} else {
		// From the current revision, which is at most the answer's.
		t.low, t.last = req.low, min(req.high, max(req.low, resp.GetHeader().GetRevision()))
	}
	if r.open[resp.GetWatchId()] != nil {
		r.complain(t, "created with ID %d, which is in use", resp.GetWatchId())
	}
	r.all = append(r.all, t)
	r.open[resp.GetWatchId()] = t
}

// nthCreate returns the index of the nth create in requests, counted from 0, or -1.
func nthCreate(requests []request, n int) int {
	for i, q := range requests {
		if q.GetCreateRequest() == nil {
			continue
		}
		if n == 0 {
			return i
		}
		n--
	}
	return -1
}

func (r *reading) cancelled(resp *pb.WatchResponse) {
	t := r.open[resp.GetWatchId()]
	if resp.GetCompactRevision() != 0 {
		if t == nil {
			r.complain(nil, "compacted, but the watch does not exist: %s", oneLine(resp))
			return
		}
		t.compacted, t.ended = resp, true
		return
	}
	if t != nil && strings.HasSuffix(resp.GetCancelReason(), permissionDenied) {
		t.ended = true
		r.revoked = append(r.revoked, resp.GetWatchId())
		delete(r.open, resp.GetWatchId())
		return
	}
	r.controls = append(r.controls, resp)
	if t == nil {
		r.complain(nil, "cancelled, but the watch does not exist: %s", oneLine(resp))
		return
	}
	t.ended = true
	delete(r.open, resp.GetWatchId())
}

// permissionDenied is the end reason of a watch whose owner lost the right to read.
const permissionDenied = "etcdserver: permission denied"

// promised processes an answer to a progress request: all watches have received all events up to
// its revision.
func (r *reading) promised(resp *pb.WatchResponse, sent int) {
	revision := resp.GetHeader().GetRevision()
	r.progress = append(r.progress, revision)
	if revision < r.newest {
		r.complain(nil, "progress %d of the stream after events with a header of %d", revision, r.newest)
	}
	for _, t := range r.open {
		if r.loose && r.cancelAsked(t, sent) {
			continue // etcd's answer to the cancel may follow
		}
		if t.ended && !r.loose {
			continue // see endedIsGone
		}
		if t.ended {
			r.complain(t, "progress %d of the stream, though this watch has ended and is not cancelled", revision)
		}
		r.promise(t, revision)
	}
	if len(r.open) == 0 && nthCreate(r.requests[:sent], len(r.all)) < 0 && !r.loose {
		r.complain(nil, "progress %d of a stream without a watch", revision)
	}
}

// cancelAsked reports whether a cancel of the watch was among the requests sent.
func (r *reading) cancelAsked(t *told, sent int) bool {
	for _, q := range r.requests[t.index:sent] {
		if c := q.GetCancelRequest(); c != nil && r.open[c.GetWatchId()] == t {
			return true
		}
	}
	return false
}

func (r *reading) promise(t *told, revision int64) {
	if revision < t.request.GetStartRevision() {
		r.complain(t, "progress %d before it begins", revision)
	}
	t.queue = append(t.queue, said{promise: revision})
}

// news processes events and progress of one watch.
func (r *reading) news(resp *pb.WatchResponse) {
	t, h := r.open[resp.GetWatchId()], resp.GetHeader().GetRevision()
	if t == nil || t.ended {
		r.complain(nil, "response for a watch that is not open: %s", shorten(oneLine(resp)))
		return
	}
	if resp.GetCompactRevision() != 0 || resp.GetCancelReason() != "" {
		r.complain(t, "fields of a cancel: %s", shorten(oneLine(resp)))
	}
	if h < t.header {
		r.complain(t, "header at %d after %d", h, t.header)
	}
	t.header = h
	if len(resp.GetEvents()) == 0 {
		if !t.request.GetProgressNotify() {
			r.complain(t, "progress %d without a request", h)
		}
		t.notified = h
		r.promise(t, h)
		return
	}
	for _, e := range resp.GetEvents() {
		if e.GetKv().GetModRevision() > h {
			r.complain(t, "an event of %d with a header of %d", e.GetKv().GetModRevision(), h)
		}
	}
	if resp.GetFragment() && !t.request.GetFragment() {
		r.complain(t, "a fragment without a request")
	}
	if size := proto.Size(resp); t.request.GetFragment() && len(resp.GetEvents()) > 1 && size >= fragmentBytes && !r.loose {
		r.complain(t, "%d bytes in one response, though fragments end at %d", size, fragmentBytes)
	}
	r.newest = max(r.newest, h)
	t.fragments = append(t.fragments, resp.GetEvents()...)
	r.unended = t
	if !resp.GetFragment() {
		t.queue = append(t.queue, said{events: t.fragments})
		t.fragments, r.unended = nil, nil
	}
}

// fragmentBytes is etcd's --max-request-bytes and its allowance for overhead.
const fragmentBytes = 3<<19 + 512<<10

// judge compares the responses so far with the truth, which is complete up to the revision known.
func (r *reading) judge(tr *truth, compacted, known int64) {
	for _, t := range r.all {
		if t != nil && !t.broken {
			r.judgeWatch(t, tr, compacted, known)
		}
	}
}

func (r *reading) judgeWatch(t *told, tr *truth, compacted, known int64) {
	for len(t.queue) > 0 && !t.broken {
		s := t.queue[0]
		if newest := max(s.promise, t.header); newest > known {
			r.complain(t, "events of revision %d, the newest is %d", newest, known)
			return
		}
		t.queue = t.queue[1:]
		if s.events == nil {
			r.judgePromise(t, tr, s.promise)
			continue
		}
		for len(s.events) > 0 && !t.broken {
			rev := s.events[0].GetKv().GetModRevision()
			n := 1
			for n < len(s.events) && s.events[n].GetKv().GetModRevision() == rev {
				n++
			}
			r.judgeBatch(t, tr, compacted, s.events[:n])
			s.events = s.events[n:]
		}
	}
}

// judgePromise checks that all events up to a revision have arrived.
func (r *reading) judgePromise(t *told, tr *truth, revision int64) {
	if r.loose {
		return // progress may precede the first events of a new watch
	}
	if missing := t.missing(tr, revision); missing != nil {
		r.complain(t, "progress %d, but no events of revision %d: %s", revision, missing.revision, shorten(oneLine(missing.events[0])))
	}
	t.last, t.begun = max(t.last, revision), true
}

// missing returns the first batch up to a revision that the watch lacks, or nil.
func (t *told) missing(tr *truth, upTo int64) *batch {
	for _, b := range tr.since(t.last + 1) {
		if b.revision > upTo {
			return nil
		}
		if want := t.wish.of(b); len(want) > 0 {
			return &batch{revision: b.revision, events: want}
		}
	}
	return nil
}

// judgeBatch judges all events of one revision.
func (r *reading) judgeBatch(t *told, tr *truth, compacted int64, events []*mvccpb.Event) {
	rev := events[0].GetKv().GetModRevision()
	if !t.begun && rev <= t.last && rev > t.low {
		t.last = rev - 1 // so the watch began there
	}
	t.begun = true
	if rev <= t.last {
		r.complain(t, "events of revision %d after %d: %s", rev, t.last, shorten(oneLine(events[0])))
		return
	}
	if missing := t.missing(tr, rev-1); missing != nil {
		r.complain(t, "events of revision %d, but no events of revision %d: %s", rev, missing.revision, shorten(oneLine(missing.events[0])))
		return
	}
	t.last = rev
	var want []*mvccpb.Event
	if since := tr.since(rev); len(since) > 0 && since[0].revision == rev {
		want = t.wish.of(since[0])
	}
	if !r.loose { // events of several shards arrive shard by shard
		want, events = r.byShard(want), r.byShard(events)
	}
	if len(want) != len(events) {
		r.complain(t, "%d events of revision %d, want %d", len(events), rev, len(want))
		return
	}
	for i, e := range events {
		if proto.Equal(want[i], e) {
			continue
		}
		// etcd leaves out a previous value that it has compacted.
		if gone := r.loose || rev-1 < compacted; gone && e.GetPrevKv() == nil && sameEvent(want[i], e) {
			continue
		}
		r.complain(t, "event %d of revision %d: %s", i, rev, unequal(want[i], e))
	}
}

// byShard orders events by their shards, and keeps the order within each.
func (r *reading) byShard(events []*mvccpb.Event) []*mvccpb.Event {
	if len(r.cuts) == 0 || len(events) < 2 {
		return events
	}
	shard := func(e *mvccpb.Event) int {
		key := string(e.GetKv().GetKey())
		return sort.Search(len(r.cuts), func(i int) bool { return r.cuts[i] > key })
	}
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b *mvccpb.Event) int { return shard(a) - shard(b) })
	return events
}

// complete returns nil if every open watch has received all events up to a revision, and otherwise
// the first missing one. Watches in gone need not be complete.
func (r *reading) complete(tr *truth, revision int64, gone map[int]bool) error {
	for i, t := range r.all {
		if t == nil || t.broken || t.ended || gone[i] {
			continue
		}
		if t.fragments != nil {
			return fmt.Errorf("watch {%s}: the last fragment is missing", oneLine(t.request))
		}
		if missing := t.missing(tr, revision); missing != nil {
			return fmt.Errorf("watch {%s}: no events of revision %d: %s", oneLine(t.request), missing.revision, shorten(oneLine(missing.events[0])))
		}
		t.last, t.begun = max(t.last, revision), true
	}
	return nil
}
