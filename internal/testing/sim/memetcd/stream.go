package memetcd

import (
	"bytes"
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

const (
	// catchUpRevisions is the maximum number of revisions in one response to a
	// watch in the past (etcd: mvcc.watchBatchMaxRevs).
	catchUpRevisions = 1000
	// syncedRevisions is how far a synced watch may fall behind before it must
	// catch up (etcd: the responses that a stream's channel holds,
	// mvcc.chanBufLen).
	syncedRevisions = 128
	// noWatch is the watch ID of answers that belong to no watch.
	noWatch = -1
)

// stream has the watches of one gRPC stream and their pending messages. All of it is guarded by
// server.mu.
type stream struct {
	server  *Server
	watches map[int64]*watch
	nextID  int64
	out     []*pb.WatchResponse
	asked   bool // a progress request waits for the next deliver
}

// watch is a position in the history.
type watch struct {
	id           int64
	keys         keyRange
	start        int64 // as requested
	next         int64 // the first revision not yet processed
	synced       bool
	syncAt       time.Time // of a watch in the past: when etcd first reads for it
	compacted    bool      // ended by compaction; etcd keeps the ID taken until it is cancelled
	prevKV       bool
	fragment     bool
	noPut, noDel bool
	notify       bool // progress_notify
	quiet        bool // no events since the last tick
}

func newStream(s *Server) *stream {
	st := &stream{server: s, watches: map[int64]*watch{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[st] = struct{}{}
	return st
}

// close removes the watches.
func (st *stream) close() {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	delete(st.server.streams, st)
}

// handle takes one request of the client.
func (st *stream) handle(r *pb.WatchRequest) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	switch {
	case r.GetCreateRequest() != nil:
		st.createLocked(r.GetCreateRequest())
	case r.GetCancelRequest() != nil:
		st.cancelLocked(r.GetCancelRequest().WatchId)
	case r.GetProgressRequest() != nil:
		st.asked = !st.server.noProgress
	}
}

func (st *stream) createLocked(r *pb.WatchCreateRequest) {
	rev := st.server.store.rev()
	created := &pb.WatchResponse{Header: st.server.headerLocked(rev), Created: true}
	st.out = append(st.out, created)
	refuse := func(reason string) {
		created.WatchId, created.Canceled, created.CancelReason = noWatch, true, reason
	}
	key := r.Key
	if len(key) == 0 {
		key = []byte{0}
	}
	open := len(r.RangeEnd) == 1 && r.RangeEnd[0] == 0
	switch {
	case r.StartRevision < 0:
		refuse(rpctypes.ErrCompacted.Error())
		return
	case len(r.RangeEnd) > 0 && !open && bytes.Compare(key, r.RangeEnd) >= 0:
		refuse("mvcc: watcher range is empty")
		return
	case r.WatchId != 0 && st.watches[r.WatchId] != nil:
		refuse("mvcc: duplicate watch ID provided on the WatchStream")
		return
	}
	w := &watch{
		id: r.WatchId, keys: rangeOf(key, r.RangeEnd), start: r.StartRevision,
		prevKV: r.PrevKv, fragment: r.Fragment, notify: r.ProgressNotify, quiet: true,
		noPut:  slices.Contains(r.Filters, pb.WatchCreateRequest_NOPUT),
		noDel:  slices.Contains(r.Filters, pb.WatchCreateRequest_NODELETE),
		synced: r.StartRevision == 0 || r.StartRevision > rev,
		next:   r.StartRevision,
		syncAt: time.Now().Add(st.server.config.SyncInterval),
	}
	if w.next == 0 {
		w.next = rev + 1
	}
	if w.id == 0 {
		for st.watches[st.nextID] != nil {
			st.nextID++
		}
		w.id = st.nextID
		st.nextID++
	}
	st.watches[w.id] = w
	created.WatchId = w.id
	st.server.counts.Watches++
}

func (st *stream) cancelLocked(id int64) {
	if st.watches[id] == nil {
		return
	}
	delete(st.watches, id)
	st.out = append(st.out, &pb.WatchResponse{Header: st.server.headerLocked(st.server.store.rev()), WatchId: id, Canceled: true})
}

// tick sends quiet watches their progress, if they asked for it.
func (st *stream) tick() {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	for _, w := range st.inOrder() {
		if w.notify && w.quiet && st.completeLocked(w) {
			st.out = append(st.out, st.progressLocked(w.id))
		}
		w.quiet = true
	}
}

// deliver returns the messages to send now, a channel that is closed when there may be more, and
// the time of the next message, if it is known.
func (st *stream) deliver(now time.Time) (out []*pb.WatchResponse, changed <-chan struct{}, next time.Time) {
	s := st.server
	s.mu.Lock()
	defer s.mu.Unlock()
	visible := s.store.rev()
	for visible > 1 {
		due := s.store.batch(visible).at.Add(s.watchDelay)
		if !due.After(now) {
			break
		}
		visible, next = visible-1, due
	}
	complete := true
	for _, w := range st.inOrder() {
		if !w.synced && !w.compacted && w.syncAt.After(now) {
			if complete = false; next.IsZero() || w.syncAt.Before(next) {
				next = w.syncAt
			}
			continue
		}
		st.advanceLocked(w, visible)
		complete = complete && st.completeLocked(w)
	}
	if st.asked && complete && len(st.watches) > 0 {
		st.out = append(st.out, st.progressLocked(noWatch))
	}
	st.asked = false // a request that comes too early is dropped silently
	out, st.out = st.out, nil
	return out, s.changed, next
}

// completeLocked reports whether w was sent every event.
func (st *stream) completeLocked(w *watch) bool {
	rev := st.server.store.rev()
	return w.synced && w.next > rev && w.start <= rev
}

func (st *stream) progressLocked(id int64) *pb.WatchResponse {
	return &pb.WatchResponse{Header: st.server.headerLocked(st.server.store.rev()), WatchId: id}
}

// advanceLocked advances w to the revision visible. A watch in the past is sent many
// revisions per response, with the current revision in the header; a synced watch is
// sent one revision per response.
func (st *stream) advanceLocked(w *watch, visible int64) {
	s := st.server.store
	if w.compacted || w.next > visible {
		return
	}
	if w.synced && visible-w.next >= syncedRevisions {
		w.synced = false
	}
	if w.synced {
		for ; w.next <= visible; w.next++ {
			st.sendLocked(w, st.eventsLocked(w, w.next), w.next)
		}
		return
	}
	if w.next < s.compacted {
		w.compacted = true
		st.out = append(st.out, &pb.WatchResponse{
			Header: st.server.headerLocked(0), WatchId: w.id, Canceled: true, CompactRevision: s.compacted,
		})
		return
	}
	var events []*mvccpb.Event
	for revs := 0; w.next <= visible; w.next++ {
		more := st.eventsLocked(w, w.next)
		if len(more) == 0 {
			continue
		}
		if revs++; revs > catchUpRevisions {
			break // the next deliver continues
		}
		events = append(events, more...)
	}
	w.synced = w.next > visible
	st.sendLocked(w, events, visible)
}

// eventsLocked returns the events of one revision that w wants.
func (st *stream) eventsLocked(w *watch, rev int64) []*mvccpb.Event {
	if rev < 2 {
		return nil // revision 1 is the empty store
	}
	var events []*mvccpb.Event
	for _, e := range st.server.store.batch(rev).events {
		deleted := e.Type == mvccpb.Event_DELETE
		if !w.keys.contains(string(e.Kv.Key)) || deleted && w.noDel || !deleted && w.noPut {
			continue
		}
		out := &mvccpb.Event{Type: e.Type, Kv: e.Kv}
		created := !deleted && e.Kv.CreateRevision == rev               // perhaps after a delete in the same revision
		if w.prevKV && !created && rev-1 >= st.server.store.compacted { // else the previous value is gone
			out.PrevKv = st.server.store.get(string(e.Kv.Key), rev-1)
		}
		events = append(events, out)
	}
	return events
}

func (st *stream) sendLocked(w *watch, events []*mvccpb.Event, rev int64) {
	if len(events) == 0 {
		return
	}
	w.quiet = false
	resp := &pb.WatchResponse{Header: st.server.headerLocked(rev), WatchId: w.id, Events: events}
	const overhead = 512 << 10
	limit := st.server.config.MaxRequestBytes + overhead
	if !w.fragment || proto.Size(resp) < limit {
		st.out = append(st.out, resp)
		return
	}
	for len(events) > 0 {
		part := &pb.WatchResponse{Header: resp.Header, WatchId: w.id, Fragment: true}
		n := 0
		for size := proto.Size(part); n < len(events); n++ {
			size += 1 + sizeOfBytes(proto.Size(events[n]))
			if n > 0 && size >= limit {
				break
			}
		}
		part.Events, events = events[:n], events[n:]
		part.Fragment = len(events) > 0
		st.out = append(st.out, part)
	}
}

// sizeOfBytes is the size of n bytes with their length as a varint.
func sizeOfBytes(n int) int {
	size := n + 1
	for v := n; v >= 0x80; v >>= 7 {
		size++
	}
	return size
}

// inOrder returns the watches by ID, so that the model is deterministic.
func (st *stream) inOrder() []*watch {
	ids := slices.Sorted(maps.Keys(st.watches))
	out := make([]*watch, len(ids))
	for i, id := range ids {
		out[i] = st.watches[id]
	}
	return out
}
